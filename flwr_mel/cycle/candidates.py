"""The learners of a cycle that get a plan, as arrays with the limits of their allocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median_high

import numpy as np

from flwr_mel._validate import MAX_COUNT, IntArray
from flwr_mel.allocation import AllocationProblem
from flwr_mel.costs import Coefficients
from flwr_mel.cycle.learner import Learner
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.population import Follows, Population

#: Most epochs, as a multiple of the project's own.
MOST_EPOCHS = 5
#: Least samples where T is derived: a mini-batch, and more than batch normalisation needs.
_LEAST_SAMPLES = 32


def held(x: Learner, options: Options) -> int | None:
    """Return n_k as far as it is known and allowed to count.

    Parameters
    ----------
    x : Learner
        Sampled for this cycle.
    options : Options
        What the user asks for.
    """
    if options.shards is not None or x.data is None:
        return None
    return min(x.data, options.robust.max_samples or MAX_COUNT)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Learners to plan for.

    Parameters
    ----------
    learners : list of Learner
        In their order.
    follows : Follows
        Which parts of their tasks they follow.
    costs : Coefficients
        To plan with; where epochs are not followed, an epoch is the project's own number of epochs.
    energy_limit_j : list of float or None
        E_k; None also where no energy costs are known.
    data : int array
        The most samples per learner: what it holds, within the bounds of `Robust` if it can use fewer.
    own_epochs : int array
        The project's own epochs.
    min_samples : int
        d_l.
    max_epochs : int, optional
        The most epochs; None: no limit.
    """

    learners: list[Learner]
    follows: Follows
    costs: Coefficients
    energy_limit_j: list[float | None]
    data: IntArray
    own_epochs: IntArray
    min_samples: int
    max_epochs: int | None

    @classmethod
    def of(
        cls, learners: Sequence[Learner], options: Options, population: Population, *, expected: bool = False
    ) -> Candidates:
        """Collect what is known about learners; one without an estimate counts as slow as the slowest.

        `expected` costs are without the margins of the plan: a T that is derived must not grow with them.
        """
        follows = population.follows
        whole = follows is Follows.EPOCHS
        most = MAX_COUNT if whole else options.robust.max_samples or MAX_COUNT
        usual = (population.held or MAX_COUNT) if any(x.estimate is None for x in learners) else MAX_COUNT
        data = np.array([min(usual if x.data is None else x.data, most) for x in learners], dtype=np.int64)
        own = [x.behaviour.own_epochs or population.own_epochs or 1 for x in learners]
        unit = np.array(own if follows is Follows.SAMPLES else [1] * len(own))
        kinds = {x.profile.kind for x in learners if x.estimate is None}
        instead = {kind: population.slowest(kind) for kind in kinds}
        known = [x.estimate or instead[x.profile.kind] for x in learners]
        rows = [e.costs(expected=expected) for e in known if e is not None]
        c2, c1, c0, g2, g1, g0 = np.array(rows, dtype=np.float64).T
        limits = [x.profile.energy_limit_j for x in learners]
        return cls(
            learners=list(learners),
            follows=follows,
            costs=Coefficients(c2 * unit, c1, c0, g2 * unit, g1, g0),
            energy_limit_j=limits,
            data=data,
            own_epochs=np.array(own, dtype=np.int64),
            min_samples=1 if whole else _min_samples(options, data),
            max_epochs=_max_epochs(options, own, population),
        )

    def take(self, index: Sequence[int] | IntArray) -> Candidates:
        """Return some of the learners."""
        at = np.asarray(index, dtype=np.int64)
        return replace(
            self,
            learners=[self.learners[k] for k in at],
            costs=self.costs.take(at),
            energy_limit_j=[self.energy_limit_j[k] for k in at],
            data=self.data[at],
            own_epochs=self.own_epochs[at],
        )

    @property
    def whole(self) -> bool:
        """Whether clients use all their samples whatever their tasks are."""
        return self.follows is Follows.EPOCHS

    def problem(self, options: Options, time_s: float, total: int) -> AllocationProblem:
        """Return the allocation problem of these learners.

        Parameters
        ----------
        options : Options
            The staleness cap.
        time_s : float
            T.
        total : int
            d.
        """
        return AllocationProblem(
            self.costs,
            time_s,
            self.energy_limit_j,
            total_samples=total,
            staleness=MAX_COUNT if options.staleness is None else options.staleness,
            min_samples=self.min_samples,
            max_samples=self.data,
            max_epochs=self.max_epochs,
        )


def _min_samples(options: Options, data: IntArray) -> int:
    """Return d_l."""
    if options.min_samples is not None or options.best:
        return options.least_samples
    return 1 if options.time_s is not None else min(_LEAST_SAMPLES, int(data.min()))


def _max_epochs(options: Options, own: Sequence[int], population: Population) -> int | None:
    """Return the most epochs: as given, or five times the project's own if it has such a number."""
    if population.follows is Follows.SAMPLES:
        return 1
    if options.max_epochs is not None:
        return options.max_epochs
    return min(MOST_EPOCHS * median_high(own), MAX_COUNT) if population.own_epochs is not None else None
