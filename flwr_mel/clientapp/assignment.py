"""The learner's side of a task: how many epochs, which samples."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flwr_mel import wire
from flwr_mel._npy import read_npy
from flwr_mel._validate import IntArray, complain, count

if TYPE_CHECKING:
    from flwr.app import Message


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """What the server allocated to this learner for this cycle.

    Parameters
    ----------
    epochs, samples : int
        tau_k and d_k.
    cycle : int
        The global cycle.
    seed : int
        For this learner and cycle; `rng` starts from it.
    shard : tuple of arrays, optional
        The samples themselves, in parallelized mode: the server's arrays in their order.
    """

    epochs: int
    samples: int
    cycle: int
    seed: int
    shard: tuple[npt.NDArray[Any], ...] | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Assignment:
        """Read the task from a classic `fit` config, or from a ConfigRecord.

        Parameters
        ----------
        config : mapping
            As the server sent it.
        """
        missing = [key for key in (wire.EPOCHS, wire.SAMPLES, wire.CYCLE, wire.SEED) if key not in config]
        if missing:
            raise KeyError(
                f"no flwr_mel task here: {missing[0]!r} is missing. Is the server's strategy wrapped in "
                "MelStrategy?"
            )
        shard: list[npt.NDArray[Any]] = []
        while (key := f"{wire.SHARD}{len(shard)}") in config:
            shard.append(_unpack(key, config[key]))
        samples = count(wire.SAMPLES, config[wire.SAMPLES], least=1)
        if any(part.shape[:1] != (samples,) for part in shard):
            shapes = ", ".join(str(part.shape) for part in shard)
            raise complain(wire.SHARD, f"arrays of {samples} samples", f"shapes {shapes}")
        return cls(
            epochs=count(wire.EPOCHS, config[wire.EPOCHS], least=1),
            samples=samples,
            cycle=count(wire.CYCLE, config[wire.CYCLE], least=1),
            seed=_seed(config[wire.SEED]),
            shard=tuple(shard) or None,
        )

    @classmethod
    def from_message(cls, message: Message) -> Assignment:
        """Read the task from a train message of either API.

        Parameters
        ----------
        message : flwr.app.Message
            As the client app got it.
        """
        for record in message.content.config_records.values():
            if wire.EPOCHS in record:
                return cls.from_config(record)
        return cls.from_config({})

    def rng(self) -> np.random.Generator:
        """Return a generator for this learner's work in this cycle: one seed, one result."""
        return np.random.default_rng(self.seed)

    def choose(self, n_local: int) -> IntArray:
        """Choose which local samples to train on (federated): min(d_k, n_local) of them, at random.

        Sorted, so that reading them from disk is sequential. All of them when d_k covers them.

        Parameters
        ----------
        n_local : int
            Samples this learner holds.
        """
        n = count("n_local", n_local, least=1)
        if self.samples >= n:
            return np.arange(n)
        return np.sort(np.random.default_rng([self.seed, 1]).choice(n, self.samples, replace=False))


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
