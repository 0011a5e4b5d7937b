"""`task.loader` narrows a DataLoader and keeps the rest of it."""

import numpy as np
import pytest
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
    TensorDataset,
    WeightedRandomSampler,
)

from flwr_mel import wire
from flwr_mel.clientapp import Assignment
from tests.clientapp.tools import BASELINE, TASK, call

DATA = TensorDataset(torch.arange(100))


def task(samples=20, words=TASK):
    return Assignment.from_config({**words, wire.SAMPLES: samples} if words is TASK else words)


def drawn(loader):
    """All rows of one pass, batch by batch."""
    return [[int(x) for x in torch.atleast_1d(batch[0])] for batch in loader]


def flat(batches):
    return sorted(row for batch in batches for row in batch)


def test_batches_of_the_chosen_samples_only():
    loader = task().loader(DataLoader(DATA, batch_size=8))
    assert drawn(loader) == [part.tolist() for part in np.split(task().choose(100), [8, 16])]
    assert (len(loader), loader.batch_size, len(loader.dataset)) == (3, 8, 20)


def test_a_loader_that_the_client_keeps_is_not_narrowed_twice():
    kept = task(20).loader(DataLoader(DATA, batch_size=8))
    assert flat(drawn(task(40).loader(kept))) == task(40).choose(100).tolist()
    assert len(flat(drawn(task(words=BASELINE).loader(task(40).loader(kept))))) == 100


def test_shuffling_stays_with_its_generator():
    def shuffled(seed):
        loader = DataLoader(DATA, 8, shuffle=True, generator=torch.Generator().manual_seed(seed))
        return drawn(task().loader(loader))

    assert flat(shuffled(1)) == task().choose(100).tolist()
    assert shuffled(1) == shuffled(1) != shuffled(2)
    loader = task().loader(DataLoader(DATA, 8, shuffle=True))
    first, second = drawn(loader), drawn(loader)
    assert first != second
    assert flat(first) == flat(second)


def double(batch):
    return torch.stack([x for (x,) in batch]) * 2


def start(worker):
    torch.manual_seed(worker)


OPTIONS = {
    "collate_fn": double,
    "pin_memory": False,
    "timeout": 5,
    "num_workers": 1,
    "worker_init_fn": start,
    "prefetch_factor": 3,
    "persistent_workers": True,
    "generator": torch.Generator(),
    "multiprocessing_context": "fork",
}


@pytest.mark.parametrize("words", [TASK, BASELINE])
def test_all_options_are_kept(words):
    given = DataLoader(DATA, 8, drop_last=True, **OPTIONS)
    loader = task(words=words).loader(given)
    for name in (*OPTIONS, "batch_size", "drop_last"):
        assert getattr(loader, name) == getattr(given, name)
    rows = task(words=words).choose(100)
    rows = rows[: len(rows) // 8 * 8]
    assert torch.cat(list(loader)).tolist() == (2 * rows).tolist()
    assert len(given) == 12


def test_a_subclass_gives_a_plain_loader_unless_it_iterates_in_its_own_way():
    class Collating(DataLoader):
        def __init__(self, data, size):
            super().__init__(data, size, collate_fn=double)

    class Moving(DataLoader):
        def __iter__(self):
            return iter([])

    loader = task().loader(Collating(DATA, 8))
    assert torch.cat(list(loader)).tolist() == (2 * task().choose(100)).tolist()
    with pytest.raises(TypeError, match=r"Moving has its own __iter__.*task.choose"):
        task().loader(Moving(DATA, 8))


@pytest.mark.parametrize("whole", [task(100), task(150), task(words=BASELINE)])
def test_a_loader_that_is_used_whole_gives_the_same_batches(whole):
    def loader():
        return DataLoader(DATA, 9, shuffle=True, generator=torch.Generator().manual_seed(1))

    other = whole.loader(loader())
    assert drawn(other) == drawn(loader())  # with its last batch of one sample
    assert (len(other), len(other.dataset), other.batch_size) == (12, 100, 9)


def test_subsets_and_hugging_face_datasets():
    import datasets

    half = Subset(DATA, range(50, 100))
    assert flat(drawn(task().loader(DataLoader(half, 8)))) == (50 + task().choose(50)).tolist()
    data = datasets.Dataset.from_dict({"x": list(range(100))}).with_format("torch")
    loader = task().loader(DataLoader(data, 8))
    assert torch.cat([batch["x"] for batch in loader]).tolist() == task().choose(100).tolist()
    assert loader.dataset.column_names == ["x"]


def test_samplers():
    rows = list(range(10, 90))
    part = task().loader(DataLoader(DATA, 8, sampler=SubsetRandomSampler(rows)))
    assert flat(drawn(part)) == (10 + task().choose(80)).tolist()

    weights = torch.zeros(100)
    keep = task().choose(100)[:2]
    weights[torch.from_numpy(keep)] = 1.0
    weighted = task().loader(DataLoader(DATA, 8, sampler=WeightedRandomSampler(weights, 200)))
    assert set(flat(drawn(weighted))) == set(keep.tolist())
    assert len(weighted.sampler) == 40

    again = task().loader(DataLoader(DATA, 8, sampler=RandomSampler(DATA, replacement=True, num_samples=50)))
    assert len(flat(drawn(again))) == 10


class Backwards(Sampler):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n - 1, -1, -1))

    def __len__(self):
        return self.n


def test_a_sampler_of_the_project_keeps_its_order():
    loader = task().loader(DataLoader(DATA, 8, sampler=Backwards(100)))
    assert [row for batch in drawn(loader) for row in batch] == task().choose(100)[::-1].tolist()
    assert len(loader) == 3


def test_without_batches():
    loader = task().loader(DataLoader(DATA, batch_size=None))
    assert flat(drawn(loader)) == task().choose(100).tolist()


def test_a_single_last_sample_is_left_out():
    """BatchNorm cannot train on a batch of one sample."""
    loader = task(17).loader(DataLoader(DATA, 8, shuffle=True))
    left_out = set()
    for _ in range(20):
        batches = drawn(loader)
        assert [len(batch) for batch in batches] == [8, 8]
        left_out |= set(task(17).choose(100).tolist()) - set(flat(batches))
    assert len(loader) == 2
    assert len(left_out) > 1  # another one in every epoch
    norm = torch.nn.BatchNorm1d(1)
    for batch in task(9).loader(DataLoader(TensorDataset(torch.randn(100, 1)), 8)):
        norm(batch[0])


def test_one_sample_and_batches_of_one_stay_as_they_are():
    assert [len(b) for b in drawn(task(1).loader(DataLoader(DATA, 8)))] == [1]
    assert [len(b) for b in drawn(task(3).loader(DataLoader(DATA, 1)))] == [1, 1, 1]


def test_less_than_one_batch_is_not_dropped():
    loader = task(5).loader(DataLoader(DATA, 8, drop_last=True))
    assert [len(batch) for batch in drawn(loader)] == [5]


class OwnBatches(BatchSampler):
    pass


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


@pytest.mark.parametrize(
    ("loader", "text"),
    [
        ([1, 2], "takes a torch DataLoader, got list.*task.choose"),
        (DataLoader(Stream()), "cannot choose samples of an IterableDataset.*task.samples"),
        (
            DataLoader(DATA, batch_sampler=OwnBatches(SequentialSampler(DATA), 4, False)),
            "cannot narrow a OwnBatches.*before make_private",
        ),
        (
            DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 4, False)),
            "needs batch_size= instead of batch_sampler=.*task.choose",
        ),
    ],
)
def test_what_cannot_be_narrowed_is_said(loader, text):
    with pytest.raises(TypeError, match=text):
        task().loader(loader)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("words", "samples"), [(TASK, 20), (TASK, 17), (BASELINE, 100)])
def test_drawn_samples_are_counted(workers, words, samples):
    def work(message, ctx):
        loader = Assignment.from_message(message).loader(DataLoader(DATA, 8, num_workers=workers))
        for _ in range(3):
            drawn(loader)

    report = call(work, {**words, wire.SAMPLES: samples} if words is TASK else words)
    assert (report[wire.SAMPLES_USED], report[wire.SAMPLES_HELD]) == (samples, 100)
    assert report[wire.SAMPLES_DRAWN] == 3 * samples


def test_a_loader_that_is_left_early_or_not_used():
    def early(message, ctx):
        batches = iter(Assignment.from_message(message).loader(DataLoader(DATA, 8)))
        next(batches), next(batches)

    assert call(early, TASK)[wire.SAMPLES_DRAWN] == 16
    unused = call(lambda m, c: Assignment.from_message(m).loader(DataLoader(DATA, 8)), TASK)
    assert unused[wire.SAMPLES_USED] == 20
    assert wire.SAMPLES_DRAWN not in unused
