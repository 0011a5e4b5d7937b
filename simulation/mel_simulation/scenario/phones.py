"""Fleets of real phones: their relative speeds and the links that were measured on such devices.

The table has 333 phones, the fastest 41 times as fast as the slowest. Scores are of inference, so only their
ratios are used: the phone in the middle is taken for a device of known speed, and a phone with twice its
score for one twice as fast. Their energy was not measured: an operation costs as much as on that device.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from flwr_mel._validate import FloatArray, count, number
from flwr_mel.devices import Device
from flwr_mel.paper import PAPER_TX_POWER_W

#: Operations per second of the phone in the middle of the table: the second of the paper's processors.
MIDDLE_HZ = 2.4e9
#: A link that breaks down keeps this share of its mean rate.
_LEAST_RATE = 0.05
_BITS_PER_KILOBYTE = 8e3
_PHONES, _LINKS = 11, 12


@dataclass(frozen=True, slots=True)
class Phone:
    """A model of the table.

    Parameters
    ----------
    model : str
        Its name.
    year : int
        In which it came.
    score : float
        Its relative speed.
    """

    model: str
    year: int
    score: float


@cache
def phones() -> tuple[Phone, ...]:
    """Return the table of phones, in the order of the source."""
    return tuple(Phone(str(row[0]), int(row[1]), float(row[2])) for row in _table("phones.csv"))


@cache
def links() -> tuple[tuple[float, float, float, float], ...]:
    """Return mean and standard deviation of the rates down and up, in bits per second."""
    rows = [[_BITS_PER_KILOBYTE * float(x) for x in row] for row in _table("links.csv")]
    return tuple((down, down_sd, up, up_sd) for down, down_sd, up, up_sd in rows)


def _table(name: str) -> list[list[str]]:
    text = files("mel_simulation.scenario").joinpath(name).read_text(encoding="utf-8")
    return list(csv.reader(line for line in text.splitlines() if not line.startswith("#")))[1:]


@dataclass(frozen=True, slots=True)
class PhoneFleet:
    """Phones of one seed, cycle by cycle.

    Models are drawn from the table with equal chances, each with one of the measured links; the link's rate
    is drawn anew in each cycle. Everything is a function of the seed and the cycle alone.

    Parameters
    ----------
    seed : int
        One seed, one fleet.
    learners : int
        K.
    middle_hz : float
        Operations per second of the phone in the middle of the table.
    """

    seed: int = 0
    learners: int = 20
    middle_hz: float = MIDDLE_HZ

    def __post_init__(self) -> None:
        count("seed", self.seed)
        count("learners", self.learners, least=1)
        number("middle_hz", self.middle_hz, above=0)

    def devices(self, cycle: int = 1) -> list[Device]:
        """Return the learners as they are in a cycle, counted from 1."""
        table, middle = phones(), float(np.median([phone.score for phone in phones()]))
        rng = np.random.default_rng([self.seed, _PHONES])
        models = rng.integers(len(table), size=self.learners).tolist()
        width = len(str(self.learners - 1))
        joules = Device(self.middle_hz, 1.0, 0.0).joules_per_operation
        return [
            Device(
                cpu_hz=self.middle_hz * table[m].score / middle,
                rate_bps=float(rate),
                tx_power_w=PAPER_TX_POWER_W,
                capacitance=joules,
                exponent=0.0,
                name=f"{table[m].model} {k:0{width}d}",
            )
            for k, (m, rate) in enumerate(zip(models, self.rates_bps(cycle), strict=True))
        ]

    def rates_bps(self, cycle: int = 1) -> FloatArray:
        """Return the rates in a cycle: the one with which both ways take as long as down and up together."""
        count("cycle", cycle, least=1)
        table = np.array(links())
        kinds = np.random.default_rng([self.seed, _LINKS]).integers(len(table), size=self.learners)
        down, down_sd, up, up_sd = table[kinds].T
        draws = np.random.default_rng([self.seed, _LINKS, cycle]).standard_normal((2, self.learners))
        down = np.maximum(down + down_sd * draws[0], _LEAST_RATE * down)
        up = np.maximum(up + up_sd * draws[1], _LEAST_RATE * up)
        rates: FloatArray = 2 / (1 / down + 1 / up)
        return rates
