"""What epochs on a batch are worth, in integers: the progress, the progress less costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.allocation.objectives import weighted_squares
from flwr_mel.solvers.options import total

Who = npt.NDArray[np.intp] | slice | int

#: Worths that are rounded are counted so finely that the largest has about this size.
_SIZE = 2**38


class Point(NamedTuple):
    """An allocation and its value."""

    value: int
    epochs: IntArray
    samples: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """Unit tau d^2, less a cost of (two tau + one) d + zero.

    Without costs that is an exact integer. With them it is rounded up, which keeps bounds bounds. For a given
    tau it is convex in d, for a given d linear in tau. A worth below `floor` counts as that: where sums
    below 0 are of no interest, nobody's worth needs to be lower than minus what all others can add.
    """

    unit: int = 1
    costs: tuple[FloatArray, FloatArray, FloatArray] | None = None
    floor: float = -np.inf

    def of(self, who: Who, epochs: IntArray, batch: IntArray) -> IntArray:
        """Return the worth of epochs on batches; the last axis runs over learners `who`."""
        squares: IntArray = epochs * batch
        squares *= batch
        if self.unit != 1:
            squares *= self.unit
        if self.costs is None:
            return squares
        two, one, zero = (cost[who] for cost in self.costs)
        worth = np.ceil(squares - ((two * epochs + one) * batch + zero))
        return np.maximum(worth, self.floor).astype(np.int64)

    def epochs(self, who: Who, first: int, most: IntArray, batch: IntArray) -> IntArray:
        """Return the best epochs from `first` to `most` on a batch: here one of the two."""
        if self.costs is None:
            return most
        fewer = np.minimum(most, first)
        return np.where(self.of(who, fewer, batch) > self.of(who, most, batch), fewer, most)

    def best(self, who: Who, first: int, most: IntArray, batch: IntArray) -> IntArray:
        """Return the largest worth of a batch with `first` to `most` epochs."""
        return self.of(who, self.epochs(who, first, most, batch), batch)

    def settle(self, first: int, most: IntArray, samples: IntArray) -> Point:
        """Let everybody with samples do its best epochs from `first` to `most`."""
        epochs = self.epochs(np.arange(len(samples)), first, most, samples)
        return self.point(np.where(samples > 0, epochs, 0), samples)

    def take(self, index: npt.NDArray[np.intp] | slice) -> Worth:
        """Return the worth of some learners only."""
        if self.costs is None:
            return self
        two, one, zero = (cost[index] for cost in self.costs)
        return replace(self, costs=(two, one, zero))

    def point(self, epochs: IntArray, samples: IntArray) -> Point:
        """Give an allocation its value."""
        if self.costs is None and self.unit == 1:
            return Point(weighted_squares(epochs, samples), epochs, samples)
        worth = np.where(samples > 0, self.of(np.arange(len(samples)), epochs, samples), 0)
        return Point(total(worth), epochs, samples)

    def largest(self, top: int, most: int) -> int:
        """Return a number that no worth exceeds, nor falls below its negative."""
        worth = self.unit * top * most * most
        if self.costs is None:
            return worth
        two, one, zero = (float(cost.max()) for cost in self.costs)
        return max(worth, int(min((two * top + one) * most + zero, -self.floor)) + 1)


def best_handed_out(worth: Worth, demand: int, room: IntArray, least: int, epochs: IntArray) -> Point:
    """Return the best of the hand-outs for given epochs and capacities."""
    given = (hand_out(rule, demand, room, least, epochs) for rule in Handout)
    return max((worth.point(epochs, samples) for samples in given), key=lambda point: point.value)


def less_energy(mine: Capacities, demand: int, price: float) -> Worth:
    """Return the worth of the progress less `price` times the energy, in units fine enough for a bound."""
    most = min(demand, int(mine.at(1).max()))
    largest = int(mine.most_epochs.max()) * most * most
    unit = _unit(largest)
    if not price:
        return Worth(unit)
    c, factor = mine.coefficients, price * demand * unit
    floor = -float((len(mine) + 1) * unit * largest)
    return Worth(unit, (factor * c.g2, factor * c.g1, factor * c.g0), floor)


def _unit(largest: int) -> int:
    return 1 << max((_SIZE // max(largest, 1)).bit_length() - 1, 0)
