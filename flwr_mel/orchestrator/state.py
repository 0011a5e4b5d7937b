"""What the orchestrator knows and hands out, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from flwr_mel._validate import IntArray, number
from flwr_mel.devices import Capability, Costs
from flwr_mel.learning import Estimate
from flwr_mel.orchestrator.doubts import Doubt, Why
from flwr_mel.orchestrator.own_work import OwnWork
from flwr_mel.records import Echo, Standing

#: How many learners that are gone are remembered at least.
MOST_ABSENT = 1000


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
    span : int
        Cycles that it may take.
    free : bool
        The project's own round, to be measured: there are neither epochs nor samples.
    modded : bool
        Whether the learner's mod lays the epochs where its app reads them.
    """

    node: str
    learner: str
    cycle: int
    epochs: int
    samples: int
    seed: int
    shard: IntArray | None = None
    span: int = 1
    free: bool = False
    modded: bool = True


@dataclass(frozen=True, slots=True)
class Flight:
    """A task in progress, from sending it to using what came back.

    Parameters
    ----------
    node, learner : str
        Whose it is. The node is "" after an interruption: then the task is sent again.
    cycle : int
        In which it was given, with that cycle's model.
    epochs, samples, span : int
        The task, and how many cycles it may take.
    shard_at : int
        Where its shard begins in the cycle's shuffle.
    time_s, ends_s : float
        Seconds that it was planned to take, and when that is over on the virtual clock.
    """

    node: str
    learner: str
    cycle: int
    epochs: int
    samples: int
    span: int
    shard_at: int
    time_s: float
    ends_s: float


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """Tasks in the order of the learners' names, and who has none and is to be asked again.

    A task of an earlier cycle is one that was lost on the way: it is sent again with that cycle's model.
    """

    cycle: int
    tasks: tuple[Task, ...]
    ask_again: tuple[str, ...]


@dataclass(frozen=True, slots=True)
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
    doubt : Doubt, optional
        Why it cannot be given work.
    heard, waited : bool
        Whether it has answered a question, or was waited for in vain; whether a cycle has waited for it.
    declared : bool
        Whether the costs are its own words, not a default.
    estimate : Estimate, optional
        What was learnt of it. It is copied before it is changed.
    idle : int
        Cycles without work since its last task.
    simulated : bool
        Whether it says that it runs in a simulation.
    part : tuple of two floats and an int
        Its data's shares in the model and in all data, summed over this many cycles.
    modded : bool
        Whether our mod speaks for it.
    own : OwnWork, optional
        How it works by itself, once it was seen.
    standing : tuple of Standing and float, optional
        What it is doing and since when, where a real clock runs.
    problem : str
        What it last said is wrong with it.
    flower_s : float, optional
        What its first answer took beside its own code, by the server's clock.
    """

    node: str
    name: str = ""
    capability: Capability | None = None
    costs: Costs | None = None
    doubt: Doubt | None = Doubt(Why.UNHEARD)  # noqa: RUF009 - a value
    heard: bool = False
    waited: bool = False
    declared: bool = False
    estimate: Estimate | None = None
    idle: int = 0
    simulated: bool = False
    part: tuple[float, float, int] = (0.0, 0.0, 0)
    modded: bool = False
    own: OwnWork | None = None
    standing: tuple[Standing, float] | None = None
    problem: str = ""
    flower_s: float | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.node)

    @property
    def known(self) -> bool:
        """Whether there is anything to plan with."""
        return self.costs is not None or (self.capability is not None and self.capability.able)

    @property
    def measured(self) -> bool:
        """Whether its costs are not its own words but what it took."""
        return self.estimate is not None and self.estimate.base is not None

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Numbers before words, so that 2 comes before 10; node ids differ from run to run and come last."""
        if self.name.isascii() and self.name.isdecimal() and len(self.name) < 19:
            return (0, int(self.name), "", self.node)
        return (1, 0, self.name, self.node)

    def inherit(self, old: LearnerState) -> LearnerState:
        """Return it with what is known of the same learner from the time when it had another node id.

        Parameters
        ----------
        old : LearnerState
            Under the same name.
        """
        heir = replace(
            self,
            declared=self.declared or old.declared,
            estimate=old.estimate or self.estimate,
            idle=old.idle,
            part=max(old.part, self.part, key=lambda part: part[2]),
            own=old.own or self.own,
            # What was learnt of its link was learnt beside this.
            flower_s=old.flower_s or self.flower_s,
        )
        if old.capability is None:
            return heir
        return replace(heir, capability=old.capability, costs=old.costs, doubt=old.doubt)


@dataclass(frozen=True, slots=True)
class Stopped:
    """That training stopped, after which cycle and why."""

    cycle: int
    reason: str


@dataclass(slots=True)
class State:
    """Everything that a cycle leaves to the next. Functions of the cycle take one and return another.

    Parameters
    ----------
    learners : dict of node id to LearnerState
        Who is there. Node ids of those who are gone are forgotten.
    absent : dict of name to LearnerState
        What is known of learners that are gone, or that have not been met again since an interruption; the
        last to leave comes last. At most `MOST_ABSENT`, or as many as are there if those are more.
    connected : frozenset of str, optional
        Node ids that are there, whether or not they are given work; None: not known.
    holders : dict of name to node id
        Who goes by which name.
    warned : set of str
        Node ids that were told that their name is another's.
    flights : dict of name to Flight
        Whose tasks are in progress, if late updates count.
    arrived : dict of name to Flight
        Whose updates are back from an earlier cycle's task and not used yet.
    echoes : tuple of Echo
        Updates that were used and count again in the coming cycles.
    told : set of str
        What people were told once and need not be told again.
    notes : list of str
        What people should know; goes on the next record.
    remarked : set of str
        Kinds of remarks that were made: each is made once.
    cycle_time_s : float, optional
        T of the last cycle, where it is not given.
    asked_s : tuple of float
        What the rule for it gave in the last cycles.
    resumed_after, cycles_done : int
        The cycle that this process began after, and the last one that is done.
    clock_s, energy_j : float
        Virtual time and energy since the start.
    lasted_s : float, optional
        Virtual time of the last cycle.
    best : float, optional
        The best value of the metric that stopping looks at.
    since_best : int
        Cycles since then.
    stopped : Stopped, optional
        Once a criterion is met.
    trained : bool
        Whether anybody's update was ever used.
    names : mapping of node id to name, optional
        Who is who by the operator's word; None: by the learners' own.
    """

    learners: dict[str, LearnerState] = field(default_factory=dict)
    absent: dict[str, LearnerState] = field(default_factory=dict)
    connected: frozenset[str] | None = None
    holders: dict[str, str] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)
    flights: dict[str, Flight] = field(default_factory=dict)
    arrived: dict[str, Flight] = field(default_factory=dict)
    echoes: tuple[Echo, ...] = ()
    told: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    remarked: set[str] = field(default_factory=set)
    cycle_time_s: float | None = None
    asked_s: tuple[float, ...] = ()
    resumed_after: int = 0
    cycles_done: int = 0
    clock_s: float = 0.0
    energy_j: float = 0.0
    lasted_s: float | None = None
    best: float | None = None
    since_best: int = 0
    stopped: Stopped | None = None
    trained: bool = False
    names: Mapping[str, str] | None = None

    @property
    def virtual(self) -> bool:
        """Whether most learners run in a simulation, where tasks take their time on the virtual clock."""
        return 2 * sum(x.simulated for x in self.learners.values()) > len(self.learners)

    def copy(self) -> State:
        """Return one that can be changed and leaves this one as it is."""
        return replace(
            self,
            learners=dict(self.learners),
            absent=dict(self.absent),
            holders=dict(self.holders),
            warned=set(self.warned),
            flights=dict(self.flights),
            arrived=dict(self.arrived),
            told=set(self.told),
            notes=list(self.notes),
            remarked=set(self.remarked),
        )

    def snapshot(self) -> dict[str, Any]:
        """Return what a later run needs to go on: plain types, for a checkpoint.

        Capabilities are not in it: they are asked for again. Nor is a generator: all randomness follows
        from the seed and the cycle.
        """
        everybody = self.absent | {x.name: x for x in self.learners.values()}
        return {
            "cycle": self.cycles_done,
            "clock_s": self.clock_s,
            "energy_j": self.energy_j,
            "lasted_s": self.lasted_s,
            "best": self.best,
            "since_best": self.since_best,
            "estimates": {name: x.estimate.as_dict() for name, x in everybody.items() if x.estimate},
            "idle": {name: x.idle for name, x in everybody.items() if x.idle},
            "flights": [asdict(x) | {"node": ""} for x in (*self.arrived.values(), *self.flights.values())],
            "echoes": [asdict(x) for x in self.echoes],
            "own_work": {name: x.own.as_dict() for name, x in everybody.items() if x.own},
            "cycle_time_s": self.cycle_time_s,
            "asked_s": list(self.asked_s),
        }

    @classmethod
    def restored(cls, snapshot: Mapping[str, Any], met: State | None = None) -> State:
        """Return the state to go on with where a snapshot was taken.

        Parameters
        ----------
        snapshot : mapping
            From `snapshot`; missing entries have their initial values.
        met : State, optional
            Learners that have been heard already, as of a process that asked before it went on.
        """
        done = int(snapshot.get("cycle", 0))
        learnt = {str(n): Estimate.from_dict(x) for n, x in snapshot.get("estimates", {}).items()}
        own = {str(n): OwnWork.from_dict(x) for n, x in snapshot.get("own_work", {}).items()}
        time_s = snapshot.get("cycle_time_s")
        idle = {str(name): int(n) for name, n in snapshot.get("idle", {}).items()}
        absent = {
            name: LearnerState(name, estimate=learnt.get(name), idle=idle.get(name, 0), own=own.get(name))
            for name in {**learnt, **idle, **own}
        }
        here = State() if met is None else met.copy()
        for node, x in here.learners.items():
            here.learners[node] = x.inherit(absent.pop(x.name)) if x.name in absent else x
        return replace(
            here,
            absent=absent,
            flights={x["learner"]: Flight(**x) for x in snapshot.get("flights", ())},
            arrived={},
            echoes=tuple(Echo(**x) for x in snapshot.get("echoes", ())),
            stopped=None,
            trained=done > 0,
            cycle_time_s=None if time_s is None else number("cycle_time_s", time_s, above=0),
            asked_s=tuple(number("asked_s", x, least=0) for x in snapshot.get("asked_s", ())),
            resumed_after=done,
            cycles_done=done,
            clock_s=float(snapshot.get("clock_s", 0.0)),
            energy_j=float(snapshot.get("energy_j", 0.0)),
            lasted_s=snapshot.get("lasted_s"),
            best=snapshot.get("best"),
            since_best=int(snapshot.get("since_best", 0)),
        )
