"""What a cycle leaves to the next, as values: `State` with one `Learner` per client. And the `Task`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from types import MappingProxyType
from typing import Any

from flwr_mel import wire
from flwr_mel._validate import IntArray, complain, count, number
from flwr_mel.cycle.estimate import Costs, Estimate
from flwr_mel.cycle.measure import Capability, Words, label_of, partition_of, problem_of, whole
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.round_time import Pace
from flwr_mel.cycle.updates import Agreement, Sizes

#: A baseline time is corrected if later tasks suggest less than this part of it.
_CLEARLY_LESS = 0.8
#: How many pauses between rounds are remembered.
_PAUSES = 5
#: How many learners that left are remembered at least.
_MOST_ABSENT = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What one learner is to do in one cycle.

    Parameters
    ----------
    node, key : str
        Flower's node id and the learner's identity.
    cycle : int
        From 1.
    epochs, samples : int
        tau_k and d_k; 0 if the task is the project's own work.
    seed : int
        For the learner's randomness: one seed gives one result.
    baseline : bool
        Whether the learner does the project's own work, which is measured.
    shard : int array, optional
        Rows of the server's data to send (parallelized learning).
    """

    node: str
    key: str
    cycle: int
    epochs: int
    samples: int
    seed: int
    baseline: bool = False
    shard: IntArray | None = None


@dataclass(frozen=True, slots=True)
class Learner:
    """What is known about one learner.

    Parameters
    ----------
    key, node, label : str
        Its identity (node id, or partition id in a simulation), Flower's node id now, and a name for logs.
    answered, modded, simulated : bool
        Whether it answered at all, has a mod, and runs in Flower's engine.
    capability : Capability, optional
        What it declares, or the server's default.
    costs : tuple of six floats, optional
        Declared costs as coefficients.
    estimate : Estimate, optional
        Costs to plan with: declared ones, corrected by what was learned.
    own_epochs, held : int, optional
        The project's own number of epochs, and the samples the learner was seen to hold.
    baseline_s : float, optional
        Time of the project's own work, once it was measured.
    chooses, reads : bool, optional
        Whether its app chooses samples through `Assignment`, and reads its epochs; None: not known.
    fixed : bool
        Whether its time shows that it does the same work whatever its task is.
    seen : tuple of pairs
        Of the first task and the latest ones the work in samples, and the counted samples or the seconds.
    problem : str
        What is wrong with it, in its own words or ours.
    """

    key: str
    node: str
    label: str
    answered: bool = False
    modded: bool = False
    simulated: bool = False
    capability: Capability | None = None
    costs: Costs | None = None
    estimate: Estimate | None = None
    own_epochs: int | None = None
    held: int | None = None
    baseline_s: float | None = None
    chooses: bool | None = None
    reads: bool | None = None
    fixed: bool = False
    seen: tuple[tuple[float, float], ...] = ()
    problem: str = ""

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Numbers before words, so that 2 comes before 10; node ids differ from run to run and come last."""
        if self.label.isascii() and self.label.isdecimal() and len(self.label) < 19:
            return (0, int(self.label), "", self.key)
        return (1, 0, self.label, self.key)

    @property
    def name(self) -> str:
        """What seeds are drawn for: the label in a simulation, where it is unique, otherwise the identity."""
        return self.label if self.simulated else self.key

    @property
    def data(self) -> int | None:
        """Samples that it declares or was seen to hold."""
        declared = None if self.capability is None else self.capability.max_samples
        return self.held if declared is None else declared

    @property
    def own_s(self) -> float:
        """Time of the project's own work: as measured, or as later tasks suggest if that is clearly less."""
        measured = self.baseline_s or 0.0
        if self.estimate is None or self.data is None:
            return measured
        expected = self.estimate.expected(self.own_epochs or 1, self.data)
        return expected if expected < _CLEARLY_LESS * measured else measured


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Everything that one cycle leaves to the next.

    Parameters
    ----------
    learners : mapping of key to Learner
        All that are known, also absent ones.
    keys : mapping of node id to key
        Identity of the connected nodes.
    cycle : int
        The last one that is done.
    clock_s, energy_j : float
        Time and energy since the start.
    pace : Pace
        What the derived cycle time depends on, where T is not given.
    pauses_s : tuple of float
        Times from the last replies of a round to the tasks of the next, in which the server aggregates and
        evaluates.
    planned, trained : bool
        Whether any task was planned, and whether any update was used.
    agreed : Agreement, optional
        Which arrays the clients return.
    sizes : tuple of sizes
        Usual sizes of the updates of the last two rounds, if they are bounded.
    warned : frozenset of str
        Kinds of messages that were logged and are logged once only.
    stopped : str
        Why training stopped.
    """

    learners: Mapping[str, Learner] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    cycle: int = 0
    clock_s: float = 0.0
    energy_j: float = 0.0
    pace: Pace = field(default_factory=Pace)
    pauses_s: tuple[float, ...] = ()
    planned: bool = False
    trained: bool = False
    agreed: Agreement | None = None
    sizes: tuple[Sizes, ...] = ()
    warned: frozenset[str] = frozenset()
    stopped: str = ""

    @property
    def pause_s(self) -> float:
        """Time between rounds; a median, because some of them load or save something."""
        return median_low(self.pauses_s) if self.pauses_s else 0.0

    def paused(self, seconds: float) -> State:
        """Return the state after one more pause between two rounds."""
        return replace(self, pauses_s=(*self.pauses_s, seconds)[-_PAUSES:])

    def of(self, node: str) -> Learner:
        """Return the learner behind a node."""
        key = self.keys.get(node, node)
        return self.learners.get(key) or Learner(key, node, node)

    def present(self, nodes: Collection[str]) -> list[Learner]:
        """Return the learners behind these nodes in their order."""
        return sorted((self.of(node) for node in nodes), key=lambda x: x.order)

    def with_learners(self, learners: Sequence[Learner]) -> State:
        """Return the state with these learners brought up to date."""
        return replace(self, learners={**self.learners, **{x.key: x for x in learners}})

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for a checkpoint. Devices are not in it: clients report them again."""
        kept = {x.key: _saved(x) for x in self.learners.values()}
        plain = {name: getattr(self, name) for name in ("cycle", "clock_s", "energy_j", "planned", "trained")}
        return {
            **plain,
            "pace": self.pace.as_dict(),
            "sizes": [list(sizes) for sizes in self.sizes],
            "warned": sorted(self.warned),
            "learners": kept,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> State:
        """Read back what `as_dict` returned; raise ValueError if it cannot be that."""
        try:
            learners = {str(key): _restored(str(key), x) for key, x in data["learners"].items()}
            return cls(
                learners=learners,
                cycle=count("cycle", data["cycle"]),
                clock_s=number("clock_s", data["clock_s"], least=0),
                energy_j=number("energy_j", data["energy_j"], least=0),
                pace=Pace.from_dict(data["pace"]),
                planned=bool(data["planned"]),
                trained=bool(data["trained"]),
                sizes=tuple((float(a), float(b), float(c)) for a, b, c in data["sizes"]),
                warned=frozenset(map(str, data["warned"])),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise complain("state", "what `State.as_dict` returned", data, f"{error!r}.") from None


_KEPT = ("own_epochs", "held", "baseline_s", "chooses", "reads", "fixed")


def _saved(x: Learner) -> dict[str, Any]:
    """Return one learner for a checkpoint. Its costs and limits hold until it answers again."""
    capability = x.capability or Capability()
    return {
        "label": x.label,
        "limits": [capability.energy_limit_j, capability.max_samples],
        "costs": None if x.costs is None else list(x.costs),
        "estimate": None if x.estimate is None else x.estimate.as_dict(),
        **{name: getattr(x, name) for name in _KEPT},
        "seen": [list(pair) for pair in x.seen],
    }


def _restored(key: str, data: Mapping[str, Any]) -> Learner:
    """Read one learner of a checkpoint."""
    energy_limit_j, max_samples = data["limits"]
    costs = data["costs"]
    return Learner(
        key,
        key,
        str(data["label"]),
        capability=Capability(None, energy_limit_j, max_samples),
        costs=None if costs is None else tuple(map(float, costs)),  # type: ignore[arg-type]
        estimate=None if data["estimate"] is None else Estimate.from_dict(data["estimate"]),
        seen=tuple((float(work), float(seconds)) for work, seconds in data["seen"]),
        **{name: data[name] for name in _KEPT},
    )


def with_nodes(state: State, nodes: Collection[str]) -> State:
    """Return the state with the nodes that are connected; learners that left stay known by their keys.

    Parameters
    ----------
    state : State
        After the previous cycle.
    nodes : collection of str
        All connected node ids.
    """
    keys = {node: state.keys.get(node, node) for node in nodes}
    learners = dict(state.learners)
    for node, key in keys.items():
        learners.setdefault(key, Learner(key, node, node))
    here = set(keys.values())
    surplus = [key for key in learners if key not in here][: max(len(learners) - len(here) - _MOST_ABSENT, 0)]
    for key in surplus:
        del learners[key]
    return replace(state, keys=MappingProxyType(keys), learners=learners)


def with_answers(state: State, options: Options, answers: Mapping[str, Words | None]) -> State:
    """Return the state with what clients report about themselves; None: a client did not answer.

    Neither silence nor values that cannot be right replace what was known before.

    Parameters
    ----------
    state : State
        After `with_nodes`.
    options : Options
        The default device and the workload.
    answers : mapping of node id to mapping
        Keys of `flwr_mel.wire`.
    """
    learners, keys = dict(state.learners), dict(state.keys)
    for node, words in answers.items():
        known = learners.get(keys.get(node, node)) or Learner(node, node, node)
        if words is None:
            learners[known.key] = _informed(replace(known, problem=known.problem or _NO_ANSWER), options, {})
            continue
        partition = partition_of(words)
        if partition is not None and partition != known.key and partition not in keys.values():
            learners.pop(known.key, None)
            known = replace(learners.get(partition, known), key=partition)
        keys[node] = known.key
        known = replace(
            known,
            node=node,
            label=label_of(words) or partition or known.label,
            answered=True,
            modded=known.modded or wire.MODDED in words,
            simulated=wire.SIMULATED in words,
            own_epochs=whole(words.get(wire.OWN_EPOCHS)) or known.own_epochs,
            problem=problem_of(words),
        )
        learners[known.key] = _informed(known, options, words)
    return replace(state, learners=learners, keys=MappingProxyType(keys))


_NO_ANSWER = "it did not answer"


def _informed(x: Learner, options: Options, words: Words) -> Learner:
    """Return a learner with the capability that it reports."""
    default = None if options.default_device is None else Capability.of(options.default_device)
    base = default if x.capability is None else x.capability.over(default)
    try:
        capability = Capability.parse(words).over(base)
    except ValueError as error:
        return replace(x, capability=base, problem=f"its capability was rejected: {error}")
    if x.capability is not None and capability.device == x.capability.device and x.costs is not None:
        return replace(x, capability=capability)
    costs = capability.costs(options.workload)
    if costs is None:
        return replace(x, capability=capability)
    estimate = x.estimate
    if estimate is None or not estimate.begins_with(costs):
        estimate = Estimate.declared(costs, options.learning(declared=True))
    return replace(x, capability=capability, costs=costs, estimate=estimate)
