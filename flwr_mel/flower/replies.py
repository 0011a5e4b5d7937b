"""What came back in a cycle, sifted: the same rules for both APIs.

An update must have the arrays of the model that went out. Where it has others, because clients train adapters
only or the server began with a placeholder, they count if more than half of those who were given work agree
on them. Updates are checked where they lie and handed on as they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_mel.flower.arrays import FINITE, Array, Key, check_array, flaw, kind, shapes, word
from flwr_mel.flower.average import scaled
from flwr_mel.flower.metrics import fill_in, odd_metrics
from flwr_mel.flower.reasons import RefusedUpdate, reason
from flwr_mel.flower.sizes import change, cut_back

Shapes = Mapping[Key, tuple[int, ...]]
Layout = frozenset[tuple[Key, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Reply:
    """One learner's reply, read but not yet compared with the others'.

    Parameters
    ----------
    arrays : mapping of key to array
        Views of what it sent.
    metrics : mapping
        What it reported.
    weight : int
        What it counts for.
    epochs : int
        That were done for it.
    """

    arrays: Mapping[Key, Array]
    metrics: Mapping[str, Any]
    weight: int
    epochs: int = 1


@dataclass(frozen=True, slots=True)
class Sifted:
    """What the wrapped strategy is given, and what it is not.

    Parameters
    ----------
    metrics : dict of node to dict
        Whose updates are used, in the order in which to hand them on, with their metrics.
    refused : dict of node to str
        Whose are not, and why.
    keys : tuple of keys
        The order of the arrays: some strategies go by it and not by the names.
    """

    metrics: dict[str, dict[str, Any]]
    refused: dict[str, str]
    keys: tuple[Key, ...]


class Sieve:
    """Knows the model that went out, and remembers which other forms of updates were accepted before.

    Parameters
    ----------
    needed : frozenset of str
        Metrics that the wrapped strategy cannot do without.
    """

    def __init__(self, needed: frozenset[str] = frozenset()) -> None:
        self._needed = needed
        self._model: Mapping[Key, Array] = {}
        self._layout: Layout | None = None
        # Averages turn whole numbers into fractions, and clients go on sending whole ones.
        self._kinds: dict[Key, set[str]] = {}

    @property
    def model(self) -> list[Array]:
        """The arrays that went out."""
        return list(self._model.values())

    def begin(self, model: Mapping[Key, Array]) -> None:
        """Take note of the model that goes out.

        Parameters
        ----------
        model : mapping of key to array
            By one name each; views will do.
        """
        self._model = model
        for key, array in model.items():
            self._kinds.setdefault(key, {kind(array.dtype)})

    def sift(
        self, replies: Mapping[str, Reply], asked: int, again: Mapping[str, Reply] | None = None
    ) -> Sifted:
        """Tell the replies that can be aggregated from the others.

        Parameters
        ----------
        replies : mapping of node to Reply
            In the order of the tasks.
        asked : int
            How many learners were given work.
        again : mapping of str to Reply, optional
            Earlier ones that count again: they are checked against what is usual now and have no vote in it,
            nor metrics.
        """
        refused: dict[str, str] = {}
        expected = self._vote([shapes(reply.arrays) for reply in replies.values()], asked)
        fitting = [r.arrays for r in replies.values() if shapes(r.arrays) == expected]
        usual = _usual(fitting, self._model, asked)
        for node, reply in replies.items():
            try:
                self._check(reply.arrays, expected, usual)
            except RefusedUpdate as error:
                refused[node] = str(error)
        good = {node: reply for node, reply in replies.items() if node not in refused}
        for key, (dtype, majority) in usual.items() if good else ():
            if majority:
                self._kinds.setdefault(key, set()).add(kind(dtype))
        for name, reply in (again or {}).items() if good else ():
            try:
                self._check(reply.arrays, expected, usual)
            except RefusedUpdate as error:
                refused[name] = str(error)
        keys, odd = odd_metrics({node: reply.metrics for node, reply in good.items()}, self._needed)
        refused |= odd
        said = {
            node: {key: value for key, value in reply.metrics.items() if key in keys}
            for node, reply in good.items()
            if node not in odd
        }
        said = fill_in(said, {node: reply.weight for node, reply in good.items()})
        # Flower's averages take the type of the first update: let it be the usual one.
        types = {key: dtype for key, (dtype, _) in usual.items()}
        order = sorted(said, key=lambda node: {k: a.dtype for k, a in good[node].arrays.items()} != types)
        return Sifted({node: said[node] for node in order}, refused, tuple(expected))

    def _vote(self, replies: Sequence[Shapes], asked: int) -> Shapes:
        """Return the arrays that count: the model's or the last ones, unless most of all agree on others."""
        own = shapes(self._model)
        votes = Counter(frozenset(reply.items()) for reply in replies)
        known = [frozenset(own.items()), self._layout or frozenset(own.items())]
        chosen = max(known, key=lambda layout: votes[layout])
        best = max(votes, key=lambda layout: votes[layout], default=chosen)
        if 2 * votes[best] > asked:
            chosen = best
        if votes[chosen]:
            self._layout = chosen
        if chosen == known[0]:
            return own
        orders = Counter(tuple(reply) for reply in replies if frozenset(reply.items()) == chosen)
        found = dict(chosen)
        order = max(orders, key=lambda keys: orders[keys], default=tuple(sorted(found)))
        return {key: found[key] for key in order}

    def _check(
        self,
        arrays: Mapping[Key, Array],
        expected: Shapes,
        usual: Mapping[Key, tuple[np.dtype[Any], bool]],
    ) -> None:
        """Refuse an update that does not fit."""
        if len(arrays) != len(expected) or arrays.keys() != expected.keys():
            odd = sorted("/".join(key)[:60] for key in arrays.keys() ^ expected.keys())
            raise RefusedUpdate(f"{len(arrays)} arrays instead of {len(expected)}: {', '.join(odd[:3])}")
        for key, new in arrays.items():
            if new.shape != expected[key]:
                raise RefusedUpdate(f"{word(key)} has shape {new.shape} instead of {expected[key]}")
        for key, new in arrays.items():
            old = self._model.get(key[-1:])
            dtype, majority = usual[key]
            kinds = self._kinds.get(key, set()) | ({kind(dtype)} if majority else set())
            check_array(key, new, old, kinds | ({kind(old.dtype)} if old is not None else set()), dtype)

    def scaled(self, update: Mapping[Key, Array], factor: float) -> list[Array]:
        """Return an update's arrays with its change of the model multiplied; see `average.scaled`.

        Parameters
        ----------
        update : mapping of key to array
            One that passed.
        factor : float
            From `Blend`.
        """
        return scaled(*self._beside(update), factor)

    def sizes(self, replies: Mapping[str, Reply]) -> dict[str, float]:
        """Return how large the changes are that updates make of the model.

        Parameters
        ----------
        replies : mapping of node to Reply
            Those that passed.
        """
        return {node: change(*self._beside(reply.arrays)) for node, reply in replies.items()}

    def cut_back(self, update: Mapping[Key, Array], factor: float) -> list[Array]:
        """Return an update's arrays with its change of the model made smaller; see `sizes.cut_back`.

        Parameters
        ----------
        update : mapping of key to array
            One that passed.
        factor : float
            From `sizes.too_large`.
        """
        return cut_back(*self._beside(update), factor)

    def _beside(self, update: Mapping[Key, Array]) -> tuple[list[Array], list[Array | None]]:
        """Return an update's arrays and the model's in the same order."""
        return list(update.values()), [self._model.get(key[-1:]) for key in update]

    def judge(self, result: Mapping[Key, Array]) -> str:
        """Say what is wrong with the model that the wrapped strategy made; "" if nothing is.

        Parameters
        ----------
        result : mapping of key to array
            As for `begin`.
        """
        mine = shapes(self._model)
        theirs = {key[-1:]: shape for key, shape in self._layout or ()}
        new = shapes(result)
        if new not in (mine, theirs, {**mine, **theirs}):
            odd = sorted(key[-1][:60] for key in new.keys() | mine.keys() if new.get(key) != mine.get(key))
            return reason(f"has other arrays than the old one: {', '.join(odd[:3])}")
        for key, array in result.items():
            if wrong := flaw(array, self._model.get(key), FINITE, trusted=True):
                return reason(f"has values that {wrong} ({word(key)})")
        return ""

    def unchanged(self, result: Mapping[Key, Array]) -> bool:
        """Whether a model is the one that went out, to the last bit.

        Parameters
        ----------
        result : mapping of key to array
            As for `begin`.
        """
        return result.keys() == self._model.keys() and all(
            np.array_equal(array, self._model[key]) for key, array in result.items()
        )


def _usual(
    updates: list[Mapping[Key, Array]], model: Mapping[Key, Array], asked: int
) -> dict[Key, tuple[np.dtype[Any], bool]]:
    """Return the type that most updates have, in a tie the model's, and if most of all have it."""
    usual = {}
    for key in updates[0] if updates else ():
        votes = Counter(update[key].dtype for update in updates)
        mine = model[key[-1:]].dtype if key[-1:] in model else None
        best = max(votes, key=lambda dtype: (votes[dtype], dtype == mine))
        usual[key] = (best, 2 * votes[best] > asked)
    return usual
