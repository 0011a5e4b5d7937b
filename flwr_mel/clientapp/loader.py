"""A DataLoader over the samples of a task. Only this file imports torch."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from flwr_mel._validate import IntArray
from flwr_mel.clientapp.call import LEAST, Call, current_call

if TYPE_CHECKING:
    from flwr_mel.clientapp.assignment import Assignment

L = TypeVar("L")
log = logging.getLogger("flwr.mel")
_INSTEAD = "Choose the samples where the data are loaded: Subset(dataset, task.choose(len(dataset)))"
_OURS = {"dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}
#: Options that a DataLoader has under the name of its argument.
_OPTIONS = [name for name in signature(DataLoader).parameters if name not in _OURS]


class TaskSampler(Sampler[int]):
    """Another sampler's indices, until the time is over. The main process draws them, also with workers.

    The last batch in time has as many samples as the fastest batch so far promises to finish in time.

    Parameters
    ----------
    sampler : Sampler
        Gives the indices.
    call : Call
        Has the clock and counts the samples.
    size : int
        Of a batch.
    tail : int
        Leave out a last batch of at most so many samples, unless it is the only one.
    origin : DataLoader
        Over all samples of the client.
    """

    def __init__(
        self, sampler: Sampler[int], call: Call, size: int, tail: int, origin: DataLoader[Any]
    ) -> None:
        self.origin = origin
        self.call = call
        self.size = size
        #: Samples of this epoch: drawn, and received by the app (None: another loader took the sampler).
        self.drawn = 0
        self.received: int | None = None
        self._sampler = sampler
        self._tail = tail

    def __iter__(self) -> Iterator[int]:
        call = current_call(self.call)  # also if the app keeps a loader of an earlier round
        first, self.drawn = call.begin(), 0
        indices = iter(self._sampler)
        while batch := list(islice(indices, self.size)):
            left_out = self.drawn > 0 and len(batch) <= self._tail
            least = 0 if self.drawn else len(batch) if first else LEAST
            ahead = 0 if self.received is None else self.drawn - self.received
            kept = batch[: int(max(least, min(len(batch), call.room() - ahead)))]
            if len(kept) == 1 < len(batch):  # BatchNorm cannot train on one sample
                kept = []
            self.drawn += len(kept)
            if self.received is None:
                call.drew(len(kept))
            yield from () if left_out else kept
            if len(kept) < len(batch):
                call.stopped = True
                return

    def __len__(self) -> int:
        n = len(self._sampler)  # type: ignore[arg-type]
        last = n % self.size
        return n - last if n > last <= self._tail else n


class TaskLoader(DataLoader[Any]):
    """A DataLoader that counts the samples of its `TaskSampler` when the app receives them.

    Workers load batches ahead. When the time is over, these are not used.
    """

    def __iter__(self) -> Any:
        sampler = cast(TaskSampler, self.sampler)
        call = current_call(sampler.call)
        sampler.received, since = 0, call.now()
        for batch in super().__iter__():
            samples = min(sampler.size, sampler.drawn - sampler.received)
            sampler.received += samples
            call.drew(samples)
            yield batch
            since, before = call.now(), since
            call.paced(since - before, samples)
            if sampler.received < sampler.drawn and call.left() <= 0:
                call.stopped = True
                break
        else:
            call.drew(sampler.drawn - sampler.received)  # a last batch that was left out
        sampler.received = None


class KeptSampler(Sampler[int]):
    """A project's own sampler, in its own order, without the samples that were not chosen."""

    def __init__(self, sampler: Sampler[int], chosen: IntArray, n: int) -> None:
        self._sampler = sampler
        self._position = {int(index): i for i, index in enumerate(chosen)}
        self._share = len(chosen) / n

    def __iter__(self) -> Iterator[int]:
        return (self._position[int(i)] for i in self._sampler if int(i) in self._position)

    def __len__(self) -> int:
        return max(1, round(len(self._sampler) * self._share))  # type: ignore[arg-type]


def narrowed(loader: L, task: Assignment, call: Call) -> L:
    """Return a DataLoader over the task's samples, in everything else like the one given.

    Parameters
    ----------
    loader : DataLoader
        Over all samples of the client.
    task : Assignment
        How many of them.
    call : Call
        Of the app.
    """
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"task.loader takes a torch DataLoader, got {type(loader).__name__}. For arrays, Hugging Face "
            "datasets and tf.data, choose rows: task.choose(len(data))"
        )
    if isinstance(loader.sampler, TaskSampler):  # of an earlier round: the client keeps its loader
        return narrowed(cast(L, loader.sampler.origin), task, call)
    _check(loader)
    rows = loader.sampler.indices if isinstance(loader.sampler, SubsetRandomSampler) else None
    n = len(loader.dataset if rows is None else rows)  # type: ignore[arg-type]
    chosen = task.choose(n)
    if len(chosen) == n:
        return cast(L, _rebuilt(loader, call, loader.dataset, loader.sampler, whole=True))
    if rows is not None:
        chosen = torch.as_tensor(rows)[torch.from_numpy(chosen)].numpy()
    data = _subset(loader.dataset, chosen)
    return cast(L, _rebuilt(loader, call, data, _sampler(loader.sampler, data, chosen, n), whole=False))


def _check(loader: DataLoader[Any]) -> None:
    """Refuse loaders whose samples cannot be chosen."""
    if isinstance(loader.dataset, IterableDataset):
        raise TypeError(
            "task.loader cannot choose samples of an IterableDataset: it has neither length nor order. "
            "Stop after task.samples samples, and report how many were used"
        )
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        raise TypeError(
            f"task.loader cannot narrow a {type(loader.batch_sampler).__name__}. {_INSTEAD}, "
            "and build the batch sampler on that (Opacus: before make_private)"
        )
    if loader.batch_sampler is not None and loader.batch_size is None:
        raise TypeError(f"task.loader needs batch_size= instead of batch_sampler=. Or: {_INSTEAD}")
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise TypeError(
            f"task.loader builds a plain DataLoader, and {type(loader).__name__} has its own __iter__. "
            f"{_INSTEAD}"
        )


def _subset(dataset: Any, chosen: IntArray) -> Any:
    """Take the chosen samples; a Hugging Face dataset keeps its format and columns."""
    if hasattr(dataset, "select") and hasattr(dataset, "features"):
        return dataset.select(chosen)
    return Subset(dataset, chosen.tolist())


def _sampler(old: Any, data: Any, chosen: IntArray, n: int) -> Sampler[int]:
    """Build a sampler of the same kind over the chosen samples."""
    d = len(chosen)

    def random() -> Sampler[int]:
        drawn = None if old.num_samples == n else max(1, round(old.num_samples * d / n))
        return RandomSampler(data, replacement=old.replacement, num_samples=drawn, generator=old.generator)

    def weighted() -> Sampler[int]:
        drawn = max(1, round(old.num_samples * d / n))
        weights = old.weights[torch.as_tensor(chosen)]
        return WeightedRandomSampler(weights, drawn, old.replacement, old.generator)

    make: dict[type, Callable[[], Sampler[int]]] = {
        SequentialSampler: lambda: SequentialSampler(data),
        RandomSampler: random,
        SubsetRandomSampler: lambda: SubsetRandomSampler(range(d), generator=old.generator),
        WeightedRandomSampler: weighted,
    }
    return make.get(type(old), lambda: KeptSampler(old, chosen, n))()


def _rebuilt(loader: DataLoader[Any], call: Call, data: Any, sampler: Any, *, whole: bool) -> TaskLoader:
    """Build a loader with the same options over other data."""
    batch, drop_last = loader.batch_size, loader.drop_last
    size = batch or 1
    if drop_last and not whole and len(sampler) < size:
        log.warning("%s samples are less than one batch of %s; the batch is not dropped", len(sampler), size)
        drop_last = False
    tail = 0 if whole or drop_last else min(1, size - 1)
    if drop_last and call.limit < math.inf:  # the last batch in time may be a small one
        drop_last, tail = False, size - 1
    options = {name: getattr(loader, name) for name in _OPTIONS if hasattr(loader, name)}
    return TaskLoader(
        data,
        batch_size=batch,
        sampler=TaskSampler(sampler, call, size, tail, loader),
        drop_last=drop_last,
        **options,
    )
