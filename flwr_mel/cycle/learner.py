"""What the server knows about one client, and how it knows it.

`Identity` follows answers, `Profile` (in `flwr_mel.cycle.reports`) what the client declared last, `Behaviour`
counts of its latest tasks, `Estimate` the times of its replies, and `Patience` replies that did not come.
Each value has its own `after`: the newest evidence wins. An error is no evidence, and silence is evidence
about time only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from flwr_mel import wire
from flwr_mel._validate import complain
from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.reports import Profile, Report, Words, label_of, partition_of, problem_of, whole

#: Counted epochs within this factor of the task's are the task's. One more may be an evaluation.
_SAME_EPOCHS = 1.5
#: A client that did other work than its task does its own work that often before it gets a task again.
_OWN_TASKS = 2
#: Most rounds between two tasks of a client that does not reply in time.
_LONGEST_PAUSE = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """Which client it is.

    Parameters
    ----------
    key, node, label : str
        Its identity (node id, or partition id in a simulation), Flower's node id now, and a name for logs.
    answered, modded, simulated, virtual : bool
        Whether it ever answered, has a mod, runs in Flower's engine, and has a virtual clock.
    problem : str
        What is wrong with it, in its own words or ours.
    """

    key: str
    node: str
    label: str
    answered: bool = False
    modded: bool = False
    simulated: bool = False
    virtual: bool = False
    problem: str = ""

    def after(self, words: Words) -> Identity:
        """Return the identity after an answer or a reply.

        Parameters
        ----------
        words : mapping
            What the client sent. Without a mod's words it only shows that the client is there.
        """
        label, partition = label_of(words), partition_of(words)
        modded = wire.MODDED in words
        return replace(
            self,
            key=partition or self.key,
            label=label or partition or self.label,
            answered=True,
            modded=modded or self.modded,
            simulated=wire.SIMULATED in words if modded else self.simulated,
            virtual=words.get(wire.VIRTUAL) == 1 if modded else self.virtual,
            problem=problem_of(words),
        )


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the client's app does with its tasks, from reports and counts; None where it is not known.

    Parameters
    ----------
    own_epochs, held : int
        The project's own number of epochs, and the samples that the client was seen to hold.
    own_drawn : float
        Samples in all epochs of the project's own work, as counted.
    reads, chooses, stops : bool
        Whether its app reads its epochs, chooses samples through `Assignment`, and can stop in time.
    own_tasks : int
        How many more tasks are its own work, because its counted work was not that of its task.
    """

    own_epochs: int | None = None
    held: int | None = None
    own_drawn: float | None = None
    reads: bool | None = None
    chooses: bool | None = None
    stops: bool | None = None
    own_tasks: int = 0

    def after(self, report: Report, epochs: int, examples: object) -> Behaviour:
        """Return the behaviour after a task.

        Parameters
        ----------
        report : Report
            What the mod counted.
        epochs : int
            Of the task; 0: the project's own work.
        examples : object
            The number of examples that the app reports.
        """
        if report.train_s is None:  # there was no mod
            return self
        own, done = report.own_epochs or self.own_epochs, None if report.stopped else report.epochs_done
        reads = self.reads if report.read is None else report.read
        if done is not None and (report.read is False or (not epochs and (own is None or reads is False))):
            own = max(round(done), 1)
        asked = epochs if epochs and reads is not False else own
        own_tasks = max(self.own_tasks - (not epochs), 0)
        if done is not None and asked is not None:
            own_tasks = own_tasks if _same(done, asked) else _OWN_TASKS
        return Behaviour(
            own_epochs=own,
            held=report.held or self.held or report.used or whole(examples),
            own_drawn=self.own_drawn if epochs or done is None else report.drawn,
            reads=reads,
            chooses=report.used is not None,
            stops=report.stops,
            own_tasks=own_tasks,
        )


def _same(done: float, asked: float) -> bool:
    """Whether counted epochs are those that were asked for."""
    return asked / _SAME_EPOCHS <= done <= max(asked * _SAME_EPOCHS, asked + 1)


@dataclass(frozen=True, slots=True)
class Patience:
    """When a client that did not reply in time is asked again: after 2, 4, 8 and 16 rounds.

    Parameters
    ----------
    tries : int
        Replies in a row that did not come, or tasks in a row that did not fit.
    until : int
        The round in which it is asked again.
    slow : bool
        Whether its estimate is the reason. Otherwise it was silent, and any sign of life ends the wait.
    """

    tries: int = 0
    until: int = 0
    slow: bool = False

    def after(self, cycle: int, *, slow: bool) -> Patience:
        """Return the patience after a reply that did not come, or a task that did not fit."""
        tries = self.tries + 1
        return Patience(tries, cycle + 1 + min(2**tries, _LONGEST_PAUSE), slow)

    def heard(self) -> Patience:
        """Return the patience after a sign of life, which is too little after a second missed reply."""
        return self if self.slow or self.tries > 1 else replace(self, until=0)


@dataclass(frozen=True, slots=True)
class Learner:
    """Everything that is known about one client."""

    identity: Identity
    profile: Profile = field(default_factory=Profile)
    behaviour: Behaviour = field(default_factory=Behaviour)
    estimate: Estimate | None = None
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def new(cls, node: str) -> Learner:
        """Return a client of which only the node id is known."""
        return cls(Identity(node, node, node))

    @property
    def key(self) -> str:
        """Its identity."""
        return self.identity.key

    @property
    def label(self) -> str:
        """Its name in logs."""
        return self.identity.label

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Numbers before words, so that 2 comes before 10; node ids differ from run to run and come last."""
        label = self.identity.label
        if label.isascii() and label.isdecimal() and len(label) < 19:
            return (0, int(label), "", self.key)
        return (1, 0, label, self.key)

    @property
    def name(self) -> str:
        """What seeds are drawn for: the label in a simulation, where it is unique, otherwise the identity."""
        return self.identity.label if self.identity.simulated else self.identity.key

    @property
    def data(self) -> int | None:
        """Samples that it declares or was seen to hold."""
        declared = self.profile.max_samples
        return self.behaviour.held if declared is None else declared

    @property
    def own_work(self) -> float | None:
        """Samples in all epochs of the project's own work, from its epochs or as counted.

        The count includes an evaluation. Of an app that was repaired since it is out of date.
        """
        drawn, own = self.behaviour.own_drawn, self.behaviour.own_epochs or 1
        if self.data is None or self.behaviour.own_tasks:
            return drawn
        return drawn if drawn and _same(drawn / self.data, own) else own * self.data

    @property
    def own_trained(self) -> float | None:
        """The project's own work in the unit of the estimate, without an evaluation."""
        work = self.own_work
        if work is None or self.data is None or self.behaviour.own_tasks:
            return work
        return min(work, (self.behaviour.own_epochs or 1) * self.data)

    @property
    def own_s(self) -> float | None:
        """Expected time of the project's own work."""
        work = self.own_trained
        if self.estimate is None or work is None or self.data is None:
            return None
        return self.estimate.expected(work, self.data)

    @property
    def on_model_time(self) -> bool:
        """Whether its times follow from declared costs in a simulation, without a clock."""
        return self.identity.simulated and self.profile.costs is not None

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for a checkpoint. Costs and limits hold until the client answers again."""
        profile = self.profile
        return {
            "label": self.label,
            "costs": None if profile.costs is None else list(profile.costs),
            "limits": [profile.energy_limit_j, profile.max_samples],
            "behaviour": asdict(self.behaviour),
            "estimate": None if self.estimate is None else self.estimate.as_dict(),
            "patience": asdict(self.patience),
        }

    @classmethod
    def from_dict(cls, key: str, data: Mapping[str, Any]) -> Learner:
        """Read back what `as_dict` returned; raise an error if it cannot be that."""
        energy_limit_j, max_samples = data["limits"]
        costs = data["costs"]
        if costs is not None and len(costs) != 6:
            raise complain("costs", "six numbers", costs)
        return cls(
            Identity(key, key, str(data["label"])),
            Profile(
                None if costs is None else tuple(map(float, costs)),  # type: ignore[arg-type]
                energy_limit_j,
                max_samples,
            ),
            # An app may have been repaired since.
            replace(Behaviour(**data["behaviour"]), own_tasks=0),
            None if data["estimate"] is None else Estimate.from_dict(data["estimate"]),
            Patience(**data["patience"]),
        )
