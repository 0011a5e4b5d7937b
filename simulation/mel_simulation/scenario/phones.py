"""Fleets of real phones: their relative speeds and the links that were measured on such devices.

The table has 333 phones, the fastest 41 times as fast as the slowest. Scores are of inference, so only their
ratios are used: the phone in the middle is taken for a device of known speed, and a phone with twice its
score for one twice as fast. Their energy was not measured: an operation costs as much as on that device.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.devices import Device
from flwr_mel.paper import PAPER_TX_POWER_W

#: Operations per second of the phone in the middle of the table: the second of the paper's processors.
MIDDLE_HZ = 2.4e9
#: A link that breaks down keeps this share of its mean rate.
_LEAST_RATE = 0.05
_BITS_PER_KILOBYTE = 8e3
_PHONES, _LINKS = 11, 12


def phone_fleet(seed: int, learners: int) -> list[Device]:
    """Draw phones from the table with equal chances, each with a rate of one of the measured links."""
    table = phones()
    middle = float(np.median([score for _, score in table]))
    models = np.random.default_rng([seed, _PHONES]).integers(len(table), size=learners).tolist()
    width = len(str(learners - 1))
    return [
        Device(
            cpu_hz=MIDDLE_HZ * table[m][1] / middle,
            rate_bps=float(rate),
            tx_power_w=PAPER_TX_POWER_W,
            capacitance=Device(MIDDLE_HZ, 1.0, 0.0).joules_per_operation,
            exponent=0.0,
            name=f"{table[m][0]} {k:0{width}d}",
        )
        for k, (m, rate) in enumerate(zip(models, _rates_bps(seed, learners), strict=True))
    ]


def _rates_bps(seed: int, learners: int) -> FloatArray:
    """Draw the rates with which both ways take as long as down and up together."""
    table = np.array(links())
    kinds = np.random.default_rng([seed, _LINKS]).integers(len(table), size=learners)
    down, down_sd, up, up_sd = table[kinds].T
    draws = np.random.default_rng([seed, _LINKS, 1]).standard_normal((2, learners))
    down = np.maximum(down + down_sd * draws[0], _LEAST_RATE * down)
    up = np.maximum(up + up_sd * draws[1], _LEAST_RATE * up)
    rates: FloatArray = 2 / (1 / down + 1 / up)
    return rates


@cache
def phones() -> list[tuple[str, float]]:
    """Return models and scores, in the order of the source."""
    return [(model, float(score)) for model, _, score in _table("phones.csv")]


@cache
def links() -> list[list[float]]:
    """Return mean and standard deviation of the rates down, then up, in bits per second."""
    return [[_BITS_PER_KILOBYTE * float(x) for x in row] for row in _table("links.csv")]


def _table(name: str) -> list[list[str]]:
    text = files("mel_simulation.scenario").joinpath(name).read_text(encoding="utf-8")
    return list(csv.reader(line for line in text.splitlines() if not line.startswith("#")))[1:]
