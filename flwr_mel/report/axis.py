"""Axes with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import FloatArray

#: Shares of a step between two labels, so that an end of the cycles is labelled beside a round number.
_ROOM = 0.75


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from `low` to `high` with labelled ticks.

    Parameters
    ----------
    label : str
        What is measured, with its unit.
    low, high : float
        Ends of the scale.
    ticks : tuple of (float, str)
        Values and their labels.
    """

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """Return where `value` lies: 0 at the low end, 1 at the high end."""
        return (value - self.low) / (self.high - self.low)


def fit(
    label: str,
    values: FloatArray,
    *,
    share: bool = False,
    zero: bool = False,
    tight: bool = False,
    most: float = math.inf,
    ticks: int = 6,
) -> Axis:
    """Make an axis that holds the values.

    Parameters
    ----------
    label : str
        What is measured, with its unit.
    values : float array
        What must fit; NaN is ignored.
    share : bool
        Write percentages.
    zero : bool
        Start at zero.
    tight : bool
        End at the values themselves, not at round numbers.
    most : float
        The scale never goes beyond.
    ticks : int
        About how many.
    """
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    low = min(low, 0.0) if zero else low
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        margin = 0.05 * abs(high) if high else 1.0
        low, high = (low if zero or not low else low - margin), high + margin
    step = _step(high - low, ticks)
    if not tight:
        low, high = step * math.floor(low / step + 1e-9), min(step * math.ceil(high / step - 1e-9), most)
    marks = step * np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if not math.isclose(step, round(step, decimals), rel_tol=1e-6):
        decimals += 1
    return Axis(label, low, high, tuple((v, _tick(v, decimals, share)) for v in marks.tolist()))


def _tick(value: float, decimals: int, share: bool) -> str:
    if share:
        return f"{100 * value:.{max(0, decimals - 2)}f}%"
    return f"{value:.3g}" if decimals > 6 else f"{value:,.{decimals}f}"


def cycles_axis(cycles: FloatArray) -> Axis:
    """Make the axis of cycles, labelled at round steps; the ends too where there is room for them."""
    low, high = float(cycles.min()), float(cycles.max())
    if low == high:
        return Axis("cycle", low - 0.5, high + 0.5, ((low, f"{low:,.0f}"),))
    step = max(1, math.ceil(_step(high - low, 6)))
    marks = np.arange(step * math.ceil(low / step), high + 1, step).tolist() or [low, high]
    marks = [*([low] if marks[0] - low >= _ROOM * step else []), *marks]
    marks += [high] if high - marks[-1] >= _ROOM * step else []
    return Axis("cycle", low, high, tuple((float(v), f"{v:,.0f}") for v in marks))


def _step(extent: float, ticks: int) -> float:
    """Return 1, 2 or 5 times a power of ten that cuts `extent` into about `ticks` parts."""
    rough = extent / max(ticks, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return float(next(m * power for m in (1, 2, 5, 10) if rough <= m * power * (1 + 1e-9)))
