"""What a cycle leaves to the next, as a value: `State`. And the `Task`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median_low
from typing import Any

from flwr_mel import wire
from flwr_mel._validate import IntArray, complain, count, number
from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.learner import Learner
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.reports import Words, partition_of
from flwr_mel.cycle.updates import Agreement, Sizes

#: How many pauses between rounds are remembered.
_PAUSES = 5
#: How many learners that left are remembered at least.
_MOST_ABSENT = 1000
#: As many learners as stand for a larger fleet.
_SAMPLE = 1000
_NO_ANSWER = "it did not answer"


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
    seconds : float, optional
        After which the client stops.
    """

    node: str
    key: str
    cycle: int
    epochs: int
    samples: int
    seed: int
    baseline: bool = False
    shard: IntArray | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Everything that one cycle leaves to the next.

    Parameters
    ----------
    learners : mapping of key to Learner
        All that answered or had a task, also absent ones.
    keys : mapping of node id to key
        Identity of the nodes that have another one than their node id.
    cycle : int
        The last one that is done.
    clock_s, energy_j : float
        Time and energy since the start.
    time_s : float
        T of the last cycle; 0 before the first.
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
        Kinds of advice that were logged and are logged once only.
    stopped : str
        Why training stopped.
    """

    learners: Mapping[str, Learner] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    cycle: int = 0
    clock_s: float = 0.0
    energy_j: float = 0.0
    time_s: float = 0.0
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
        return self.learners.get(self.keys.get(node, node)) or Learner.new(node)

    def present(self, nodes: Collection[str]) -> list[Learner]:
        """Return the learners behind these nodes in their order."""
        return sorted((self.of(node) for node in nodes), key=lambda x: x.order)

    def sample(self) -> list[Learner]:
        """Return learners that stand for all: at most about a thousand, evenly taken."""
        step = max(len(self.learners) // _SAMPLE, 1)
        return list(islice(self.learners.values(), 0, None, step))

    def with_learners(self, learners: Iterable[Learner]) -> State:
        """Return the state with these learners brought up to date."""
        return replace(self, learners={**self.learners, **{x.key: x for x in learners}})

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for a checkpoint."""
        kept = {x.key: x.as_dict() for x in self.learners.values()}
        return {
            **{name: getattr(self, name) for name in _KEPT},
            "sizes": [list(sizes) for sizes in self.sizes],
            "warned": sorted(self.warned),
            "learners": kept,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> State:
        """Read back what `as_dict` returned; raise ValueError if it cannot be that."""
        try:
            return cls(
                learners={str(key): Learner.from_dict(str(key), x) for key, x in data["learners"].items()},
                cycle=count("cycle", data["cycle"]),
                clock_s=number("clock_s", data["clock_s"], least=0),
                energy_j=number("energy_j", data["energy_j"], least=0),
                time_s=number("time_s", data["time_s"], least=0),
                planned=bool(data["planned"]),
                trained=bool(data["trained"]),
                sizes=tuple((float(a), float(b), float(c)) for a, b, c in data["sizes"]),
                warned=frozenset(map(str, data["warned"])),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise complain("state", "what `State.as_dict` returned", data, f"{error!r}.") from None


_KEPT = ("cycle", "clock_s", "energy_j", "time_s", "planned", "trained")


def with_nodes(state: State, nodes: Collection[str]) -> State:
    """Return the state without the learners that left first, if many left. The others stay known.

    Parameters
    ----------
    state : State
        After the previous cycle.
    nodes : collection of str
        All connected node ids.
    """
    surplus = len(state.learners) - len(nodes) - _MOST_ABSENT
    if surplus <= 0:
        return state
    here = {state.keys.get(node, node) for node in nodes}
    gone = set(islice((key for key in state.learners if key not in here), surplus))
    learners = {key: x for key, x in state.learners.items() if key not in gone}
    keys = {node: key for node, key in state.keys.items() if key not in gone}
    return replace(state, learners=learners, keys=keys)


def with_answers(state: State, options: Options, answers: Mapping[str, Words | None]) -> State:
    """Return the state with what clients report about themselves; None: a client did not answer.

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
        known = learners.get(keys.get(node, node)) or Learner.new(node)
        if words is None:
            if not known.identity.answered:
                known = replace(known, identity=replace(known.identity, problem=_NO_ANSWER))
                learners[known.key] = _informed(known, options, {})
            continue
        partition = partition_of(words)
        taken = partition in keys.values() or _deployed(learners.get(partition or ""))
        if partition is not None and partition != known.key and not taken:
            learners.pop(known.key, None)
            known = learners.get(partition, known)
            keys[node] = partition
        identity = replace(known.identity.after(words), key=keys.get(node, node), node=node)
        known = replace(known, identity=identity, patience=known.patience.heard())
        learners[known.key] = _informed(known, options, words)
    return replace(state, learners=learners, keys=keys)


def _deployed(x: Learner | None) -> bool:
    """Whether a learner is known by its node id, which no partition id may be."""
    return x is not None and x.identity.answered and not x.identity.simulated


def _informed(x: Learner, options: Options, words: Words) -> Learner:
    """Return a learner with the profile that it declares; a new one keeps what was learned."""
    declares = wire.MODDED in words or not words.keys().isdisjoint(wire.CAPABILITY_KEYS)
    if not declares and (words or x.identity.modded):
        return x
    profile = x.profile.after(words, options.workload, options.default_device)
    if profile is x.profile:
        return x
    estimate, old, new = x.estimate, x.profile.costs, profile.costs
    if new is not None and new != old:
        if estimate is None or old is None:
            estimate = Estimate.declared(new, options.learning(declared=True))
        elif options.learning(declared=True) is None:
            estimate = replace(Estimate.declared(new, None), misses=estimate.misses, seen=estimate.seen)
        else:
            estimate = estimate.rebased(old, new)
    return replace(x, profile=profile, estimate=estimate)
