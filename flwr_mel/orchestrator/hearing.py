"""Who is there, who goes by which name, and what learners say of themselves.

A learner is known by its name, whatever its node id is. Names are claims: they order the learners and find
what is remembered of them. The first to claim a name has it. Another node gets it, with all that is known of
the learner, only after the holder is gone, as when a learner comes back under a new node id. Where the
operator says which node has which name, claims do not count: whoever is not named so goes by its node id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from flwr_mel import wire
from flwr_mel._slots import changed
from flwr_mel._text import printable
from flwr_mel.devices import Capability, read_name
from flwr_mel.learning import Learning
from flwr_mel.orchestrator.doubts import Doubt, Why
from flwr_mel.orchestrator.settings import Settings
from flwr_mel.orchestrator.standing import flower_time, missed
from flwr_mel.orchestrator.state import MOST_ABSENT, LearnerState, State

#: What a learner says: keys of `flwr_mel.wire`; None: it did not answer.
Words = Mapping[str, object] | None
_LONGEST = 300


def meet(
    state: State,
    nodes: Collection[str],
    connected: Iterable[str] | None = None,
    now: float | None = None,
) -> State:
    """Begin a cycle with who is there; what is known of those who are gone is kept under their names.

    Parameters
    ----------
    state : State
        After the cycle before.
    nodes : collection of str
        Who may be given work.
    connected : iterable of str, optional
        Who is there, if those are more.
    now : float, optional
        When those who are gone are missed, where a real clock runs.
    """
    new = state.copy()
    new.connected = frozenset(nodes) if connected is None else frozenset({*connected, *nodes})
    new.warned &= new.connected
    for node, gone in state.learners.items():
        if node in new.connected:
            continue
        del new.learners[node]
        if new.holders.get(gone.name) == node:
            del new.holders[gone.name]
        if gone.heard:
            new.absent.pop(gone.name, None)
            new.absent[gone.name] = missed(gone, now)
    surplus = len(new.absent) - max(MOST_ABSENT, len(new.connected))
    for name in list(new.absent)[: max(surplus, 0)]:
        del new.absent[name]
    fresh = [node for node in nodes if node not in new.learners]
    new.learners |= {node: LearnerState(node) for node in fresh}
    known = _known_as(new) if fresh else {}
    for node in fresh:
        own = known.get(node)
        if own is not None and own not in new.holders and own not in new.learners:
            new.holders[own] = node
            new.learners[node] = LearnerState(node, name=own)
    return new


def _known_as(state: State) -> Mapping[str, str]:
    """Return the names that node ids tell before anybody has answered, for a node id is a key.

    The operator wrote them down, or they are those of learners that have been there. What else is known of
    a learner counts when it has answered.
    """
    return {gone.node: name for name, gone in state.absent.items()} if state.names is None else state.names


def strangers(state: State, nodes: Iterable[str]) -> list[str]:
    """Return the nodes of which nothing has been heard."""
    return [node for node in nodes if not state.learners[node].heard]


def unheard(state: State, most: int) -> list[str]:
    """Return connected nodes of which nothing has been heard, whether or not they are chosen in this cycle.

    Parameters
    ----------
    state : State
        After `meet`.
    most : int
        So many at a time, the first ones by their ids.
    """
    found = (n for n in state.connected or () if n not in state.learners or not state.learners[n].heard)
    return sorted(found)[:most]


def wait_for(state: State, nodes: Collection[str]) -> tuple[State, list[str]]:
    """Choose the strangers to wait for: nobody when half of the others are known, and everybody once only.

    Parameters
    ----------
    state : State
        After `meet`.
    nodes : collection of str
        Who may be given work.
    """
    if 2 * sum(state.learners[node].known for node in nodes) >= len(nodes):
        return state, []
    awaited = [node for node in strangers(state, nodes) if not state.learners[node].waited]
    new = state.copy()
    new.learners |= {node: replace(state.learners[node], waited=True) for node in awaited}
    return new, awaited


def hear(
    state: State,
    settings: Settings,
    answers: Mapping[str, Words],
    took_s: Mapping[str, float] | None = None,
) -> State:
    """Take in what learners say of themselves.

    Neither silence nor words that cannot be right replace what was known before. A learner of which
    nothing is known gets the default profile, if there is one. One whose mod answers and declares nothing
    can be measured. With learning, one that is silent, but not one that is refused, gets assumed costs.

    Parameters
    ----------
    state : State
        What is known so far.
    settings : Settings
        The default profile, and whether to learn.
    answers : mapping of node to mapping or None
        Who says what.
    took_s : mapping of node to float, optional
        Seconds from a question to its answer, by the server's clock.
    """
    new = state.copy()
    for node, said in answers.items():
        words = {key: said[key] for key in wire.CAPABILITY_KEYS if key in said} if said else {}
        claimed = read_name(words)
        learner = new.learners.get(node, LearnerState(node))
        learner = _named(new, learner, claimed) if new.names is None else _bound(new, learner, claimed)
        if claimed is not None:
            words[wire.LEARNER] = learner.name
        modded = said is not None and not wire.SIGNS.isdisjoint(said)
        told = learner.problem if said is None else printable(str(said.get(wire.PROBLEM, "")), _LONGEST)
        simulated = learner.simulated if said is None else wire.SIMULATED in said
        flower_s = learner.flower_s
        if said is not None and not flower_s:
            flower_s = flower_time(said, (took_s or {}).get(node))
        ever = learner.modded or modded
        known = (learner.heard, learner.simulated, learner.modded, learner.problem, learner.flower_s)
        if known != (True, simulated, ever, told, flower_s):
            learner = changed(
                learner, heard=True, simulated=simulated, modded=ever, problem=told, flower_s=flower_s
            )
        doubt = Doubt(Why.UNANSWERED) if said is None else _unable(modded, told)
        new.learners[node] = _informed(new, settings, learner, words, doubt)
    return new


def _unable(modded: bool, problem: str) -> Doubt:
    """Return what is to be said of a learner without costs."""
    if modded and problem:
        return Doubt(Why.PROBLEM, problem)
    return Doubt(Why.UNTOLD if modded else Why.SILENT, problem)


def _named(new: State, learner: LearnerState, asked: str | None) -> LearnerState:
    """Name a learner, which keeps the first name that it gets, and let it inherit what is known under it."""
    if asked is not None and learner.name == learner.node and asked != learner.name:
        # Those who answered without a name go by their node ids, which are nobody else's names either.
        namesake = new.learners.get(asked)
        nameless = namesake is not None and namesake.heard and namesake.name == asked
        holder = asked if nameless else new.holders.get(asked)
        if holder is None:
            new.holders[asked] = learner.node
            learner = replace(learner, name=asked)
        else:
            _warn(new, learner, f"claims the name {asked!r} of node {holder} and goes by its node id")
    return _heir(new, learner)


def _bound(new: State, learner: LearnerState, claimed: str | None) -> LearnerState:
    """Name a learner as the operator does, whatever it claims."""
    names = new.names or {}
    name = names.get(learner.node)
    if name is None:
        if claimed in names.values():
            _warn(new, learner, f"claims the name {claimed!r} of another node and goes by its node id")
        return _heir(new, learner)
    if learner.name == learner.node != name:
        learner = _named(new, learner, name)
    if claimed not in (None, name) and learner.name == name:
        _warn(new, learner, f"claims the name {claimed!r}, which is not that of node {learner.node}")
    return _heir(new, learner)


def _warn(new: State, learner: LearnerState, text: str) -> None:
    """Say once what is wrong with the name that a learner claims."""
    if learner.node not in new.warned:
        new.warned.add(learner.node)
        new.notes.append(f"{learner.name}: {text}")


def _heir(new: State, learner: LearnerState) -> LearnerState:
    """Let a learner inherit what is known under its name."""
    old = new.absent.pop(learner.name, None)
    return learner if old is None else learner.inherit(old)


def _informed(
    new: State, settings: Settings, learner: LearnerState, words: Mapping[str, object], doubt: Doubt
) -> LearnerState:
    """Bring what is known of a learner up to date."""
    refused = learner.doubt is not None and learner.doubt.why is Why.REFUSED
    if not words and (learner.capability is not None or refused):
        return learner
    heard = None
    if words:
        try:
            heard = Capability.parse(words, fallback_name=learner.name)
        except ValueError as error:
            doubt = Doubt(Why.REFUSED, str(error))
            new.notes.append(f"{learner.name}: {doubt}")
            if learner.capability is not None:
                return learner
    base = learner.capability or settings.default_capability(learner.name)
    capability = base if heard is None else heard.over(base)
    assumed = doubt.why in (Why.SILENT, Why.UNANSWERED) and isinstance(settings.learning, Learning)
    if capability is None and (assumed or doubt.why is Why.UNTOLD):
        capability = Capability(learner.name)
    declared = learner.declared or (heard is not None and heard.able)
    if capability is not None and capability == learner.capability:
        return learner if declared is learner.declared else changed(learner, declared=declared)
    able = capability is not None and capability.able
    doubted = None if able else doubt
    return changed(learner, declared=declared, capability=capability, costs=None, doubt=doubted)
