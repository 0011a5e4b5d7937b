"""The app's side of a task: how many epochs, which samples."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from flwr_mel import wire
from flwr_mel._npy import read_npy
from flwr_mel._validate import IntArray, complain, count
from flwr_mel.clientapp.call import Call, current_call, number_of_epochs, unwatched

if TYPE_CHECKING:
    from flwr.app import Message

Loader = TypeVar("Loader")
log = logging.getLogger("flwr.mel")


@dataclass(frozen=True, eq=False, repr=False)
class Assignment:
    """What the server allocated to this client for this round.

    Two kinds of rounds are not planned: a baseline round, in which the project's own work is measured, and a
    round of a strategy that is not wrapped in MelStrategy. Then `epochs` is the project's own number,
    `samples` is None, and `choose` and `loader` keep all samples.

    Parameters
    ----------
    _epochs : int
        tau_k, which the app reads as `epochs`.
    samples : int, optional
        d_k. None: all samples.
    cycle : int
        The round.
    seed : int
        The seed for this client and round; `rng` starts from it.
    shard : tuple of arrays, optional
        With parallelized learning, the samples themselves: parts of the server's arrays, in the same order.
    """

    _epochs: int
    samples: int | None
    cycle: int
    seed: int
    shard: tuple[npt.NDArray[Any], ...] | None = None
    _call: Call = field(default_factory=current_call)

    def __repr__(self) -> str:  # does not count as reading the epochs
        names = ("samples", "cycle", "seed", "shard")
        rest = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"Assignment(epochs={self._epochs}, {rest})"

    @property
    def epochs(self) -> int:
        """tau_k, the number of epochs. The server is told whether the app reads it."""
        self._call.epochs_read = True
        return self._epochs

    @property
    def seconds_left(self) -> float:
        """Seconds until the task is to end; 0 or less when they are over, infinity without a limit.

        For a loop of the app's own; `loader` stops by itself. Do one batch or epoch at least.
        """
        return self._call.ask_left()

    def trained(self, samples: int) -> None:
        """Count samples that a loop of the app's own trained on; `loader` counts by itself.

        Parameters
        ----------
        samples : int
            Since the last call; in two epochs, a sample counts twice.
        """
        self._call.drew(count("samples", samples))

    @classmethod
    def from_message(cls, message: Message, epochs: int | None = None) -> Assignment:
        """Read the task from a train message of either API.

        Parameters
        ----------
        message : flwr.app.Message
            As the client app received it.
        epochs : int, optional
            As for `from_config`.
        """
        configs = list(message.content.config_records.values())
        for config in configs:
            if wire.CYCLE in config:
                return cls.from_config(config, epochs)
        return cls.from_config({key: x for config in configs for key, x in config.items()}, epochs)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], epochs: int | None = None) -> Assignment:
        """Read the task from a classic `fit` config, or from a ConfigRecord.

        Parameters
        ----------
        config : mapping
            As the server sent it.
        epochs : int, optional
            The project's own number of epochs, if it is in neither the config nor the run config.
        """
        config = unwatched(config)
        call = current_call()
        if epochs is not None:
            call.own_epochs = count("epochs", epochs, least=1)
        if wire.CYCLE in config and wire.BASELINE not in config:
            samples = count(wire.SAMPLES, config.get(wire.SAMPLES), least=1)
            return cls(
                count(wire.EPOCHS, config.get(wire.EPOCHS), least=1),
                samples=samples,
                cycle=count(wire.CYCLE, config[wire.CYCLE], least=1),
                seed=_seed(config.get(wire.SEED)),
                shard=_shard(config, samples),
            )
        key = call.named_key or wire.find_epochs_key(config) or ""
        own = epochs or number_of_epochs(config.get(key)) or call.own_epochs or 1
        if wire.CYCLE not in config:
            _warn_once()
        cycle = count(wire.CYCLE, config.get(wire.CYCLE, config.get("server-round", 0)))
        return cls(own, None, cycle, _seed(config.get(wire.SEED, cycle)))

    def rng(self) -> np.random.Generator:
        """Return a generator for this client's work in this round: one seed, one result."""
        return np.random.default_rng(self.seed)

    def choose(self, n_local: int) -> IntArray:
        """Return the indices of the local samples to train on: min(d_k, n_local) of them, at random.

        They are sorted, so that reading them from disk is sequential. For arrays
        ``x[task.choose(len(x))]``, for Hugging Face datasets ``data.select(task.choose(len(data)))``.

        Parameters
        ----------
        n_local : int
            Samples this client holds.
        """
        n = count("n_local", n_local, least=1)
        used = n if self.samples is None else min(self.samples, n)
        self._call.chose(used, n)
        if used == n:
            return np.arange(n)
        return np.sort(np.random.default_rng([self.seed, 1]).choice(n, used, replace=False))

    def loader(self, loader: Loader) -> Loader:
        """Return a torch DataLoader like this one over the samples of this round.

        It stops when the seconds of the task are over. In the first epoch it returns at least one batch, in
        each later one at least two samples, so that no app divides by zero. ``len(loader)`` does not change.

        Parameters
        ----------
        loader : torch.utils.data.DataLoader
            Over all samples that this client holds.
        """
        # Imported here, because it needs torch.
        from flwr_mel.clientapp.loader import narrowed  # noqa: PLC0415

        return narrowed(loader, self, self._call)


@cache
def _warn_once() -> None:
    """Warn about a message without a task; cached, so once per process."""
    log.warning(
        "this round was not planned by flwr_mel: the task is the project's own epochs on all samples. "
        "To plan rounds, wrap the server's strategy in MelStrategy"
    )


def _seed(value: object) -> int:
    """Check the seed of a task."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise complain(wire.SEED, "an integer from 0 to 2**63 - 1", value)
    return value


def _shard(config: Mapping[str, Any], samples: int) -> tuple[npt.NDArray[Any], ...] | None:
    """Decode the shard into arrays of the client's own, which it may write to."""
    shard: list[npt.NDArray[Any]] = []
    while (key := f"{wire.SHARD}{len(shard)}") in config:
        try:
            shard.append(read_npy(config[key]).copy(order="K"))
        except ValueError as error:
            raise ValueError(f"{key} cannot be decoded: {error}") from None
    if any(part.shape[:1] != (samples,) for part in shard):
        shapes = ", ".join(str(part.shape) for part in shard)
        raise complain(wire.SHARD, f"arrays of {samples} samples", f"shapes {shapes}")
    return tuple(shard) or None
