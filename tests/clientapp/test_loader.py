"""`task.loader` narrows a DataLoader and keeps the rest of it."""

import pickle

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
from tests.clientapp.tools import FREE, TASK, call

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
    assert type(loader.sampler) is SequentialSampler


def test_shuffling_stays_with_its_generator():
    def shuffled(seed):
        loader = DataLoader(DATA, 8, shuffle=True, generator=torch.Generator().manual_seed(seed))
        return drawn(task().loader(loader))

    assert flat(shuffled(1)) == task().choose(100).tolist()
    assert shuffled(1) == shuffled(1) != shuffled(2)
    loader = task().loader(DataLoader(DATA, 8, shuffle=True))
    assert type(loader.sampler) is RandomSampler
    first, second = drawn(loader), drawn(loader)
    assert first != second
    assert flat(first) == flat(second)


def test_all_options_are_kept():
    def collate(batch):
        return torch.stack([x for (x,) in batch]) * 2

    given = DataLoader(
        DATA,
        8,
        collate_fn=collate,
        drop_last=True,
        pin_memory=False,
        timeout=0,
        num_workers=1,
        prefetch_factor=3,
    )
    loader = task().loader(given)
    changed = {"dataset", "sampler", "batch_sampler", "_iterator"}
    same = {k: v for k, v in vars(given).items() if k not in changed}
    assert {k: v for k, v in vars(loader).items() if k not in changed} == same
    assert [len(batch) for batch in loader] == [8, 8]
    assert torch.cat(list(loader)).tolist() == (2 * task().choose(100)[:16]).tolist()
    assert len(given) == 12


def test_a_subclass_stays_one():
    class Own(DataLoader):
        extra = 5

    assert isinstance(task().loader(Own(DATA, 8)), Own)


def test_persistent_workers_of_the_old_loader_are_not_taken_over():
    given = DataLoader(DATA, 8, num_workers=1, persistent_workers=True)
    flat(drawn(given))
    assert flat(drawn(task().loader(given))) == task().choose(100).tolist()


@pytest.mark.parametrize("size", [100, 150])
def test_a_loader_that_is_used_whole_is_returned_itself(size):
    loader = DataLoader(DATA, 8)
    assert task(size).loader(loader) is loader
    assert task(words=FREE).loader(loader) is loader


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
    assert (len(flat(drawn(again))), again.sampler.replacement) == (10, True)


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


def test_a_single_last_sample_joins_the_batch_before():
    loader = task(17).loader(DataLoader(DATA, 8))
    batches = drawn(loader)
    assert [len(batch) for batch in batches] == [8, 9]
    assert len(loader) == 2
    assert flat(batches) == task(17).choose(100).tolist()
    norm = torch.nn.BatchNorm1d(1)
    for batch in task(9).loader(DataLoader(TensorDataset(torch.randn(100, 1)), 8)):
        norm(batch[0])


def test_one_sample_and_batches_of_one_stay_as_they_are():
    assert [len(b) for b in drawn(task(1).loader(DataLoader(DATA, 8)))] == [1]
    assert [len(b) for b in drawn(task(3).loader(DataLoader(DATA, 1)))] == [1, 1, 1]


def test_less_than_one_batch_is_not_dropped(caplog):
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
    ],
)
def test_what_cannot_be_narrowed_is_said(loader, text):
    with pytest.raises(TypeError, match=text):
        task().loader(loader)


def test_what_was_drawn_tells_the_epochs_of_an_app_that_reads_none():
    def work(message, ctx):
        loader = Assignment.from_message(message).loader(DataLoader(DATA, 8, shuffle=True))
        for _ in range(3):
            drawn(loader)

    report = call(work, TASK)
    assert (report[wire.EPOCHS_READ], report[wire.EPOCHS_DONE]) == (wire.NO, 3.0)
    assert (report[wire.SAMPLES_USED], report[wire.SAMPLES_HELD], report[wire.SAMPLES_FROM]) == (
        20,
        100,
        wire.TASK,
    )


def test_what_workers_draw_is_not_seen_and_not_guessed():
    def work(message, ctx):
        drawn(Assignment.from_message(message).loader(DataLoader(DATA, 8, num_workers=1)))

    assert wire.EPOCHS_DONE not in call(work, TASK)


def test_the_narrowed_data_can_be_sent_to_workers_that_start_afresh():
    loader = task().loader(DataLoader(DATA, 8))
    assert len(pickle.loads(pickle.dumps(loader.dataset))) == 20
