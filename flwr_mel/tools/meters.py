"""Joules of the training, from the best meter that the platform has.

A meter is a counter of joules that only rises. In order: ``rapl``, the processor's own counters (CPU, DRAM,
GPUs) through `zeus`; ``battery``, what the battery lost, through psutil, times its declared capacity;
``declared``, stated watts times seconds; ``none``. zeus and psutil come with the extra ``energy``. Packages
that estimate where counters are missing are not used: a profile must not call that a measurement.
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

#: A battery must have lost this many steps of its gauge; one step is then a quarter of the result at most.
_STEPS = 4


class MeterName(StrEnum):
    """What energy is measured with; auto: the first of the others that works."""

    AUTO = "auto"
    RAPL = "rapl"
    BATTERY = "battery"
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
    step_j : float
        Smallest change that the counter shows. 0: fine enough for single runs.
    """

    name: MeterName
    detail: str
    counter_j: Callable[[], float | None] = lambda: None
    watts: float | None = None
    step_j: float = 0.0


def choose_meter(
    only: MeterName = MeterName.AUTO, *, watts: float | None = None, battery_wh: float | None = None
) -> tuple[Meter, list[str]]:
    """Return the first meter that works, and why those before it do not.

    Parameters
    ----------
    only : MeterName
        Use this one or fail; AUTO: any.
    watts : float, optional
        Declared power while training.
    battery_wh : float, optional
        Declared capacity of the battery, watt-hours; without it the battery is not used.
    """
    if watts is not None:
        number("watts", watts, above=0)
    if battery_wh is not None:
        number("battery_wh", battery_wh, above=0)
    makers: dict[MeterName, Callable[[], Meter | str]] = {
        MeterName.RAPL: _rapl,
        MeterName.BATTERY: lambda: _battery(battery_wh),
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
        The counter did not rise enough to say anything.
    """
    if meter.name is MeterName.NONE:
        return (0.0, 0.0, 0.0), meter.detail
    runs, watts = compute.runs, meter.watts
    joules = [run.joules for run in runs if run.joules is not None]
    if watts is None:
        rose, seconds = sum(joules), sum(run.seconds for run in runs)
        if rose <= 0 or rose < _STEPS * meter.step_j:
            rule = f"at least {_STEPS * meter.step_j:.3g} J" if meter.step_j else "something"
            remedy = Phrase("Raise {}, or declare {}.", "budget_s", "watts")
            got = f"{rose:.3g} J in {seconds:.3g} s"
            raise complain(f"what the {meter.name} counted", rule, got, remedy)
        if not meter.step_j and len(joules) == len(runs):
            return fit([(run.epochs, run.samples) for run in runs], joules), meter.detail
        watts = rose / seconds
    costs = watts * compute.c2, watts * compute.c1, watts * compute.c0
    return costs, f"{meter.detail}, {watts:.4g} W while training"


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


def _battery(capacity_wh: float | None) -> Meter | str:
    if capacity_wh is None:
        return "needs its capacity, --battery-wh"
    try:
        psutil = import_module("psutil")
    except ImportError as error:
        return f"psutil cannot be imported ({error}); pip install 'flwr-mel[energy]'"
    # psutil leaves it out where the platform has no such thing.
    sensors: Callable[[], Any] = getattr(psutil, "sensors_battery", lambda: None)
    state = sensors()
    if state is None:
        return "psutil finds no battery"
    if state.power_plugged:
        return "the device is plugged in, so that the battery does not discharge"
    percent_j = capacity_wh * 3600.0 / 100.0

    def counter() -> float | None:
        now = sensors()
        return None if now is None or now.power_plugged else (100.0 - float(now.percent)) * percent_j

    # psutil gives hundredths of a percent on some platforms, whole percents on others.
    step = 1.0 if float(state.percent).is_integer() else 0.01
    return Meter(MeterName.BATTERY, f"a battery of {capacity_wh:g} Wh", counter, step_j=step * percent_j)


def _declared(watts: float | None) -> Meter | str:
    if watts is None:
        return "no watts were declared, --watts"
    return Meter(MeterName.DECLARED, "stated, not measured", watts=watts)
