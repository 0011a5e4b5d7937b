"""Which learners can be planned for, and these as arrays with the limits of their allocation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median_high

import numpy as np

from flwr_mel._validate import MAX_COUNT, FloatArray, IntArray
from flwr_mel.allocation import AllocationProblem
from flwr_mel.costs import Coefficients
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.state import Learner
from flwr_mel.solvers.rate import LEAST

#: Most epochs, as a multiple of the project's own.
_MOST_EPOCHS = 5
#: Least samples where T is derived: a mini-batch, and more than batch normalisation needs.
_LEAST_SAMPLES = 32
#: Share of T that a learner with its smallest task has for more epochs.
_SPARE = 0.1
_NEEDS_WORKLOAD = (
    "it reports physical values (clock, link, power), so MelStrategy needs workload=, e.g. "
    "Workload.mlp((784, 300, 10)), to turn them into time and energy"
)


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


def unable(x: Learner, options: Options) -> str:
    """Return why a learner cannot be given work; "" if it can.

    Parameters
    ----------
    x : Learner
        Sampled for this cycle.
    options : Options
        What the user asks for.
    """
    private = options.shards is not None and not options.shards.over_tls
    described = x.capability is not None and x.capability.device is not None
    reasons = (
        (x.data == 0, "it declares that it has no samples"),
        (private and not x.answered, "it has not answered, so it may be outside the simulation"),
        (private and not x.modded, "it has no mel_mod, so it may be outside the simulation"),
        (x.estimate is not None, ""),
        (described and options.workload is None, _NEEDS_WORKLOAD),
        (not x.answered, x.problem or "it has not answered yet"),
        (not x.modded, x.problem or "it has no mel_mod"),
        (x.problem.startswith("its capability was rejected"), x.problem),
    )
    return next((reason for applies, reason in reasons if applies), "")


def unmeasured(x: Learner, options: Options) -> bool:
    """Whether a learner has to be measured before it can be planned for.

    Parameters
    ----------
    x : Learner
        Sampled for this cycle.
    options : Options
        What the user asks for.
    """
    if options.shards is not None:
        return x.estimate is None
    unknown_data = options.total_samples is None and x.data is None
    # T is also derived for apps that use all their samples whatever the task is: "best" plans few samples.
    derived = options.cycle_time_s is None or (options.best and x.chooses is False)
    return x.estimate is None or unknown_data or (derived and x.baseline_s is None)


class Follows(Enum):
    """Which parts of their tasks the project's clients follow."""

    BOTH = "epochs and samples"
    EPOCHS = "epochs"
    SAMPLES = "samples"
    NOTHING = "nothing"

    @classmethod
    def of(cls, learners: Collection[Learner], options: Options) -> Follows:
        """Read it off most reports: one app runs on all clients. Without any, clients follow everything."""
        samples = options.shards is not None or _most(x.chooses for x in learners)
        if _most(x.reads for x in learners):
            return cls.BOTH if samples else cls.EPOCHS
        return cls.SAMPLES if samples else cls.NOTHING


def _most(reports: Iterable[bool | None]) -> bool:
    """Whether most of those that are known are true, or none is known."""
    known = [x for x in reports if x is not None]
    return 2 * sum(known) > len(known) or not known


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
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
        E_k.
    data : int array
        The most samples per learner: what it holds, within the bounds of `Robust`.
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
    def of(cls, learners: Sequence[Learner], options: Options, follows: Follows) -> Fleet:
        """Collect what is known about learners with an estimate."""
        most = options.robust.max_samples or MAX_COUNT
        data = np.array([most if x.data is None else min(x.data, most) for x in learners], dtype=np.int64)
        own = np.array([x.own_epochs or 1 for x in learners], dtype=np.int64)
        return cls(
            learners=list(learners),
            follows=follows,
            costs=_costs(learners, follows),
            energy_limit_j=[None if x.capability is None else x.capability.energy_limit_j for x in learners],
            data=data,
            own_epochs=own,
            min_samples=_min_samples(options, data, follows),
            max_epochs=_max_epochs(options, learners, follows),
        )

    def take(self, index: Sequence[int] | IntArray) -> Fleet:
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

    def expected(self) -> Coefficients:
        """Return the expected costs, without the margins that tasks are planned with."""
        return _costs(self.learners, self.follows, expected=True)

    @property
    def epochs_followed(self) -> bool:
        """Whether clients follow their epochs."""
        return self.follows is not Follows.SAMPLES

    @property
    def smallest(self) -> IntArray:
        """Samples of each learner's smallest task."""
        whole = self.follows is Follows.EPOCHS
        return self.data if whole else np.minimum(self.min_samples, self.data)

    def least_s(self) -> FloatArray:
        """Return the time of each learner's smallest task."""
        return self.costs.time_s(1, self.smallest)

    def problem(self, options: Options, time_s: float, total: int) -> AllocationProblem:
        """Return the allocation problem of these learners.

        Parameters
        ----------
        options : Options
            The staleness cap, and whether T was given.
        time_s : float
            T.
        total : int
            d.
        """
        return AllocationProblem(
            self.costs,
            self._deadlines(options, time_s),
            self.energy_limit_j,
            total_samples=max(total, 1),
            staleness=MAX_COUNT if options.staleness is None else options.staleness,
            min_samples=self.min_samples,
            max_samples=self.data,
            max_epochs=self.max_epochs,
        )

    def _deadlines(self, options: Options, time_s: float) -> float | FloatArray:
        """Return T, longer for a learner whose smallest task would otherwise not fit.

        A T that was derived skips no learner. A T that was given skips one only if its smallest task does not
        fit by the costs that it declared or started with: what was learned since, such as a missed reply,
        makes its task smaller but never removes it. It has some time to spare for more than one epoch, or a
        staleness cap would hold all others back.
        """
        needed = self.least_s()
        if (needed <= time_s).all():
            return time_s
        if options.time_s is None:
            return np.maximum(needed, time_s)
        c2, c1, c0 = np.array([x.estimate.base[:3] for x in self.learners if x.estimate is not None]).T
        fits = (c2 + c1) * self.smallest + c0 <= time_s
        return np.where(fits & (needed > time_s), needed + _SPARE * time_s, time_s)


def _costs(learners: Sequence[Learner], follows: Follows, *, expected: bool = False) -> Coefficients:
    """Return the estimated costs; where epochs are not followed, an epoch is the project's own epochs."""
    rows = [x.estimate.costs(expected=expected) for x in learners if x.estimate is not None]
    c2, c1, c0, g2, g1, g0 = np.array(rows, dtype=np.float64).T
    unit = np.array([x.own_epochs or 1 if follows is Follows.SAMPLES else 1 for x in learners])
    return Coefficients(c2 * unit, c1, c0, g2 * unit, g1, g0)


def _min_samples(options: Options, data: IntArray, follows: Follows) -> int:
    """Return d_l."""
    if follows is Follows.EPOCHS:
        return 1
    if options.min_samples is not None:
        return options.min_samples
    if options.best:
        return LEAST
    return 1 if options.time_s is not None else min(_LEAST_SAMPLES, int(data.min()))


def _max_epochs(options: Options, learners: Sequence[Learner], follows: Follows) -> int | None:
    """Return the most epochs: as given, or five times the project's own if it has such a number."""
    if follows is Follows.SAMPLES:
        return 1
    if options.max_epochs is not None:
        return options.max_epochs
    own = [x.own_epochs for x in learners if x.own_epochs is not None]
    return min(_MOST_EPOCHS * median_high(own), MAX_COUNT) if own else None
