"""Batches that are reported as examples are seen at torch's loaders, and nothing is left of the looking."""

import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
import torch
from flwr.common import FitIns, ndarrays_to_parameters
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from flwr_mel import wire
from flwr_mel.clientapp import Assignment, MelClient, drawn, mel_mod
from flwr_mel.clientapp.drawn import Sizes, counting, samples_meant
from tests.clientapp.tools import FREE, TASK, Learner, call, classic_call, context, reply_to, task_message

# The apps of these tools report 12 examples.
EXAMPLES = 12
OWN = DataLoader.__iter__, _BaseDataLoaderIter.__next__


@pytest.fixture(autouse=True)
def _nothing_is_left():
    yield
    assert (DataLoader.__iter__, _BaseDataLoaderIter.__next__) == OWN
    assert (drawn._calls, drawn._replaced) == ([], [])


def data(n):
    return TensorDataset(torch.arange(n))


def go_through(*loaders, passes=1):
    def work(*_):
        for loader in loaders:
            for _ in range(passes):
                for _ in loader:
                    pass

    return work


def used(report):
    return report[wire.SAMPLES_USED], report[wire.SAMPLES_FROM]


def classic(work, words):
    """Train once by a client without a ClientApp."""
    return MelClient(Learner(work)).fit(FitIns(ndarrays_to_parameters([np.zeros(1)]), dict(words))).metrics


@pytest.mark.parametrize("train", [call, classic_call, classic])
@pytest.mark.parametrize("words", [FREE, TASK])
def test_batches_are_taken_for_the_samples_behind_them(train, words):
    loader = DataLoader(data(95), batch_size=8, shuffle=True)
    assert len(loader) == EXAMPLES
    assert used(train(go_through(loader, passes=3), words)) == (95, wire.LOADER)
    # A second loader, to validate on, changes nothing.
    assert used(train(go_through(loader, DataLoader(data(40), 8)), words)) == (95, wire.LOADER)


@pytest.mark.parametrize(
    ("loader", "samples"),
    [
        (DataLoader(data(95), 8, num_workers=1), 95),
        (DataLoader(data(103), 8, drop_last=True), 103),
        (DataLoader(data(500), 8, sampler=SubsetRandomSampler(range(90))), 90),
        (DataLoader(data(95), batch_sampler=BatchSampler(range(95), 8, drop_last=False)), 95),
        (DataLoader(data(47), 8), 47),  # 6 batches in 2 passes are 12 steps
    ],
)
def test_loaders_of_all_kinds(loader, samples):
    passes = EXAMPLES // len(loader)
    assert used(call(go_through(loader, passes=passes), FREE)) == (samples, wire.LOADER)


@pytest.mark.parametrize(
    "work",
    [
        go_through(DataLoader(data(12), 4)),  # samples
        go_through(DataLoader(data(12), 1)),
        go_through(DataLoader(data(6), 1), passes=2),  # samples passed
        go_through(DataLoader(data(13), 4, drop_last=True)),  # samples in full batches
        go_through(DataLoader(data(50), 4, sampler=SubsetRandomSampler(range(12)))),
        go_through(DataLoader(data(30), 4)),  # something else
        go_through(DataLoader(data(95), 8), DataLoader(data(12), 4)),  # it may be either
        lambda *_: next(iter(DataLoader(data(144), 12))),  # one batch, and as many batches behind it
        lambda *_: len(DataLoader(data(95), 8)),  # never read
        lambda *_: None,
    ],
)
def test_whatever_else_is_reported_stays_as_it_is(work):
    assert used(call(work, FREE)) == (EXAMPLES, wire.REPLY)
    assert used(classic_call(work, FREE)) == (EXAMPLES, wire.REPLY)


def test_what_a_task_chose_counts_first():
    def work(message, ctx):
        go_through(Assignment.from_message(message).loader(DataLoader(data(95), 8)))()

    assert used(call(work, FREE)) == (95, wire.TASK)
    assert used(call(work, TASK)) == (20, wire.TASK)


def test_loaders_that_cannot_tell_their_length_work_as_before():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(50))

    class Shy(TensorDataset):
        def __len__(self):
            raise TypeError("not today")

    seen = []
    batches = BatchSampler(range(9), 4, drop_last=False)
    shy = Shy(torch.arange(9))
    report = call(
        lambda *_: seen.extend([*DataLoader(Stream(), 8), *DataLoader(shy, batch_sampler=batches)]), FREE
    )
    assert len(seen) == 7 + 3
    assert used(report) == (EXAMPLES, wire.REPLY)


def test_errors_and_batches_of_the_app_are_its_own():
    with pytest.raises(ZeroDivisionError):
        call(lambda *_: 1 / len([*DataLoader(data(0), 8)]), FREE)
    rows = [[int(x) for x in batch] for (batch,) in DataLoader(data(20), 8)]
    seen = []
    call(lambda *_: seen.extend([int(x) for x in batch] for (batch,) in DataLoader(data(20), 8)), FREE)
    assert seen == rows


def test_calls_at_once_count_each_their_own():
    """Clients of one process may train in threads; the last one puts torch's own methods back."""
    met, reports = threading.Barrier(4), {}

    def client(k):
        def work(message, ctx):
            met.wait(30)
            loader = DataLoader(data(8 * EXAMPLES - k), 8)
            for _ in loader:
                time.sleep(0)
            met.wait(30)
            return reply_to(message, EXAMPLES)

        reports[k] = mel_mod(task_message(FREE), context(), work).content[wire.RECORD]

    threads = [threading.Thread(target=client, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {k: used(report) for k, report in reports.items()} == {
        k: (8 * EXAMPLES - k, wire.LOADER) for k in range(4)
    }


def test_a_method_that_somebody_else_replaced_meanwhile_stays_theirs():
    calls = []
    with counting() as seen:
        ours = DataLoader.__iter__

        def theirs(self):
            calls.append(1)
            return ours(self)

        DataLoader.__iter__ = theirs
        go_through(DataLoader(data(20), 8))()
    try:
        assert DataLoader.__iter__ is theirs
        assert [*seen.values()] == [3]
        go_through(DataLoader(data(20), 8))()
        assert [*seen.values()] == [3]
        assert len(calls) == 2
    finally:
        DataLoader.__iter__ = OWN[0]


def test_without_torch_and_with_another_torch_nothing_is_counted(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.data.dataloader", None)
    with counting() as seen:
        pass
    assert not seen

    class Other:
        DataLoader = DataLoader  # and nothing that yields

    monkeypatch.setitem(sys.modules, "torch.utils.data.dataloader", Other)
    with counting() as seen:
        go_through(DataLoader(data(20), 8))()
    assert used(call(go_through(DataLoader(data(95), 8)), FREE)) == (EXAMPLES, wire.REPLY)


def test_of_several_loaders_with_as_many_batches_the_one_drawn_most_counts():
    most, least = Sizes(12, 95, (95, 95)), Sizes(12, 96, (96, 96))
    assert samples_meant(Counter({most: 24, least: 12}), 12) == 95
    assert samples_meant(Counter(), 12) is None
    assert samples_meant(Counter({most: 12}), None) is None
    assert samples_meant(Counter({most: 12}), 12.0) == 95
    assert samples_meant(Counter({Sizes(0, 0, (0, 0)): 0}), 0) is None
