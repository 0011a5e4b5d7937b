"""Joules of the training, from the best meter that the platform has.

In order: ``rapl``, the processor's own counters (CPU, DRAM, GPUs) through `zeus`, which comes with the extra
``energy``; ``declared``, stated watts times seconds; ``none``. Packages that estimate where counters are
missing are not used: a profile must not call that a measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

from flwr_mel._text import message
from flwr_mel._validate import Phrase, complain, number
from flwr_mel.tools.profiling import ComputeCosts, Three, fit


class MeterName(StrEnum):
    """What energy is measured with; auto: the first of the others that works."""

    AUTO = "auto"
    RAPL = "rapl"
    DECLARED = "declared"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Meter:
    """A counter of joules.

    Parameters
    ----------
    name : MeterName
        What it is.
    detail : str
        What it counts, in words.
    counter_j : callable
        Returns joules since some moment in the past; None: there is nothing to count.
    watts : float, optional
        What was declared.
    """

    name: MeterName
    detail: str
    counter_j: Callable[[], float | None] = lambda: None
    watts: float | None = None


def choose_meter(only: MeterName = MeterName.AUTO, watts: float | None = None) -> tuple[Meter, list[str]]:
    """Return the first meter that works, and why those before it do not.

    Parameters
    ----------
    only : MeterName
        Use this one or fail; AUTO: any.
    watts : float, optional
        Declared power while training.
    """
    if watts is not None:
        number("watts", watts, above=0)
    makers: dict[MeterName, Callable[[], Meter | str]] = {
        MeterName.RAPL: _rapl,
        MeterName.DECLARED: lambda: _declared(watts),
        MeterName.NONE: lambda: Meter(MeterName.NONE, "not measured: g2, g1 and g0 are 0"),
    }
    reasons: list[str] = []
    for name, make in makers.items():
        if only in (MeterName.AUTO, name):
            made = make()
            if isinstance(made, Meter):
                return made, reasons
            reasons.append(f"{name}: {made}")
    raise complain("meter", "one that works here", str(only), f"{reasons[0]}.")


def energy_costs(meter: Meter, compute: ComputeCosts) -> tuple[Three, str]:
    """Turn a meter's readings during the timing into g2, g1, g0, and say in words where they come from.

    Raises
    ------
    InputError
        The counter did not rise.
    """
    if meter.name is MeterName.NONE:
        return (0.0, 0.0, 0.0), meter.detail
    if meter.watts is not None:
        costs = meter.watts * compute.c2, meter.watts * compute.c1, meter.watts * compute.c0
        return costs, f"{meter.detail}, {meter.watts:.4g} W while training"
    runs = compute.runs
    joules = [run.joules for run in runs if run.joules is not None]
    if len(joules) < len(runs) or sum(joules) <= 0:
        got = f"{sum(joules):.3g} J in {sum(run.seconds for run in runs):.3g} s"
        remedy = Phrase("Raise {}, or declare {}.", "budget_s", "watts")
        raise complain(f"the energy by {meter.name}", "above 0", got, remedy)
    return fit([(run.epochs, run.samples) for run in runs], joules), meter.detail


def _rapl() -> Meter | str:
    try:
        device = import_module("zeus.device")
        cpus = device.get_cpus()
        packages = range(len(cpus))
        read = [cpus.get_total_energy_consumption(k) for k in packages]
    except ImportError as error:
        return f"zeus cannot be imported ({error}); pip install 'flwr-mel[energy]'"
    except Exception as error:  # zeus has many kinds: no counters, no permission, no daemon
        return message(error)
    if not read:
        return "no counters on this processor"
    try:
        gpus: Any = device.get_gpus()
        cards = [k for k in range(len(gpus)) if gpus.supports_get_total_energy_consumption(k)]
    except Exception:
        cards = []

    def counter() -> float:
        now = [cpus.get_total_energy_consumption(k) for k in packages]
        millijoules = sum(x.cpu_mj + (x.dram_mj or 0.0) for x in now)
        return float(millijoules + sum(gpus.get_total_energy_consumption(k) for k in cards)) / 1e3

    return Meter(MeterName.RAPL, f"{len(read)} CPU packages, {len(cards)} GPUs", counter)


def _declared(watts: float | None) -> Meter | str:
    if watts is None:
        return "no watts were declared, --watts"
    return Meter(MeterName.DECLARED, "stated, not measured", watts=watts)
