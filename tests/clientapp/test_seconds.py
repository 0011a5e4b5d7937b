"""A task ends when its seconds are over, on a clock that advances with the samples that the app trains on."""

import itertools
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.common import FitIns, ndarrays_to_parameters
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from flwr_mel import wire
from flwr_mel.clientapp import Assignment, MelClient, MelMod, PrivateSteps
from tests.clientapp.tools import BASELINE, TASK, Learner, call, classic_call

DATA = TensorDataset(torch.arange(100))


class Device:
    """A device that needs one second per sample; its clock is the mod's."""

    def __init__(self, start_s=0.0, first_batch_s=0.0):
        self.now = 50.0
        self.start_s, self.cold_s = start_s, first_batch_s
        self.mod = MelMod(clock=lambda: self.now)
        self.batches = []

    def train(self, loader, epochs):
        """Return the sizes of the batches, epoch by epoch."""
        self.now += self.start_s
        for _ in range(epochs):
            sizes = []
            for (rows,) in loader:
                sizes.append(len(torch.atleast_1d(rows)))
                self.now += sizes[-1] + self.cold_s
                self.cold_s = 0.0
            self.batches.append(sizes)

    def report(self, seconds, samples=20, epochs=2, train=call, words=TASK, **options):
        """Do a task with `task.loader`; return the report."""
        words = {**words, wire.SECONDS: seconds}
        if words.get(wire.EPOCHS):
            words |= {wire.SAMPLES: samples, wire.EPOCHS: epochs}

        def work(message, *_):
            read = Assignment.from_config if train is classic_call else Assignment.from_message
            task = read(message)
            self.train(task.loader(DataLoader(DATA, **{"batch_size": 8, **options})), epochs)

        return train(work, words, mod=self.mod)


def facts(report):
    keys = (wire.SAMPLES_DRAWN, wire.SAMPLES_USED, wire.STOPS, wire.STOPPED)
    return tuple(report.get(key) for key in keys)


@pytest.mark.parametrize("train", [call, classic_call])
@pytest.mark.parametrize(
    ("seconds", "batches", "drawn", "used", "stopped"),
    [
        (40, [[8, 8, 4], [8, 8, 4]], 40, 20, None),
        (39, [[8, 8, 4], [8, 8, 3]], 39, 20, 1),
        (37, [[8, 8, 4], [8, 8]], 36, 20, 1),  # one sample more would be a batch of one
        (36, [[8, 8, 4], [8, 8]], 36, 20, 1),
        (30, [[8, 8, 4], [8, 2]], 30, 20, 1),
        (22, [[8, 8, 4], [2]], 22, 20, 1),
        (21, [[8, 8, 3], [2]], 21, 20, 1),  # the second epoch needs two samples
        (19, [[8, 8], [3]], 19, 19, 1),
        (13, [[8, 3], [2]], 13, 13, 1),
        (11, [[8], [3]], 11, 11, 1),
        (10, [[8], [2]], 10, 10, 1),
        (8, [[8], [2]], 10, 10, 1),
        (0, [[8], [2]], 10, 10, 1),
    ],
)
def test_the_loader_stops_at_the_last_sample_in_time(train, seconds, batches, drawn, used, stopped):
    device = Device()
    report = device.report(seconds, train=train)
    assert device.batches == batches
    assert facts(report) == (drawn, used, 1, stopped)
    assert report[wire.TRAIN_SECONDS] == drawn
    assert report[wire.SAMPLES_HELD] == 100


def test_what_the_app_does_before_it_trains_counts():
    device = Device(start_s=12.0)
    assert facts(device.report(25)) == (13, 13, 1, 1)
    assert device.batches == [[8, 3], [2]]


def test_the_fastest_batch_says_how_many_samples_are_in_time():
    device = Device(first_batch_s=20.0)
    assert facts(device.report(61, samples=100, epochs=1)) == (40, 40, 1, 1)  # no batch of one
    device = Device(first_batch_s=20.0)
    device.report(34, samples=100, epochs=1)  # 6 s are left, and the only batch so far took 3.5 s per sample
    assert device.batches == [[8]]


def test_one_slow_batch_does_not_end_the_task():
    device = Device()

    def work(message, ctx):
        for k, (rows,) in enumerate(Assignment.from_message(message).loader(DataLoader(DATA, 8))):
            device.now += 20 if k == 2 else len(rows)

    words = {**TASK, wire.EPOCHS: 1, wire.SAMPLES: 100, wire.SECONDS: 8 + 8 + 20 + 12}
    assert facts(call(work, words, mod=device.mod)) == (24 + 12, 24 + 12, 1, 1)


def test_a_baseline_round_has_a_limit_only_if_it_is_sent():
    assert facts(Device().report(50, words=BASELINE, epochs=1)) == (50, 50, 1, 1)
    without = {key: x for key, x in TASK.items() if key != wire.SECONDS}
    device = Device()

    def work(message, ctx):
        task = Assignment.from_message(message)
        assert task.seconds_left == math.inf
        device.now += 10**9
        device.train(task.loader(DataLoader(DATA, 8)), 7)

    assert facts(call(work, without, mod=device.mod)) == (140, 20, 1, None)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_that_workers_loaded_ahead_are_not_used(workers, persistent):
    """Each worker loads six batches ahead; at most one of them is used after the end."""
    device = Device()
    report = device.report(
        30, samples=100, epochs=3, num_workers=workers, prefetch_factor=6, persistent_workers=persistent
    )
    assert device.batches[0][:3] == [8, 8, 8]
    assert 30 <= sum(device.batches[0]) <= 32
    assert device.batches[1:] == [[2], [2]]
    assert facts(report) == (sum(map(sum, device.batches)),) * 2 + (1, 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_all_samples_are_drawn_if_there_is_time(workers):
    device = Device()
    assert facts(device.report(1000, samples=17, num_workers=workers)) == (34, 17, 1, None)
    assert device.batches == [[8, 8]] * 2


def test_a_loader_that_the_app_leaves_early_counts_what_it_took():
    def early(message, ctx):
        loader = Assignment.from_message(message).loader(DataLoader(DATA, 4, num_workers=1))
        for _ in range(3):
            batches = iter(loader)
            next(batches), next(batches)
        kept.append(batches)

    kept = []
    assert facts(call(early, {**TASK, wire.SECONDS: 10**6}, mod=Device().mod)) == (24, 20, 1, None)


@pytest.mark.parametrize(
    ("options", "seconds", "batches"),
    [
        ({"batch_size": None}, 12, [[1] * 10, [1, 1]]),
        ({"batch_size": 1}, 12, [[1] * 10, [1, 1]]),
        ({"batch_size": 1}, 1, [[1], [1]]),
        ({"batch_size": 50}, 12, [[20], [2]]),
        ({"drop_last": True}, 100, [[8, 8], [8, 8]]),
        ({"drop_last": True}, 25, [[8, 8], [8]]),
        ({"drop_last": True}, 12, [[8, 2], [2]]),
        ({"drop_last": True, "batch_size": 50}, 12, [[20], [2]]),
    ],
)
def test_every_epoch_has_a_batch(options, seconds, batches):
    device = Device()
    device.report(seconds, **options)
    assert device.batches == batches


def test_a_cut_task_is_the_beginning_of_the_whole_one():
    """Shuffling does not depend on the time."""

    def rows(seconds):
        seen = []

        def work(message, ctx):
            loader = DataLoader(DATA, 8, shuffle=True, generator=torch.Generator().manual_seed(1))
            for (batch,) in Assignment.from_message(message).loader(loader):
                seen.extend(batch.tolist())
                device.now += len(batch)

        device = Device()
        call(work, {**TASK, wire.EPOCHS: 1, wire.SECONDS: seconds}, mod=device.mod)
        return seen

    whole = rows(100)
    assert len(whole) == 20
    assert rows(13) == whole[:13]


@pytest.mark.parametrize("narrow_again", [True, False])
def test_a_loader_that_the_client_keeps_has_the_clock_of_each_round(narrow_again):
    device, kept = Device(), []

    def work(message, ctx):
        task = Assignment.from_message(message)
        if narrow_again or not kept:
            kept.append(task.loader(kept[-1] if kept else DataLoader(DATA, 8)))
        device.train(kept[-1], 1)

    for seconds, drawn in [(10, 10), (100, 20), (13, 13)]:
        report = call(work, {**TASK, wire.EPOCHS: 1, wire.SECONDS: seconds}, mod=device.mod)
        assert report[wire.SAMPLES_DRAWN] == drawn
        assert report.get(wire.STOPPED) == (1 if drawn < 20 else None)


def test_a_client_of_start_client_stops_in_time():
    device = Device()

    def work(config):
        task = Assignment.from_config(config)
        device.train(task.loader(DataLoader(DATA, 8)), config["epochs"])

    ins = FitIns(
        ndarrays_to_parameters([np.zeros(1)]), {**TASK, "epochs": 1, wire.EPOCHS: 2, wire.SECONDS: 30.0}
    )
    report = MelClient(Learner(work), mod=device.mod).fit(ins).metrics
    assert device.batches == [[8, 8, 4], [8, 2]]
    assert facts(report) == (30, 20, 1, 1)
    assert (report[wire.TRAIN_SECONDS], report[wire.EPOCHS_READ]) == (30.0, 1)


def test_an_own_loop_reads_the_seconds_that_are_left():
    device, seen = Device(), []

    def work(message, ctx):
        task = Assignment.from_message(message)
        rows = task.choose(100)
        for _ in range(task.epochs):
            if seen and task.seconds_left <= 0:
                break
            device.now += len(rows)
            task.trained(len(rows))
            seen.append(task.seconds_left)

    report = call(work, {**TASK, wire.SECONDS: 50}, mod=device.mod)
    assert seen == [30, 10, -10]
    assert facts(report) == (60, 20, 1, 1)
    seen.clear()
    report = call(work, {**TASK, wire.SECONDS: 140}, mod=device.mod)
    assert seen[-1] == 0
    assert facts(report) == (140, 20, 1, None)  # over, but all was done


def test_an_own_loop_that_does_not_count():
    device = Device()

    def work(message, ctx):
        task = Assignment.from_message(message)
        device.now += len(task.choose(100)) * 2
        assert task.seconds_left == -10

    assert facts(call(work, {**TASK, wire.SECONDS: 30}, mod=device.mod)) == (None, 20, 1, 1)
    assert facts(call(lambda m, c: Assignment.from_message(m).choose(100), TASK)) == (None, 20, None, None)
    unused = call(lambda m, c: Assignment.from_message(m).loader(DataLoader(DATA, 8)), TASK)
    assert facts(unused) == (None, 20, None, None)


def test_less_than_one_epoch_of_an_own_loop_uses_fewer_samples():
    device = Device()

    def work(message, ctx):
        task = Assignment.from_message(message)
        for part in np.array_split(task.choose(100), 4):
            device.now += len(part)
            task.trained(len(part))
            if task.seconds_left <= 0:
                return

    assert facts(call(work, {**TASK, wire.EPOCHS: 1, wire.SECONDS: 10}, mod=device.mod)) == (10, 10, 1, 1)
    assert facts(call(work, {**TASK, wire.EPOCHS: 1, wire.SECONDS: 99}, mod=device.mod)) == (20, 20, 1, None)
    with pytest.raises(ValueError, match="samples must be an integer from 0"):
        call(lambda m, c: Assignment.from_message(m).trained(-1), TASK)


def test_private_steps_of_a_cut_task_are_at_most_the_declared_ones():
    limits = PrivateSteps(batch_size=8, sampling_rate=0.4, steps=6)
    for seconds in range(45):
        device = Device()
        device.mod = MelMod(private=limits, clock=lambda device=device: device.now)
        device.report(seconds)
        assert sum(map(len, device.batches)) <= limits.steps
        assert max(map(max, device.batches)) <= limits.batch_size


def test_a_loader_that_another_library_builds_from_the_sampler_stops_as_well():
    """As accelerate's `prepare` does."""
    device = Device()

    def work(message, ctx):
        ours = Assignment.from_message(message).loader(DataLoader(DATA, 8))
        device.train(DataLoader(ours.dataset, batch_sampler=BatchSampler(ours.sampler, 8, False)), 2)

    assert facts(call(work, {**TASK, wire.SECONDS: 8}, mod=device.mod)) == (10, 10, 1, 1)
    assert device.batches == [[8], [2]]


def test_loops_that_use_the_length_of_the_loader_survive():
    from tqdm import tqdm

    def work(message, ctx):
        loader = Assignment.from_message(message).loader(DataLoader(DATA, 8))
        assert len(loader) == 3
        for _ in range(2):
            # As in Trainers: by the number of steps, with gradient accumulation and a mean over all batches.
            steps = accumulated = 0
            for i, (rows,) in enumerate(tqdm(loader, disable=None)):
                device.now += len(rows)
                accumulated += 1
                if (i + 1) % 2 == 0 or i + 1 == len(loader):
                    steps, accumulated = steps + 1, 0
            means.append(1 / (i + 1))
            batches = iter(loader)  # as in Lightning: `next` for as many batches as the length promises
            for _ in range(len(loader)):
                if next(batches, None) is None:
                    break

    device, means = Device(), []
    report = call(work, {**TASK, wire.EPOCHS: 1, wire.SECONDS: 10}, mod=device.mod)
    assert means == [1 / 2, 1]
    assert report[wire.STOPPED] == 1


def test_samplers_with_replacement_report_at_most_what_they_drew():
    device = Device()
    sampler = RandomSampler(DATA, replacement=True, num_samples=300)
    report = device.report(10, samples=20, epochs=1, sampler=sampler)
    assert facts(report) == (10, 10, 1, 1)
    report = Device().report(55, samples=20, epochs=1, sampler=sampler)
    assert facts(report) == (55, 20, 1, 1)


@pytest.mark.parametrize("seconds", ["soon", -1, math.nan])
def test_seconds_that_make_no_sense_are_no_limit(seconds):
    report = Device().report(seconds)
    assert facts(report) == (40, 20, 1, None)


def test_two_loaders_at_once_share_the_time():
    device, sizes = Device(), []

    def work(message, ctx):
        task = Assignment.from_message(message)
        for (a,), (b,) in zip(*[task.loader(DataLoader(DATA, 8)) for _ in range(2)], strict=False):
            sizes.append((len(a), len(b)))
            device.now += len(a) + len(b)

    call(work, {**TASK, wire.SECONDS: 20}, mod=device.mod)
    assert sizes[0] == (8, 8)
    assert sum(itertools.chain(*sizes)) <= 24


def example(text):
    """Return the code block of the guide that contains a text."""
    guide = (Path(__file__).parents[2] / "docs" / "GUIDE.md").read_text(encoding="utf-8")
    return next(block for block in re.findall(r"```python\n(.*?)```", guide, re.S) if text in block)


@pytest.mark.parametrize(("seconds", "drawn"), [(1000, 140), (50, 50), (9, 10)])
def test_the_guides_loop_over_arrays(seconds, drawn):
    class Model:
        def partial_fit(self, x, y, classes):
            device.now += len(x)

    def work(message, ctx):
        data = np.arange(100)
        names = {"np": np, "Assignment": Assignment, "msg": message, "model": Model(), "x": data, "y": data}
        exec(example("partial_fit"), {**names, "classes": [0, 1]})

    device = Device()
    report = call(work, {**TASK, wire.SECONDS: seconds}, mod=device.mod)
    assert facts(report) == (drawn, min(drawn, 20), 1, 1 if drawn < 140 else None)
    assert report[wire.EPOCHS_READ] == 1


def test_the_guides_trainer_callback():
    def work(message, ctx):
        task = Assignment.from_message(message)
        task.choose(100)
        names = {"TrainerCallback": object, "task": task}
        exec(example("TrainerCallback"), names)
        callback, control = names["InTime"](), SimpleNamespace(should_training_stop=False)
        args = SimpleNamespace(train_batch_size=2, gradient_accumulation_steps=3)
        for _ in range(task.epochs * 3):
            device.now += 6
            callback.on_step_end(args, None, control, model=None)
            if control.should_training_stop:
                break

    device = Device()
    assert facts(call(work, {**TASK, wire.SECONDS: 25}, mod=device.mod)) == (30, 20, 1, 1)
    device = Device()
    assert facts(call(work, {**TASK, wire.SECONDS: 1000}, mod=device.mod)) == (126, 20, 1, None)


def test_opacus_gets_the_samples_of_the_task_and_the_app_stops_its_loop():
    from opacus.data_loader import DPDataLoader

    def work(message, ctx):
        task = Assignment.from_message(message)
        private = DPDataLoader.from_data_loader(task.loader(DataLoader(DATA, 8)))
        assert set(torch.cat([rows for (rows,) in private]).tolist()) <= set(task.choose(100).tolist())
        for _ in range(task.epochs):
            for (rows,) in private:
                device.now += len(rows)
                task.trained(len(rows))
                if task.seconds_left <= 0:
                    return

    device = Device()
    report = call(work, {**TASK, wire.SECONDS: 30}, mod=device.mod)
    assert 30 <= report[wire.SAMPLES_DRAWN] == report[wire.TRAIN_SECONDS] < 50
    assert facts(report)[1:] == (20, 1, 1)
