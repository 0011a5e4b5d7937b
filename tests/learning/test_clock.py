"""The server's clock: round trips as the strategies note them, on a clock that only the tests move."""

import math

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import Code, FitIns, FitRes, Parameters, Status
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity
from mel_simulation.app.message_window import Windowed

from bench.strategy import InProcessGrid
from flwr_mel import wire
from flwr_mel.clientapp import Assignment, MelMod
from flwr_mel.devices import Measured
from flwr_mel.learning import Learning
from flwr_mel.records import Outcome
from flwr_mel.server.proxy import TaskProxy
from flwr_mel.serverapp import MelStrategy
from flwr_mel.serverapp.timing import RoundTrips, TimedGrid, pause_s

DEFAULT = Learning()


class Clock:
    """Stands still unless somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += max(seconds, 1e-9)


@pytest.fixture
def clock(monkeypatch):
    """One clock for the server, its messages and the learners; messages need a run to be made in."""
    made = Clock()
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
    for room in ("serverapp.timing", "serverapp.asking"):
        monkeypatch.setattr(f"flwr_mel.{room}.monotonic", made.monotonic)
        monkeypatch.setattr(f"flwr_mel.{room}.sleep", made.sleep)
    monkeypatch.setattr("flwr_mel.server.proxy.monotonic", made.monotonic)
    monkeypatch.setattr("flwr_mel.clientapp.mod.perf_counter", made.monotonic)
    monkeypatch.setattr("mel_simulation.app.message_window.time", made)
    return made


class DelayedGrid(InProcessGrid):
    """Holds the reply of node k back for k tenths of a second; counts the looks."""

    def __init__(self, app, learners, clock):
        super().__init__(app, learners)
        self.clock, self.ready, self.looks, self.deaf = clock, {}, 0, set()

    def push_messages(self, messages):
        messages = list(messages)
        ids = list(super().push_messages(messages))
        for key, message in zip(ids, messages, strict=True):
            probe = wire.RECORD in message.content.config_records
            self.ready[key] = self.clock.now + (0.0 if probe else 0.1 * message.metadata.dst_node_id)
            if message.metadata.dst_node_id in self.deaf and not probe:
                self.ready[key] = math.inf
        return ids

    def pull_messages(self, message_ids):
        self.looks += 1
        return super().pull_messages([key for key in message_ids if self.ready[key] <= self.clock.now])


def app(clock, train_s=0.02):
    client = ClientApp(mods=[MelMod([Measured(1e-3, 0.0, 0.01, 0, 0, 0, max_samples=50)] * 9)])

    @client.train()
    def train(message, context):
        task = Assignment.from_message(message)
        clock.sleep(train_s)
        metrics = MetricRecord({"num-examples": task.samples})
        (model,) = next(iter(message.content.array_records.values())).to_numpy_ndarrays()
        arrays = ArrayRecord([model + np.float32(1)])
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return client


@pytest.mark.parametrize(("window", "learning"), [(False, DEFAULT), (True, DEFAULT), (True, None)])
def test_round_trips_are_on_record_in_the_message_api(window, learning, clock):
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    strategy = MelStrategy(inner, cycle_time_s=5.0, total_samples=60, max_epochs=3, learning=learning)
    grid = DelayedGrid(app(clock), 3, clock)
    model = ArrayRecord([np.zeros(2, np.float32)])
    strategy.start(Windowed(grid) if window else grid, model, num_rounds=2)
    for record in strategy.records:
        for row in record.learners:
            assert row.outcome is Outcome.USED
            if learning is None:
                assert row.round_trip_s is None
            else:
                # All three train in the push, one after the other, before the delays begin; then a look is
                # late by one pause at most.
                assert 0 <= row.round_trip_s - 0.06 - 0.1 * int(row.node) <= 0.05
                assert row.reported_time_s == pytest.approx(0.02)
    if learning is not None:
        assert all(x.estimate.link.seen == 2 for x in strategy.orchestrator.state.learners.values())


@pytest.mark.parametrize("timed", [False, True])
def test_under_an_outer_wrapper_there_is_a_clock_or_a_word_about_it(timed, clock):
    """Its `start` is not ours: learning went on without the server's clock and said nothing."""
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    mel = MelStrategy(inner, cycle_time_s=5.0, total_samples=60, max_epochs=3, learning=DEFAULT)
    outer = DifferentialPrivacyServerSideFixedClipping(mel, 0.0, 1.0, 3)
    grid = DelayedGrid(app(clock), 3, clock)
    outer.start(mel.timed(grid) if timed else grid, ArrayRecord([np.zeros(2, np.float32)]), num_rounds=2)
    trips = [row.round_trip_s for record in mel.records for row in record.learners]
    notes = [note for record in mel.records for note in record.notes if "server's own clock" in note]
    assert len(trips) == 6
    if timed:
        assert all(trip >= 0.1 for trip in trips)
        assert notes == []
    else:
        assert set(trips) == {None}
        (note,) = notes
        assert "start(mel.timed(grid), ...)" in note


def test_the_timed_grid_looks_often_but_not_too_often_and_gives_up_in_time(clock):
    grid, trips = DelayedGrid(app(clock, 0.0), 3, clock), RoundTrips()
    grid.deaf = {2}
    timed = TimedGrid(grid, trips)
    content = {"arrays": ArrayRecord([np.zeros(1)])}
    task = {wire.EPOCHS: 1, wire.SAMPLES: 2, wire.CYCLE: 1, wire.SEED: 1}
    messages = [
        Message(RecordDict({**content, "config": ConfigRecord(task)}), dst_node_id=k, message_type="train")
        for k in (1, 2, 3)
    ]
    replies = list(timed.send_and_receive(messages, timeout=0.8))
    assert clock.now == pytest.approx(0.8)
    assert len(replies) == 2
    assert grid.looks <= 20
    to = {m.metadata.message_id: str(m.metadata.dst_node_id) for m in messages}
    assert set(trips.of(to)) == {"1", "3"}
    trips.forget()
    assert trips.of(to) == {}
    assert timed.contexts is grid.contexts  # everything else is the grid's own


@pytest.mark.parametrize("stragglers", ["keep", "span"])
def test_times_of_day_are_on_record_whatever_is_learnt(stragglers, clock):
    """And replies are looked for more often than Flower's loop does, which sleeps for three seconds."""
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    settings = {"total_samples": 60, "max_epochs": 3, "learning": False, "stragglers": stragglers}
    strategy = MelStrategy(inner, cycle_time_s=5.0, **settings)
    grid = DelayedGrid(app(clock), 3, clock)
    strategy.start(grid, ArrayRecord([np.zeros(2, np.float32)]), num_rounds=2)
    for record in strategy.records:
        for row in record.learners:
            assert row.round_trip_s is None, "nothing is learnt from it"
            # Seconds since 1970 are exact to less than a microsecond.
            assert row.took_s == pytest.approx(0.06 + 0.1 * int(row.node) + 0.025, abs=0.0251)
            assert record.began_at <= record.ended_at
    assert clock.now < 2.0


def test_looks_are_rare_where_one_waits_long_or_they_are_slow():
    assert pause_s(0.0) == 0.05
    assert pause_s(10.0) == pytest.approx(0.3)
    assert pause_s(1000.0) == 3.0
    assert pause_s(0.0, look_s=0.5) == 2.0, "a SuperLink that needs half a second rests four times as long"


def test_replies_that_take_long_to_fetch_do_not_delay_the_next_look(clock):
    """Fetching is no burden by asking: eight replies of a second each once made the ninth 32 s late."""

    class Fetching(DelayedGrid):
        def push_messages(self, messages):
            ids = super().push_messages(messages)
            self.ready = {key: 0.0 if k < 8 else 0.5 for k, key in enumerate(ids)}
            return ids

        def pull_messages(self, message_ids):
            found = list(super().pull_messages(message_ids))
            clock.sleep(1.0 * len(found))
            return found

    grid, trips = Fetching(app(clock, 0.0), 9, clock), RoundTrips()
    content = {"arrays": ArrayRecord([np.zeros(1)])}
    task = {wire.EPOCHS: 1, wire.SAMPLES: 2, wire.CYCLE: 1, wire.SEED: 1}
    messages = [
        Message(RecordDict({**content, "config": ConfigRecord(task)}), dst_node_id=k, message_type="train")
        for k in range(1, 10)
    ]
    assert len(list(TimedGrid(grid, trips).send_and_receive(messages))) == 9
    assert clock.now < 9 * 1.0 + 5.0


class SlowClient(ClientProxy):
    def __init__(self, clock):
        super().__init__("1")
        self.clock = clock

    def fit(self, ins, timeout, group_id):
        self.clock.sleep(0.1)
        if ins.config.get("fail"):
            raise RuntimeError("no")
        return FitRes(Status(Code.OK, ""), ins.parameters, 1, {})

    def get_properties(self, ins, timeout, group_id):
        raise NotImplementedError

    get_parameters = evaluate = reconnect = get_properties


def test_the_classic_proxy_takes_the_time(clock):
    empty = Parameters([], "numpy.ndarray")
    proxy = TaskProxy(SlowClient(clock), None)
    assert proxy.round_trip_s is None
    proxy.fit(FitIns(empty, {}), None, None)
    assert proxy.round_trip_s == pytest.approx(0.1)
    failing = TaskProxy(SlowClient(clock), None)
    with pytest.raises(RuntimeError):
        failing.fit(FitIns(empty, {"fail": True}), None, None)
    assert failing.round_trip_s is None
