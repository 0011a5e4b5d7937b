"""Updates that were begun with an earlier model, moved onto the present one; and the models that needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from flwr_mel.flower.arrays import Array, Key, word
from flwr_mel.flower.average import statistics
from flwr_mel.flower.reasons import RefusedUpdate

Named = Mapping[str, Array]


def moved(update: Mapping[Key, Array], old: Mapping[Key, Array], now: Mapping[Key, Array]) -> list[Array]:
    """Return the present model plus what a learner changed of the one it began with, in double precision.

    Counters and other whole numbers, and the running statistics of batch normalisation, stay as they came:
    the difference of two variances may be less than nothing. What the learner left as it was is the present
    model's, also where that is not finite.

    Parameters
    ----------
    update : mapping of key to array
        The learner's.
    old, now : mappings of key to array
        The model that it began with, and the present one.
    """
    fixed = statistics(list(update.values()))
    return [
        new if i in fixed else _moved(key, new, old.get(key[-1:]), now.get(key[-1:]))
        for i, (key, new) in enumerate(update.items())
    ]


def _moved(key: Key, new: Array, old: Array | None, now: Array | None) -> Array:
    if old is None or now is None or not new.shape == old.shape == now.shape:
        raise RefusedUpdate(f"{word(key)} is none of the model that it began with: it cannot be moved")
    wide = np.complex128 if new.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):  # what is too large is refused afterwards
        found = now.astype(wide) + (new.astype(wide) - old.astype(wide))
        return np.asarray(np.where(new == old, now.astype(wide), found)).astype(new.dtype)


class Models:
    """The models of the cycles whose tasks are in progress, and of the present one; updates that count again.

    Parameters
    ----------
    decode : callable
        Turns a model as Flower has it into named arrays.
    encode : callable
        The other way round.
    """

    def __init__(self, decode: Callable[[Any], Named], encode: Callable[[Named], Any]) -> None:
        self._decode, self._encode = decode, encode
        self._models: dict[int, Any] = {}
        #: Replies that came and count again, by `Echo.name`, in plain types.
        self.updates: dict[str, dict[str, Any]] = {}

    def __contains__(self, cycle: int) -> bool:
        return cycle in self._models

    def __getitem__(self, cycle: int) -> Any:
        return self._models[cycle]

    def __iter__(self) -> Iterator[int]:
        return iter(self._models)

    def keep(self, cycle: int, model: Any) -> None:
        """Take note of the model that goes out in a cycle."""
        self._models[cycle] = model

    def trim(self, cycles: Collection[int]) -> None:
        """Forget all models but those of these cycles."""
        self._models = {cycle: model for cycle, model in self._models.items() if cycle in cycles}

    def trim_updates(self, names: Collection[str]) -> None:
        """Forget all updates but these."""
        self.updates = {name: update for name, update in self.updates.items() if name in names}

    def snapshot(self, cycles: Collection[int]) -> dict[str, dict[str, Array]]:
        """Return the models of these cycles, for a checkpoint."""
        kept = {cycle: self._models[cycle] for cycle in sorted(cycles) if cycle in self._models}
        return {str(cycle): dict(self._decode(model)) for cycle, model in kept.items()}

    def restore(
        self, snapshot: Mapping[str, Named], names: Sequence[str], updates: Mapping[str, dict[str, Any]]
    ) -> None:
        """Read back what `snapshot` gave.

        Parameters
        ----------
        snapshot : mapping
            From `snapshot`.
        names : sequence of str
            What arrays are called here: the other API has other names.
        updates : mapping
            Those that count again. The other API has none.
        """
        self.updates = dict(updates)
        self._models = {
            int(cycle): self._encode(dict(zip(names, model.values(), strict=True)))
            for cycle, model in snapshot.items()
        }
