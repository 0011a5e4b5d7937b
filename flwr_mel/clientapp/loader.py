"""A DataLoader over the samples of a task. Only this file imports torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
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
from flwr_mel.clientapp.call import Call, current_call

if TYPE_CHECKING:
    from flwr_mel.clientapp.assignment import Assignment

L = TypeVar("L")
log = logging.getLogger("flwr.mel")
_INSTEAD = "Choose the samples where the data are loaded: Subset(dataset, task.choose(len(dataset)))"
#: Options that a DataLoader has under the name of its argument.
_OPTIONS = [
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
]


class CountingSampler(Sampler[int]):
    """Another sampler's indices, counted. They are drawn in the main process, also with workers.

    Parameters
    ----------
    sampler : Sampler
        Gives the indices.
    call : Call
        Counts them.
    avoid_lone : int
        Batch size. Leave out a sample that would be the only one of the last batch, because BatchNorm cannot
        train on one sample. 0: leave out nothing.
    origin : DataLoader
        Over all samples of the client.
    """

    def __init__(self, sampler: Sampler[int], call: Call, avoid_lone: int, origin: DataLoader[Any]) -> None:
        self.origin = origin
        self._sampler = sampler
        self._call = call
        self._avoid_lone = avoid_lone

    def __iter__(self) -> Iterator[int]:
        n, waiting = 0, None
        for index in self._sampler:
            if waiting is not None:
                self._call.drew()
                yield waiting
            n, waiting = n + 1, index
        if waiting is not None:
            self._call.drew()
            if not self._is_lone(n):
                yield waiting

    def __len__(self) -> int:
        n = len(self._sampler)  # type: ignore[arg-type]
        return n - self._is_lone(n)

    def _is_lone(self, n: int) -> bool:
        return self._avoid_lone > 1 and n > 1 and n % self._avoid_lone == 1


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


def narrowed(loader: L, task: Assignment) -> L:
    """Return a DataLoader over the task's samples, in everything else like the one given.

    Parameters
    ----------
    loader : DataLoader
        Over all samples of the client.
    task : Assignment
        How many of them.
    """
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"task.loader takes a torch DataLoader, got {type(loader).__name__}. For arrays, Hugging Face "
            "datasets and tf.data, choose rows: task.choose(len(data))"
        )
    if isinstance(loader.sampler, CountingSampler):  # of an earlier round: the client keeps its loader
        return narrowed(cast(L, loader.sampler.origin), task)
    _check(loader)
    rows = loader.sampler.indices if isinstance(loader.sampler, SubsetRandomSampler) else None
    n = len(loader.dataset if rows is None else rows)  # type: ignore[arg-type]
    chosen = task.choose(n)
    if len(chosen) == n:
        return cast(L, _rebuilt(loader, loader.dataset, loader.sampler, whole=True))
    if rows is not None:
        chosen = torch.as_tensor(rows)[torch.from_numpy(chosen)].numpy()
    data = _subset(loader.dataset, chosen)
    return cast(L, _rebuilt(loader, data, _sampler(loader.sampler, data, chosen, n), whole=False))


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


def _rebuilt(loader: DataLoader[Any], data: Any, sampler: Any, *, whole: bool) -> DataLoader[Any]:
    """Build a loader with the same options over other data."""
    size, drop_last = loader.batch_size, loader.drop_last
    if drop_last and not whole and len(sampler) < (size or 0):
        log.warning("%s samples are less than one batch of %s; the batch is not dropped", len(sampler), size)
        drop_last = False
    lone = 0 if whole or drop_last or size is None else size
    options = {name: getattr(loader, name) for name in _OPTIONS if hasattr(loader, name)}
    return DataLoader(
        data,
        batch_size=size,
        sampler=CountingSampler(sampler, current_call(), lone, loader),
        drop_last=drop_last,
        **options,
    )
