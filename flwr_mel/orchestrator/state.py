"""What the orchestrator knows and hands out, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr_mel._validate import IntArray
from flwr_mel.learning import Estimate
from flwr_mel.orchestrator.capability import Capability, Costs


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What one learner is to do in one cycle.

    Parameters
    ----------
    node, learner : str
        Flower's id and the learner's own name.
    cycle, epochs, samples : int
        The task.
    seed : int
        For the learner's own randomness: one seed, one result.
    shard : int array, optional
        Rows of the server's dataset to ship (parallelized learning).
    """

    node: str
    learner: str
    cycle: int
    epochs: int
    samples: int
    seed: int
    shard: IntArray | None = None


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """Tasks in the order of the learners' names, and who has none and is to be asked again."""

    cycle: int
    tasks: tuple[Task, ...]
    ask_again: tuple[str, ...]


@dataclass(slots=True)
class LearnerState:
    """What is known of one learner.

    Parameters
    ----------
    node : str
        Flower's node id.
    name : str
        The learner's own name; its node id until it gives one.
    capability : Capability, optional
        What it said last, or the default profile.
    costs : tuple of six floats, optional
        The capability in coefficients; None until they are derived.
    doubt : str
        Why it cannot be given work.
    slowdown : float
        Its times are taken for this much longer than it says, because it was late. Without learning only.
    declared : bool
        Whether the costs are its own words, not a default.
    estimate : Estimate, optional
        What was learnt of it.
    """

    node: str
    name: str = ""
    capability: Capability | None = None
    costs: Costs | None = None
    doubt: str = "has not been asked yet"
    slowdown: float = 1.0
    declared: bool = False
    estimate: Estimate | None = None

    def __post_init__(self) -> None:
        self.name = self.name or self.node

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Numbers before words, so that 2 comes before 10; node ids differ from run to run and come last."""
        if self.name.isascii() and self.name.isdecimal() and len(self.name) < 19:
            return (0, int(self.name), "", self.node)
        return (1, 0, self.name, self.node)


@dataclass(frozen=True, slots=True)
class Stopped:
    """That training stopped, after which cycle and why."""

    cycle: int
    reason: str


@dataclass(slots=True)
class State:
    """Everything that a cycle leaves to the next."""

    learners: dict[str, LearnerState] = field(default_factory=dict)
    resumed_after: int = 0
    cycles_done: int = 0
    clock_s: float = 0.0
    energy_j: float = 0.0
    best: float | None = None
    since_best: int = 0
    stopped: Stopped | None = None
    #: Slowdowns of learners, by name, from before an interruption; taken over when they are met again.
    remembered: dict[str, float] = field(default_factory=dict)
    #: Their estimates, likewise.
    estimates: dict[str, Estimate] = field(default_factory=dict)

    def snapshot(self) -> dict[str, Any]:
        """Return what a later run needs to go on: plain types, for a checkpoint.

        Capabilities are not in it: they are asked for again. Nor is a generator: all randomness follows
        from the seed and the cycle.
        """
        slow = {x.name: x.slowdown for x in self.learners.values() if x.slowdown != 1.0}
        learnt = {x.name: x.estimate for x in self.learners.values() if x.estimate is not None}
        return {
            "cycle": self.cycles_done,
            "clock_s": self.clock_s,
            "energy_j": self.energy_j,
            "best": self.best,
            "since_best": self.since_best,
            "slowdown": {**self.remembered, **slow},
            "estimates": {name: x.as_dict() for name, x in {**self.estimates, **learnt}.items()},
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on where a snapshot was taken.

        Parameters
        ----------
        snapshot : mapping
            From `snapshot`; missing entries keep their initial values.
        """
        self.cycles_done = self.resumed_after = int(snapshot.get("cycle", 0))
        self.clock_s = float(snapshot.get("clock_s", 0.0))
        self.energy_j = float(snapshot.get("energy_j", 0.0))
        self.best = snapshot.get("best")
        self.since_best = int(snapshot.get("since_best", 0))
        self.remembered = dict(snapshot.get("slowdown", {}))
        estimates = snapshot.get("estimates", {})
        self.estimates = {str(name): Estimate.from_dict(x) for name, x in estimates.items()}
