"""Numbers for people: few digits, a fitting unit, a dash for what is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from flwr_mel._validate import FloatArray

DASH = "\u2013"
#: Units in rising order: from which value on, divisor, sign.
Units: TypeAlias = Sequence[tuple[float, float, str]]
SECONDS: Units = ((0, 1, "s"), (600, 60, "min"), (7200, 3600, "h"), (432000, 86400, "days"))
JOULES: Units = ((0, 1, "J"), (2e3, 1e3, "kJ"), (2e6, 1e6, "MJ"), (2e9, 1e9, "GJ"))
HERTZ: Units = ((0, 1, "Hz"), (1e3, 1e3, "kHz"), (1e6, 1e6, "MHz"), (1e9, 1e9, "GHz"))
BITRATE: Units = ((0, 1, "bit/s"), (1e3, 1e3, "kbit/s"), (1e6, 1e6, "Mbit/s"), (1e9, 1e9, "Gbit/s"))


def finite(value: object) -> float:
    """Return a number as a float, and NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        return math.nan
    try:
        x = float(value)
    except OverflowError:
        return math.nan
    return x if math.isfinite(x) else math.nan


def unit(largest: float, units: Units) -> tuple[float, str]:
    """Choose divisor and sign for values up to `largest`."""
    fitting = [u for u in units if not largest < u[0]] if math.isfinite(largest) else [units[0]]
    return fitting[-1][1], fitting[-1][2]


def short(value: object, digits: int = 4) -> str:
    """Write a number with up to `digits` significant digits, thousands separated."""
    x = finite(value)
    if math.isnan(x):
        return DASH
    if x and not 1e-4 <= abs(x) < 1e15:
        return f"{x:.3g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(x)))) if x else 0
    text = f"{x:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def fixed(value: object, decimals: int) -> str:
    """Write a number for a column, with as many decimals as its neighbours."""
    x = finite(value)
    return DASH if math.isnan(x) else f"{x:,.{decimals}f}"


def percent(value: object, decimals: int = 2) -> str:
    """Write a share as a percentage."""
    x = finite(value)
    return DASH if math.isnan(x) else f"{100 * x:.{decimals}f}%"


def used(value: object) -> str:
    """Write a used share of a limit in whole percent, rounded down: 100% only of a limit that is used up."""
    x = finite(value)
    return DASH if math.isnan(x) else f"{math.floor(100 * x + 1e-9)}%"


def measure(value: object, units: Units, digits: int = 4) -> str:
    """Write a number with the unit that fits it."""
    x = finite(value)
    if math.isnan(x):
        return DASH
    divisor, sign = unit(abs(x), units)
    return f"{short(x / divisor, digits)}\u00a0{sign}"


def reading(value: object, units: Units) -> str:
    """Write a number for a column: two decimals below a hundred, one below a thousand, and the unit."""
    x = finite(value)
    if math.isnan(x):
        return DASH
    divisor, sign = unit(abs(x), units)
    y = x / divisor
    decimals = 2 if abs(y) < 99.995 else 1 if abs(y) < 999.95 else 0
    return f"{y:,.{decimals}f}\u00a0{sign}"


def span(values: FloatArray, digits: int = 4) -> str:
    """Write the range of the known values: one number if they are equal."""
    known = values[~np.isnan(values)]
    if not len(known):
        return DASH
    low, high = short(known.min(), digits), short(known.max(), digits)
    return low if low == high else f"{low}{DASH}{high}"


def mean(values: FloatArray) -> float:
    """Return the mean of the known values; NaN without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def plural(n: int, noun: str) -> str:
    """Write a number and its noun."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def ranges(numbers: Sequence[int]) -> str:
    """Write sorted whole numbers as ranges: 1-3, 7."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], n]
        else:
            parts.append([n])
    return ", ".join(DASH.join(f"{n:,}" for n in part) for part in parts)
