"""The round time T when none is given.

In the project's own round, client k does e_k epochs on its n_k samples, and the round lasts as long as its
slowest client takes. With n clients per round, the new round time is ::

    T = min(T_baseline, max(T_work, T_one))

T_baseline is the expected time of the project's own round: of the slowest of n clients. T_work is the
shortest time in which the clients on average pass as many samples as in that round, when each does as many
epochs on all its samples as fit, or one epoch on as many samples as fit. T_one is the time in which each
client finishes its smallest task. So no round is longer than the project's own, and none does less work.

All clients that are known count, not those of one round, so that T does not jump with the sample. A
declaration that no task has confirmed makes T_one at most as long as the project's own work takes on the
other clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import MAX_COUNT, FloatArray, IntArray
from flwr_mel.costs import Coefficients
from flwr_mel.cycle.candidates import Candidates
from flwr_mel.cycle.population import Follows

_HALVINGS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """The costs and the project's own work of the clients from which T is derived.

    Parameters
    ----------
    costs : Coefficients
        Expected ones.
    own_epochs, held : int arrays
        e_k and n_k.
    confirmed : bool array
        Whether a client did a task.
    min_samples : int
        Samples of the smallest task, if a client holds as many.
    max_epochs : int
        No client does more. Own epochs beyond it are not asked for.
    whole : bool
        Whether clients use all their samples whatever the task is.
    """

    costs: Coefficients
    own_epochs: IntArray
    held: IntArray
    confirmed: npt.NDArray[np.bool_]
    min_samples: int
    max_epochs: int
    whole: bool = False

    @classmethod
    def of(cls, everyone: Candidates) -> Fleet:
        """Return the fleet of all learners that are known, with expected costs."""
        epochs = everyone.follows is not Follows.SAMPLES
        return cls(
            everyone.costs,
            everyone.own_epochs if epochs else np.ones_like(everyone.own_epochs),
            everyone.data,
            np.array([x.estimate is not None and x.estimate.seen > 0 for x in everyone.learners]),
            everyone.min_samples,
            everyone.max_epochs or MAX_COUNT,
            everyone.whole,
        )

    def baseline_s(self, clients: int) -> float:
        """Return the expected time of the project's own round with so many clients."""
        return expected_longest(self.costs.time_s(self._own, self.held), clients)

    def round_s(self, clients: int) -> float:
        """Return T."""
        longest = self.baseline_s(clients)
        wanted, low, high = float((self._own * self.held).sum()), 0.0, float(self._own_s.max())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = self._work(middle).sum() >= wanted
            low, high = (low, middle) if enough else (middle, high)
        return min(longest, max(high, self._one_s()))

    def epochs_for_own_work(self, time_s: float) -> int:
        """Return the fewest epochs per client with which all together do the project's own work within T."""
        fits = np.clip(np.floor(self._epochs(time_s)), 0, self.max_epochs)
        wanted = float((self._own * self.held).sum())
        most = int(fits.max(initial=1))
        enough = (m for m in count(1) if m >= most or (np.minimum(fits, m) * self.held).sum() >= wanted)
        return max(next(enough), 1)

    @property
    def _own(self) -> IntArray:
        return np.minimum(self.own_epochs, self.max_epochs)

    @property
    def _own_s(self) -> FloatArray:
        return self.costs.time_s(self._own, self.held)

    def _one_s(self) -> float:
        """Return T_one."""
        smallest = self.held if self.whole else np.minimum(self.held, self.min_samples)
        one_s = self.costs.time_s(np.ones_like(self.held), smallest)
        known = self.confirmed
        if known.all() or not known.any():
            return float(one_s.max())
        return float(max(one_s[known].max(), min(one_s[~known].max(), self._own_s[known].max())))

    def _epochs(self, time_s: float) -> FloatArray:
        """Return how many epochs on all its samples each client does in a time."""
        epochs: FloatArray = (time_s - self.costs.c0 - self.costs.c1 * self.held) / (
            self.costs.c2 * self.held
        )
        return epochs

    def _work(self, time_s: float) -> FloatArray:
        """Return how many samples each client passes in a time."""
        epochs = np.clip(np.floor(self._epochs(time_s)), 0, self.max_epochs)
        left = (time_s - self.costs.c0) / (self.costs.c2 + self.costs.c1)
        part = 0.0 if self.whole else np.clip(np.floor(left), 0, self.held)
        work: FloatArray = np.where(epochs > 0, epochs * self.held, part)
        return work


def expected_longest(times: FloatArray, clients: int) -> float:
    """Return the expected largest of some of these times, drawn without replacement.

    Parameters
    ----------
    times : float array
        Of all.
    clients : int
        How many are drawn; as many as there are, or more: the largest.
    """
    times, rank = np.sort(times), np.arange(1, len(times) + 1)
    if clients >= len(times):
        return float(times[-1])
    # The chance that all are among the first i is (i choose clients) over (n choose clients).
    below = np.cumprod(np.append(1.0, np.maximum(1 - clients / rank[:0:-1], 0.0)))[::-1]
    return float(times @ np.diff(below, prepend=0.0))
