"""The learner's side of a task: how many epochs, which samples."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from flwr_mel import wire
from flwr_mel._npy import read_npy
from flwr_mel._validate import IntArray, complain, count
from flwr_mel.clientapp.watch import Watch, unwatched, watch_of

if TYPE_CHECKING:
    from flwr.app import Message

Loader = TypeVar("Loader")


@dataclass(frozen=True, eq=False, repr=False)
class Assignment:
    """What the server allocated to this learner for this cycle.

    Parameters
    ----------
    epochs, samples : int
        tau_k and d_k. In a free task `epochs` is the project's own number, and reading `samples` is an error:
        they are all the learner has.
    cycle : int
        The global cycle.
    seed : int
        For this learner and cycle; `rng` starts from it.
    shard : tuple of arrays, optional
        The samples themselves, in parallelized mode: the server's arrays in their order.
    free : bool
        A cycle in which everybody does what the project does without flwr_mel, so that it can be measured.
        `choose` and `loader` leave everything as it is.
    watch : Watch, optional
        Of the mod, which reports what was read and chosen.
    """

    epochs: int
    samples: int
    cycle: int
    seed: int
    shard: tuple[npt.NDArray[Any], ...] | None = None
    free: bool = False
    watch: Watch | None = None

    def __getattribute__(self, name: str) -> Any:
        """Note that the app asked for its epochs; there may be nothing to tell in a free task."""
        value = object.__getattribute__(self, name)
        if name == "epochs" and self.watch is not None:
            self.watch.asked = True
        if name in _FREE and value == 0:
            raise ValueError(_FREE[name])
        return value

    def __repr__(self) -> str:
        """Show the task, which is not reading it."""
        facts = vars(self) | {"shard": None if self.shard is None else [part.shape for part in self.shard]}
        words = ", ".join(f"{name}={value!r}" for name, value in facts.items() if name != "watch")
        return f"Assignment({words})"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], epochs: int | None = None) -> Assignment:
        """Read the task from a classic `fit` config, or from a ConfigRecord.

        Parameters
        ----------
        config : mapping
            As the server sent it.
        epochs : int, optional
            The project's own number of epochs, for free tasks, where it stands in no config.
        """
        watch, words = watch_of(config), unwatched(config)
        free = wire.FREE in words and wire.EPOCHS not in words
        wanted = (wire.CYCLE,) if free else (wire.EPOCHS, wire.SAMPLES, wire.CYCLE, wire.SEED)
        missing = [key for key in wanted if key not in words]
        if missing:
            raise KeyError(
                f"no flwr_mel task here: {missing[0]!r} is missing. Is the server's strategy wrapped in "
                "MelStrategy?"
            )
        cycle = count(wire.CYCLE, words[wire.CYCLE], least=1)
        if free:
            own = watch.own_epochs if epochs is None and watch is not None else epochs
            if watch is not None and epochs is not None:
                watch.told = count("epochs", epochs, least=1)
            return cls(own or 0, 0, cycle, _seed(words.get(wire.SEED, cycle)), free=True, watch=watch)
        samples = count(wire.SAMPLES, words[wire.SAMPLES], least=1)
        return cls(
            epochs=count(wire.EPOCHS, words[wire.EPOCHS], least=1),
            samples=samples,
            cycle=cycle,
            seed=_seed(words[wire.SEED]),
            shard=_shard(words, samples),
            watch=watch,
        )

    @classmethod
    def from_message(cls, message: Message, epochs: int | None = None) -> Assignment:
        """Read the task from a train message of either API.

        Parameters
        ----------
        message : flwr.app.Message
            As the client app got it.
        epochs : int, optional
            As for `from_config`.
        """
        for record in message.content.config_records.values():
            if wire.CYCLE in record:
                return cls.from_config(record, epochs)
        return cls.from_config({}, epochs)

    def rng(self) -> np.random.Generator:
        """Return a generator for this learner's work in this cycle: one seed, one result."""
        return np.random.default_rng(self.seed)

    def choose(self, n_local: int) -> IntArray:
        """Choose which local samples to train on (federated): min(d_k, n_local) of them, at random.

        Sorted, so that reading them from disk is sequential. All of them when d_k covers them, or when the
        task is free. For arrays ``x[task.choose(len(x))]``, for Hugging Face datasets
        ``data.select(task.choose(len(data)))``.

        Parameters
        ----------
        n_local : int
            Samples this learner holds.
        """
        n = count("n_local", n_local, least=1)
        used = n if self.free else min(self.samples, n)
        if self.watch is not None:
            self.watch.chose(used, n)
        if used == n:
            return np.arange(n)
        return np.sort(np.random.default_rng([self.seed, 1]).choice(n, used, replace=False))

    def loader(self, loader: Loader) -> Loader:
        """Return a torch DataLoader like this one over the samples of this cycle.

        Batch size, sampler, collate function, workers, generator and the rest are kept. A loader whose
        samples are all used is returned as it is.

        Parameters
        ----------
        loader : torch.utils.data.DataLoader
            Over everything that this learner holds.
        """
        # Here, so that the kit does not load torch.
        from flwr_mel.clientapp.torch_data import narrowed  # noqa: PLC0415

        return narrowed(loader, self)


_FREE = {
    "epochs": "this cycle is free: the project trains as it does without flwr_mel, and its own number of "
    "epochs was not found in the run config or in the message. Say it: Assignment.from_message(message, "
    "epochs=...), or name its key: MelStrategy(..., epochs_key=...)",
    "samples": "this cycle is free: the learner uses all its samples. Use task.choose(len(data)) or "
    "task.loader(loader), or look at task.free first",
}


def _shard(words: Mapping[str, Any], samples: int) -> tuple[npt.NDArray[Any], ...] | None:
    shard: list[npt.NDArray[Any]] = []
    while (key := f"{wire.SHARD}{len(shard)}") in words:
        shard.append(_unpack(key, words[key]))
    if any(part.shape[:1] != (samples,) for part in shard):
        shapes = ", ".join(str(part.shape) for part in shard)
        raise complain(wire.SHARD, f"arrays of {samples} samples", f"shapes {shapes}")
    return tuple(shard) or None


def _seed(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise complain(wire.SEED, "an integer from 0 to 2**63 - 1", value)
    return value


def _unpack(key: str, data: object) -> npt.NDArray[Any]:
    """Decode one part of a shard into an array of the learner's own, which it may write to."""
    try:
        return read_npy(data).copy(order="K")
    except ValueError as error:
        raise ValueError(f"{key} cannot be decoded: {error}") from None


def pack(array: npt.NDArray[Any]) -> bytes:
    """Encode an array in numpy's .npy format, without pickle."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
