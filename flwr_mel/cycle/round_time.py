"""The round time T when none is given.

In the project's own round, client k does e_k epochs on its n_k samples, and the round lasts as long as its
slowest client takes. The new round time is ::

    T = min(T_baseline, max(T_work, T_one))

T_baseline is what that round takes by today's estimates: one measurement would be too noisy. T_work is the
shortest time in which all clients together pass as many samples, sum_k e_k n_k, when each does as many epochs
on all its samples as fit, or one epoch on as many samples as fit. T_one is the time in which each client
finishes its smallest task. So no round is longer than the project's own, and none does less work.

T follows from the costs of the clients in this round, so that a round of fast clients is short. `Pace`
remembers recent values only to keep T steady: those near the present one count, the others belong to other
clients or to other conditions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from flwr_mel._validate import FloatArray, IntArray, complain, number
from flwr_mel.allocation.problem import Limits
from flwr_mel.costs import Coefficients
from flwr_mel.solvers.rate import BestRound, Rate, best_round

# How many rounds are remembered, and how near a value must be to count.
_ROUNDS, _NEAR = 3, 1.2
# T is frozen once it changed by less than this over those rounds, until it is too long by that factor.
_STEADY, _TOO_LONG = 1.1, 1.25
_HALVINGS = 60


def round_time(
    costs: Coefficients,
    own_epochs: IntArray,
    held: IntArray,
    *,
    min_samples: int,
    max_epochs: int,
    epochs_only: bool = False,
) -> float:
    """Return max(T_work, T_one), which is at most the time of the project's own round by these costs.

    Parameters
    ----------
    costs : Coefficients
        Of the clients in this round.
    own_epochs, held : int arrays
        e_k and n_k.
    min_samples : int
        Samples of the smallest task, if a client holds as many.
    max_epochs : int
        No client does more. Own epochs beyond it are not asked for.
    epochs_only : bool
        Whether clients use all their samples whatever the task is.
    """
    own = np.minimum(own_epochs, max_epochs)
    wanted = float((own * held).sum())
    longest = float(costs.time_s(own, held).max())
    smallest = held if epochs_only else np.minimum(held, min_samples)
    low, high = 0.0, longest
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = _work(costs, middle, held, max_epochs, epochs_only).sum() >= wanted
        low, high = (low, middle) if enough else (middle, high)
    one_s = float(costs.time_s(np.ones_like(held), smallest).max())
    return min(longest, max(high, one_s))


def _work(
    costs: Coefficients, time_s: float, held: IntArray, max_epochs: int, epochs_only: bool
) -> FloatArray:
    """Return how many samples each client passes in a time."""
    left = time_s - costs.c0
    epochs = np.clip(np.floor((left - costs.c1 * held) / (costs.c2 * held)), 0, max_epochs)
    part = 0.0 if epochs_only else np.clip(np.floor(left / (costs.c2 + costs.c1)), 0, held)
    work: FloatArray = np.where(epochs > 0, epochs * held, part)
    return work


@dataclass(frozen=True, slots=True)
class Pace:
    """What is remembered of T between rounds, the latest last.

    Parameters
    ----------
    computed : tuple of float
        Values of `round_time`.
    used : tuple of float
        Round times in force.
    """

    computed: tuple[float, ...] = ()
    used: tuple[float, ...] = ()

    def next(self, now_s: float, own_s: float = math.inf) -> tuple[float, Pace]:
        """Return T of the next round, and what to remember.

        Parameters
        ----------
        now_s : float
            `round_time` of the clients in this round.
        own_s : float
            Expected time of the project's own round with these clients. T is never longer.
        """
        now_s = number("now_s", now_s, above=0)
        computed = (*self.computed, now_s)[-_ROUNDS:]
        time_s = max(x for x in computed if now_s / _NEAR < x < now_s * _NEAR)
        frozen = len(self.used) == _ROUNDS and max(self.used) < _STEADY * min(self.used)
        if frozen and time_s <= self.used[-1] < _TOO_LONG * time_s:
            time_s = self.used[-1]
        time_s = min(time_s, own_s)
        return time_s, Pace(computed, (*self.used, time_s)[-_ROUNDS:])

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return {"computed": list(self.computed), "used": list(self.used)}

    @classmethod
    def from_dict(cls, data: object) -> Pace:
        """Read back what `as_dict` returned; refuse anything else."""
        if not isinstance(data, Mapping) or set(data) != {"computed", "used"}:
            raise complain("pace", "a mapping with computed and used", data)
        for name, values in data.items():
            if not isinstance(values, list | tuple) or len(values) > _ROUNDS:
                raise complain(f"pace.{name}", f"a list of at most {_ROUNDS} round times", values)
        computed, used = (
            tuple(number(f"pace.{name}", x, above=0) for x in data[name]) for name in ("computed", "used")
        )
        return cls(computed, used)


def best_in_pace(
    pace: Pace,
    costs: Coefficients,
    expected: Coefficients,
    energy_limit_j: Limits,
    held: IntArray,
    min_samples: int,
    rate: Rate,
    pause_s: float = 0.0,
) -> tuple[BestRound, Pace]:
    """Return the round with the fastest learning, whose T changes only as much as `Pace` allows.

    Parameters
    ----------
    pace : Pace
        What is remembered of T.
    costs, expected : Coefficients
        To plan with, and without the margin of the on-time promise: T follows from these.
    energy_limit_j, held, min_samples, rate
        As for `best_round`.
    pause_s : float
        Time between two rounds, which a longer round spreads over more work.
    """
    choose = partial(
        best_round, energy_limit_j=energy_limit_j, max_samples=held, min_samples=min_samples, objective=rate
    )
    whole = replace(expected, c0=expected.c0 + pause_s)
    time_s, pace = pace.next(choose(whole).cycle_time_s - pause_s)
    return choose(costs, cycle_time_s=time_s), pace
