"""Joules of the training, from the best meter that the platform has.

A meter is a counter of joules that only rises. In order:

``rapl``
    The processor's own counters, CPU packages and DRAM, and GPUs where there are any. Read through `zeus`
    (extra ``energy``): of the maintained packages it is the one that reads counters and says so when it
    cannot. codecarbon is maintained too, but where counters are missing it goes on with an estimate from a
    table of processors, which a profile must not call a measurement; pyJoules documents Intel only.
``battery``
    What the battery lost, through psutil (extra ``energy``), times its capacity as declared. Coarse.
``declared``
    Watts that somebody states, times seconds.
``none``
    Nothing is known; the energy coefficients are 0, and energy limits bind nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from time import perf_counter
from typing import Any

from flwr_mel._text import message
from flwr_mel._validate import Phrase, complain, number
from flwr_mel.profiling.compute import ComputeCosts
from flwr_mel.profiling.fit import fit

INSTALL = "pip install 'flwr-mel[energy]'"
#: A battery must have lost this many steps of its gauge; one step is then a quarter of the result at most.
_STEPS = 4


class MeterName(StrEnum):
    """What energy is measured with."""

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
    counter_j : callable, optional
        Returns joules since some moment in the past. None: there is nothing to count.
    watts : float, optional
        What was declared.
    step_j : float
        Smallest change that the counter shows. 0: fine enough for single runs.
    """

    name: MeterName
    detail: str
    counter_j: Callable[[], float | None] | None = None
    watts: float | None = None
    step_j: float = 0.0


@dataclass(frozen=True, slots=True)
class EnergyCosts:
    """Joules: e = g2 * epochs * samples + g1 * samples + g0.

    Parameters
    ----------
    g2, g1, g0 : float
        Joules per sample and epoch, per sample, and per call.
    meter : MeterName
        Where they come from.
    detail : str
        In words.
    """

    g2: float
    g1: float
    g0: float
    meter: MeterName
    detail: str


def choose_meter(
    *, watts: float | None = None, battery_wh: float | None = None, only: MeterName | None = None
) -> tuple[Meter, list[str]]:
    """Return the first meter that works, and why those before it do not.

    Parameters
    ----------
    watts : float, optional
        Declared power while training.
    battery_wh : float, optional
        Declared capacity of the battery, watt-hours; without it the battery is not used.
    only : MeterName, optional
        Use this one or fail.
    """
    makers: dict[MeterName, Callable[[], Meter]] = {
        MeterName.RAPL: _rapl,
        MeterName.BATTERY: lambda: _battery(battery_wh),
        MeterName.DECLARED: lambda: _declared(watts),
        MeterName.NONE: lambda: Meter(MeterName.NONE, "not measured: g2, g1 and g0 are 0"),
    }
    if watts is not None:
        number("watts", watts, above=0)
    if battery_wh is not None:
        number("battery_wh", battery_wh, above=0, remedy="Give the capacity in watt-hours.")
    reasons: list[str] = []
    for name, make in makers.items():
        if only is not None and name is not only:
            continue
        try:
            return make(), reasons
        except _Unavailable as reason:
            reasons.append(f"{name}: {reason}")
    raise complain("meter", "one that works here", str(only), f"{reasons[0]}.")


def energy_costs(meter: Meter, compute: ComputeCosts) -> EnergyCosts:
    """Turn a meter's readings during the timing into coefficients.

    Parameters
    ----------
    meter : Meter
        Whose counter `measure_compute` read.
    compute : ComputeCosts
        The timing.

    Raises
    ------
    ValueError
        The counter did not rise enough to say anything.
    """
    if meter.name is MeterName.NONE:
        return EnergyCosts(0.0, 0.0, 0.0, meter.name, meter.detail)
    if meter.watts is not None:
        return _at(meter.watts, meter, compute)
    rose = compute.elapsed_j
    if rose is None or rose <= 0 or rose < _STEPS * meter.step_j:
        got = f"{0.0 if rose is None else rose:.3g} J in {compute.elapsed_s:.3g} s"
        rule = f"at least {_STEPS * meter.step_j:.3g} J" if meter.step_j else "something"
        raise complain(
            f"what the {meter.name} counted",
            rule,
            got,
            Phrase("Raise {}, or declare {}.", "budget_s", "watts"),
        )
    joules = [run.joules for run in compute.runs if run.joules is not None]
    if meter.step_j or len(joules) < len(compute.runs):
        return _at(rose / compute.elapsed_s, meter, compute)
    g2, g1, g0 = fit([(run.epochs, run.samples) for run in compute.runs], joules)
    return EnergyCosts(g2, g1, g0, meter.name, meter.detail)


def _at(watts: float, meter: Meter, compute: ComputeCosts) -> EnergyCosts:
    g2, g1, g0 = (watts * c for c in (compute.c2, compute.c1, compute.c0))
    return EnergyCosts(g2, g1, g0, meter.name, f"{meter.detail}, {watts:.4g} W while training")


class _Unavailable(Exception):
    """Raised for a meter that does not work here."""


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise _Unavailable(f"{name.partition('.')[0]} cannot be imported ({error}); {INSTALL}") from None


def _rapl() -> Meter:
    device = _import("zeus.device")
    try:
        cpus = device.get_cpus()
        packages = range(len(cpus))
        read = [cpus.get_total_energy_consumption(k) for k in packages]
    except Exception as error:  # zeus has many kinds: no counters, no permission, no daemon
        raise _Unavailable(message(error)) from None
    if not read:
        raise _Unavailable("no counters on this processor")
    try:
        gpus = device.get_gpus()
        cards = [k for k in range(len(gpus)) if gpus.supports_get_total_energy_consumption(k)]
    except Exception:
        cards = []

    def counter() -> float:
        millijoules = sum(gpus.get_total_energy_consumption(k) for k in cards)
        for k in packages:
            now = cpus.get_total_energy_consumption(k)
            millijoules += now.cpu_mj + (now.dram_mj or 0.0)
        return float(millijoules) / 1e3

    dram = sum(reading.dram_mj is not None for reading in read)
    parts = [(len(read), "CPU package"), (dram, "DRAM"), (len(cards), "GPU")]
    return Meter(MeterName.RAPL, ", ".join(f"{n} {what}" for n, what in parts if n), counter)


def _battery(capacity_wh: float | None) -> Meter:
    if capacity_wh is None:
        raise _Unavailable("needs its capacity, --battery-wh")
    # psutil leaves it out where the platform has no such thing.
    sensors: Callable[[], Any] = getattr(_import("psutil"), "sensors_battery", lambda: None)
    state = sensors()
    if state is None:
        raise _Unavailable("psutil finds no battery")
    if state.power_plugged:
        raise _Unavailable("the device is plugged in, so that the battery does not discharge")
    percent_j = capacity_wh * 3600.0 / 100.0

    def counter() -> float | None:
        now = sensors()
        return None if now is None or now.power_plugged else (100.0 - float(now.percent)) * percent_j

    # psutil gives hundredths of a percent on some platforms, whole percents on others.
    step = 1.0 if float(state.percent).is_integer() else 0.01
    return Meter(MeterName.BATTERY, f"a battery of {capacity_wh:g} Wh", counter, step_j=step * percent_j)


def _declared(watts: float | None) -> Meter:
    if watts is None:
        raise _Unavailable("no watts were declared, --watts")
    return Meter(MeterName.DECLARED, "stated, not measured", lambda: watts * perf_counter(), watts)
