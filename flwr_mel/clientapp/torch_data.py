"""A DataLoader over the samples of a task. This file loads torch; nothing else of the kit does."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from flwr_mel._validate import IntArray

if TYPE_CHECKING:
    from flwr_mel.clientapp.assignment import Assignment
    from flwr_mel.clientapp.watch import Watch

log = logging.getLogger("flwr.mel")
L = TypeVar("L")
_INSTEAD = "Choose the samples where the data are loaded: Subset(dataset, task.choose(len(dataset)))"


class Chosen(Subset[Any]):
    """The samples of a task; counts how many were drawn, in the process that reads the report."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int], watch: Watch | None) -> None:
        super().__init__(dataset, indices)
        self._watch = watch

    def __getitem__(self, idx: Any) -> Any:
        self._note(len(idx) if isinstance(idx, list) else 1)
        return super().__getitem__(idx)  # type: ignore[no-untyped-call]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self._note(len(indices))
        return super().__getitems__(indices)

    def _note(self, drawn: int) -> None:
        if self._watch is not None:
            self._watch.drawn += drawn

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes draw where nobody sees it.
        return self.__dict__ | {"_watch": None}


class Kept(Sampler[int]):
    """A project's own sampler, in its own order, without the samples that were not chosen."""

    def __init__(self, sampler: Sampler[int], chosen: IntArray, n: int) -> None:
        self._sampler = sampler
        self._position = {int(index): i for i, index in enumerate(chosen)}
        self._share = len(chosen) / n

    def __iter__(self) -> Iterator[int]:
        return (self._position[int(i)] for i in self._sampler if int(i) in self._position)

    def __len__(self) -> int:
        return max(1, round(len(self._sampler) * self._share))  # type: ignore[arg-type]


class NoLoneSample(BatchSampler):
    """Batches as usual, but a single last sample joins the batch before it: BatchNorm cannot train on one."""

    def __iter__(self) -> Iterator[list[int]]:
        before: list[int] = []
        for batch in super().__iter__():
            if len(batch) == 1 and before:
                before = [*before, *batch]
                break
            if before:
                yield before
            before = batch
        if before:
            yield before

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return max(1, super().__len__() - (n % self.batch_size == 1))


def narrowed(loader: L, task: Assignment) -> L:
    """Return a DataLoader over the task's samples, in everything else like the one given.

    Parameters
    ----------
    loader : DataLoader
        Over all the learner has.
    task : Assignment
        How many.
    """
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"task.loader takes a torch DataLoader, got {type(loader).__name__}. For arrays, Hugging Face "
            "datasets and tf.data take rows: task.choose(len(data))"
        )
    if isinstance(loader.dataset, IterableDataset):
        raise TypeError(
            "task.loader cannot choose samples of an IterableDataset: it has neither length nor order. "
            "Stop it after task.samples samples, and report how many there were"
        )
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        raise TypeError(
            f"task.loader cannot narrow a {type(loader.batch_sampler).__name__}. {_INSTEAD}, "
            "and build the batch sampler on that (Opacus: before make_private)"
        )
    rows = loader.sampler.indices if isinstance(loader.sampler, SubsetRandomSampler) else None
    n = len(loader.dataset if rows is None else rows)  # type: ignore[arg-type]
    chosen = task.choose(n)
    if len(chosen) == n:
        return cast(L, loader)
    if rows is not None:
        chosen = torch.as_tensor(rows)[torch.from_numpy(chosen)].numpy()
    data = _subset(loader.dataset, chosen, task.watch)
    return cast(L, _rebuilt(loader, data, _sampler(loader.sampler, data, chosen, n)))


def _subset(dataset: Any, chosen: IntArray, watch: Watch | None) -> Any:
    if hasattr(dataset, "select") and hasattr(
        dataset, "features"
    ):  # Hugging Face keeps its format and columns
        return dataset.select(chosen)
    return Chosen(dataset, [int(i) for i in chosen], watch)


def _sampler(old: Any, data: Any, chosen: IntArray, n: int) -> Sampler[int]:
    """Build a sampler of the same kind over the chosen samples."""
    d = len(chosen)
    make: dict[type, Callable[[], Sampler[int]]] = {
        SequentialSampler: lambda: SequentialSampler(data),
        RandomSampler: lambda: RandomSampler(
            data,
            replacement=old.replacement,
            num_samples=None if old._num_samples is None else max(1, round(old.num_samples * d / n)),
            generator=old.generator,
        ),
        SubsetRandomSampler: lambda: SubsetRandomSampler(range(d), generator=old.generator),
        WeightedRandomSampler: lambda: WeightedRandomSampler(
            old.weights[torch.as_tensor(chosen)],
            max(1, round(old.num_samples * d / n)),
            old.replacement,
            old.generator,
        ),
    }
    return make.get(type(old), lambda: Kept(old, chosen, n))()


def _rebuilt(loader: DataLoader[Any], data: Any, sampler: Sampler[int]) -> DataLoader[Any]:
    """Copy the loader with all its options, those of later versions and of subclasses too."""
    new = copy.copy(loader)
    batches = None
    drop_last = loader.drop_last
    if loader.batch_size is not None:
        n = len(sampler)  # type: ignore[arg-type]
        if drop_last and n < loader.batch_size:
            log.warning(
                "%s samples are less than one batch of %s; the batch is not dropped", n, loader.batch_size
            )
            drop_last = False
        lone = not drop_last and loader.batch_size > 1 and n > 1 and n % loader.batch_size == 1
        batches = (NoLoneSample if lone else BatchSampler)(sampler, loader.batch_size, drop_last)
    # DataLoader forbids setting these, because its sampler would not follow; here it does.
    new.__dict__.update(dataset=data, sampler=sampler, batch_sampler=batches, drop_last=drop_last)
    new.__dict__.update(_iterator=None)
    return new
