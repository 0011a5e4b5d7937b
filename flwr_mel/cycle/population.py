"""What the measured learners have in common: it stands for learners that are not known yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median_high

from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.learner import Learner
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.state import State


class Follows(Enum):
    """Which parts of their tasks the project's clients follow."""

    BOTH = "epochs and samples"
    EPOCHS = "epochs"
    SAMPLES = "samples"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Learners whose costs are known, as a sample of all.

    Parameters
    ----------
    learners : list of Learner
        At most about a thousand.
    follows : Follows
        Which parts of their tasks clients follow. One app runs on all of them, so most reports decide.
    stops : bool
        Whether most of them stop when their seconds are over.
    measured : bool
        Whether any of them did a task.
    own_epochs, held : int, optional
        The middle of what they report.
    exchange_s : float
        The longest time that an exchange takes beside the work.
    """

    learners: list[Learner]
    follows: Follows
    stops: bool
    measured: bool
    own_epochs: int | None
    held: int | None
    exchange_s: float

    @classmethod
    def of(cls, state: State, options: Options) -> Population:
        """Look at the learners of a state; without any report, clients follow everything."""
        some = state.sample()
        samples = options.shards is not None or _most(x.behaviour.chooses for x in some)
        if _most(x.behaviour.reads for x in some):
            follows = Follows.BOTH if samples else Follows.EPOCHS
        else:
            follows = Follows.SAMPLES if samples else Follows.NOTHING
        own = [x.behaviour.own_epochs for x in some if x.behaviour.own_epochs is not None]
        data = [x.data for x in some if x.data]
        known = [x for x in some if x.estimate is not None and x.data]
        return cls(
            learners=known,
            follows=follows,
            stops=_most((x.behaviour.stops for x in some), unknown=False),
            measured=any(_estimate(x).seen for x in known),
            own_epochs=median_high(own) if own else None,
            held=median_high(data) if data else None,
            exchange_s=max((_estimate(x).exchange_s for x in known), default=0.0),
        )

    def slowest(self, kind: str) -> Estimate | None:
        """Return the costs of the slowest learner, of a class if there are any, for the usual work."""
        same = [x for x in self.learners if kind and x.profile.kind == kind] or self.learners
        held = self.held or 1
        work = (self.own_epochs or 1) * held
        return max(map(_estimate, same), key=lambda e: e.expected(work, held), default=None)


def _estimate(x: Learner) -> Estimate:
    """Return the estimate of a learner that has one."""
    assert x.estimate is not None
    return x.estimate


def _most(reports: Iterable[bool | None], *, unknown: bool = True) -> bool:
    """Whether most of those that are known are true."""
    known: Sequence[bool] = [x for x in reports if x is not None]
    return 2 * sum(known) > len(known) if known else unknown
