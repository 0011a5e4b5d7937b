"""On a virtual fleet the mod prices what the app did, and no clock matters."""

import json
import os

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from flwr_mel import Device, Measured, wire
from flwr_mel.clientapp import Assignment, MelMod
from flwr_mel.clientapp.virtual import FLEET, device_of, price, read_fleet, write_fleet
from tests.clientapp.tools import BASELINE, TASK, call, classic_call, context, probe, task_message
from tests.search import examples

DATA = TensorDataset(torch.arange(100))
PI = Measured(0.5, 0.25, 3.0, 2.0, 1.0, 8.0, energy_limit_j=900.0, name="pi")
PHONE = Measured(0.125, 0.0, 1.0, 1.0, 0.0, 0.0, name="phone")


MOD = MelMod(Device(1e9, 1e7, 0.1, max_samples=40))


@pytest.fixture(autouse=True)
def fleet(tmp_path, monkeypatch):
    """Client 2, the default of these tests, is the pi, and so is every third client from there."""
    path = tmp_path / "fleet.json"
    write_fleet(path, [PHONE, PHONE, PI])
    monkeypatch.setenv(FLEET, str(path))
    return path


def pay(report):
    assert report[wire.VIRTUAL] == 1
    return report[wire.TRAIN_SECONDS], report[wire.TRAIN_JOULES]


def loop(epochs=None, workers=0):
    def work(message, *_):
        read = Assignment.from_message if isinstance(message, Message) else Assignment.from_config
        task = read(message)
        loader = task.loader(DataLoader(DATA, 8, num_workers=workers))
        for _ in range(epochs or task.epochs):
            sizes.append([len(rows) for (rows,) in loader])

    sizes = []
    work.sizes = sizes
    return work


@pytest.mark.parametrize("train", [call, classic_call])
def test_drawn_samples_are_priced(train):
    assert pay(train(loop(), TASK, mod=MOD)) == price(PI, 140, 20) == (78.0, 308.0)
    assert pay(train(loop(2), TASK, mod=MOD)) == price(PI, 40, 20)
    assert pay(train(loop(), TASK, context(**{"partition-id": 4}), mod=MOD)) == price(PHONE, 140, 20)
    assert pay(train(loop(3), BASELINE, mod=MOD)) == price(PI, 300, 100)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("seconds", "sizes", "stopped"),
    [
        (3 + 20 * 0.75 + 20 * 0.5, [[8, 8, 4]] * 2, None),  # exactly what the task takes
        (27.9, [[8, 8, 4], [8, 8, 3]], 1),
        (3 + 20 * 0.75 + 5 * 0.5, [[8, 8, 4], [5]], 1),
        (19, [[8, 8, 4], [2]], 1),
        (3 + 11 * 0.75 + 2 * 0.75, [[8, 3], [2]], 1),
        (1, [[8], [2]], 1),
    ],
)
def test_a_cut_depends_on_the_virtual_time_alone(workers, seconds, sizes, stopped):
    work = loop(workers=workers)
    report = call(work, {**TASK, wire.EPOCHS: 2, wire.SECONDS: seconds}, mod=MelMod())
    assert work.sizes == sizes
    drawn = sum(map(sum, sizes))
    assert report[wire.SAMPLES_DRAWN] == drawn
    assert report[wire.SAMPLES_USED] == min(20, drawn)
    assert (report[wire.STOPS], report.get(wire.STOPPED)) == (1, stopped)
    assert pay(report) == price(PI, drawn, min(20, drawn))
    assert report[wire.TRAIN_SECONDS] <= max(seconds, price(PI, 10, 10)[0])


def test_a_task_that_takes_exactly_its_seconds_is_not_cut(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for _ in range(50):
        c2, c1, c0 = (float(x) for x in rng.uniform(0.01, 1, 3))
        write_fleet(tmp_path / "one.json", [Measured(c2, c1, c0, 0, 0, 0)])
        monkeypatch.setenv(FLEET, str(tmp_path / "one.json"))
        report = call(loop(), {**TASK, wire.SECONDS: c2 * 140 + c1 * 20 + c0})
        assert (report[wire.SAMPLES_DRAWN], wire.STOPPED in report) == (140, False)


def test_no_clock_is_read_and_twice_gives_the_same_bytes():
    mod = MelMod(clock=iter([0.0]).__next__)  # it starts, and is not read again

    def once(mod):
        def app(message, ctx):
            loop()(message)
            return Message(RecordDict({"metrics": MetricRecord({"num-examples": 5})}), reply_to=message)

        reply = mod(task_message({**TASK, wire.SECONDS: 30.0}), context(), app)
        return reply.content[wire.RECORD].deflate()

    assert once(mod) == once(MelMod())


@pytest.mark.parametrize("train", [call, classic_call])
@pytest.mark.parametrize(
    ("work", "run_config", "drawn", "samples"),
    [
        # The app reads the epochs of the task and chooses samples.
        (lambda task: (task.epochs, task.choose(50)), {}, 140, 20),
        # It chooses, and its epochs are its own: one, or those of the argument.
        (lambda task: task.choose(50), {}, 20, 20),
        # It neither reads nor chooses: num-examples are 12.
        (lambda task: None, {"epochs": 3}, 36, 12),
        (lambda task: task.epochs, {}, 84, 12),
        # Its own count is more exact.
        (lambda task: (task.choose(50), task.trained(33), task.epochs), {}, 33, 20),
    ],
)
def test_work_that_no_loader_counts(train, work, run_config, drawn, samples):
    read = Assignment.from_message if train is call else Assignment.from_config
    report = train(lambda first, *_: work(read(first)), TASK, context(run_config), mod=MOD)
    assert pay(report) == price(PI, drawn, samples)


def test_epochs_that_may_have_been_read_are_those_of_the_task():
    report = call(lambda m, c: dict(c.run_config), TASK, context({"epochs": 3}))
    assert pay(report) == price(PI, 7 * 12, 12)
    report = call(lambda m, c: m.content["config"]["epochs"], TASK, config={"epochs": 3})
    assert pay(report) == price(PI, 7 * 12, 12)


def test_own_loops_stop_if_they_count():
    def counting(message, ctx):
        task = Assignment.from_message(message)
        rows = task.choose(100)
        for _ in range(task.epochs):
            seen.append(task.seconds_left)
            if seen[-1] <= 0:
                break
            task.trained(len(rows))

    seen = []
    report = call(counting, {**TASK, wire.SECONDS: 30.0})
    assert seen == [22.0, 12.0, 2.0, -8.0]
    assert (report[wire.STOPS], report[wire.STOPPED], report[wire.SAMPLES_DRAWN]) == (1, 1, 60)
    assert pay(report) == price(PI, 60, 20)

    def silent(message, ctx):
        task = Assignment.from_message(message)
        task.choose(100)
        assert task.epochs == 7
        assert task.seconds_left == task.seconds_left == 22.0

    report = call(silent, {**TASK, wire.SECONDS: 30.0})
    assert not {wire.STOPS, wire.STOPPED} & set(report)
    assert pay(report) == price(PI, 140, 20)


def test_work_that_is_not_known_has_no_price():
    def app(message, ctx):
        return Message(RecordDict({"metrics": MetricRecord({"loss": 5.0})}), reply_to=message)

    report = MelMod()(task_message(TASK), context(), app).content[wire.RECORD]
    assert report[wire.VIRTUAL] == 1
    assert not {wire.TRAIN_SECONDS, wire.TRAIN_JOULES} & set(report)
    assert "num-examples" in report[wire.PROBLEM]


def test_joules_that_the_app_measured_are_those_of_this_machine():
    def app(message, ctx):
        loop()(message)
        return Message(RecordDict({wire.RECORD: ConfigRecord({wire.TRAIN_JOULES: 4.0})}), reply_to=message)

    report = MelMod()(task_message(TASK), context(), app).content[wire.RECORD]
    assert pay(report) == price(PI, 140, 20)


def test_a_virtual_client_declares_its_energy_limit_only():
    assert probe(MOD) == {wire.PROBE: 4, wire.MODDED: 1, wire.LEARNER: "2", wire.ENERGY_LIMIT_J: 900.0}
    phone = probe(MOD, context(**{"partition-id": 1}))
    assert phone == {wire.PROBE: 4, wire.MODDED: 1, wire.LEARNER: "1"}
    report = call(loop(), TASK, mod=MOD)
    assert not set(report) & {*wire.COEFFICIENTS, wire.CPU_HZ, wire.MAX_SAMPLES}
    assert report[wire.ENERGY_LIMIT_J] == 900.0


def test_processes_that_clients_share_keep_nothing(fleet, monkeypatch):
    """Ray's workers serve one client after the other, and one simulation after the other."""
    assert device_of({"partition-id": 2}) == PI
    assert device_of({"partition-id": 3}) == PHONE
    write_fleet(fleet, [PI])
    assert device_of({"partition-id": 3}) == PI
    monkeypatch.delenv(FLEET)
    assert device_of({"partition-id": 3}) is None
    assert wire.VIRTUAL not in call(loop(), TASK)


def test_a_fleet_file_keeps_every_device(fleet):
    assert read_fleet(fleet) == (PHONE, PHONE, PI)
    costs = {"c2": 0.5, "c1": 0.25, "c0": 3.0, "g2": 2.0, "g1": 1.0, "g0": 8.0}
    assert json.loads(fleet.read_text())["devices"][2] == {"name": "pi", **costs, "energy_limit_j": 900.0}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "FileNotFoundError"),
        ("{", "JSONDecodeError"),
        ("{}", "'devices' is missing"),
        ('{"devices": []}', "has no devices"),
        ('{"devices": [3]}', "TypeError"),
        ('{"devices": [{"name": "pi", "c2": 1}]}', "'c1' is missing"),
        (json.dumps({"devices": [{**dict.fromkeys(["c1", "c0", "g2", "g1", "g0"], 0), "name": "", "c2": 0,
                                  "energy_limit_j": None}]}), "c2 must be a finite number > 0"),
    ],
)  # fmt: skip
def test_a_fleet_that_cannot_be_used_is_an_error_and_not_a_real_clock(fleet, text, reason):
    if text is None:
        fleet.unlink()
    else:
        fleet.write_text(text)
    called = []
    with pytest.raises(ValueError, match=f"{fleet.name}.*{reason}"):
        call(lambda m, c: called.append(1), TASK)
    assert not called
    assert reason in probe(MelMod())[wire.PROBLEM]


def test_a_client_without_partition_id_is_an_error():
    nowhere = context()
    del nowhere.node_config["partition-id"]
    with pytest.raises(ValueError, match=r"FLWR_MEL_FLEET is set, but .* no partition-id"):
        call(lambda m, c: None, TASK, nowhere)


@examples(150)
@given(
    epochs=st.integers(1, 4),
    samples=st.integers(1, 40),
    size=st.integers(1, 16),
    drop_last=st.booleans(),
    costs=st.tuples(st.floats(0.01, 2), st.just(0.0) | st.floats(0, 2), st.floats(0, 5)),
    seconds=st.floats(0, 200),
)
def test_every_cut_keeps_the_time_and_gives_each_epoch_a_batch(
    epochs, samples, size, drop_last, costs, seconds
):
    device, sizes = Measured(*costs, 0, 0, 0), []
    write_fleet(os.environ[FLEET], [device])

    def work(message, ctx):
        task = Assignment.from_message(message)
        loader = task.loader(DataLoader(DATA, size, drop_last=drop_last))
        for _ in range(task.epochs):
            sizes.append([len(rows) for (rows,) in loader])

    words = {**TASK, wire.EPOCHS: epochs, wire.SAMPLES: samples, wire.SECONDS: seconds}
    report = call(work, words)
    drawn, used = report[wire.SAMPLES_DRAWN], report[wire.SAMPLES_USED]
    received = sum(map(sum, sizes))
    assert pay(report) == price(device, drawn, used)
    assert received <= drawn <= epochs * samples
    assert used == (min(samples, drawn) if wire.STOPPED in report else samples)
    assert (wire.STOPPED in report) == (drawn < epochs * samples)
    assert all(sizes)
    if size > 1 and samples > 1:
        assert min(map(min, sizes)) > 1
    # The first batch, and two samples in every later epoch, are done in any case.
    least = min(size, samples) + (epochs - 1) * min(2, samples)
    rounding = 1e-6 + 2 * (epochs - 1) * device.c1  # the two samples may be new ones
    assert report[wire.TRAIN_SECONDS] <= max(seconds, price(device, least, least)[0]) + rounding
    if price(device, epochs * samples, samples)[0] <= seconds:
        assert wire.STOPPED not in report
