"""Updates that come later count, moved onto the present model: what the records say gives the same bits.

Learners train for real in the process, on a clock that only the tests move; the way back takes as long as
their tasks would.
"""

import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.server.strategy import FedAvg
from flwr.serverapp import strategy as flower

import flwr_mel.server
from bench.strategy import InProcessGrid
from flwr_mel import wire
from flwr_mel.clientapp import Assignment, MelMod
from flwr_mel.devices import Measured
from flwr_mel.flower.average import scaled, weighted_average
from flwr_mel.flower.moving import moved
from flwr_mel.orchestrator.averaging import Work, blend
from flwr_mel.orchestrator.planning import draw_seed
from flwr_mel.records import Outcome
from flwr_mel.serverapp import MelFedAvg, MelStrategy
from tests.learning import test_clock

clock = test_clock.clock  # a fixture
T, HELD = 10.0, 40
SPEEDS = (1.0, 1.0, 0.9, 0.95, 0.35)
MODEL = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "b": np.zeros(4), "n": np.array(3)}


def update(model, learner, task):
    """What a learner makes of a model: something that depends on every bit of it and of the task."""
    rng = np.random.default_rng(task.seed)
    new = {}
    for key, array in model.items():
        if array.dtype.kind == "f":
            step = rng.normal(size=array.shape) * task.epochs / 100 + np.sin(array) / (learner + 2)
            new[key] = (array + step).astype(array.dtype)
        else:
            new[key] = np.asarray(array + task.epochs)
    return new


def costs(speed):
    """Five epochs on all it holds in T, if the speed is 1."""
    return Measured(T / 5.01 / HELD / speed, 0.0, 1e-3, 0, 0, 0, max_samples=HELD)


def fleet_app(*, simulated, calls):
    client = ClientApp(mods=[Said(simulated), MelMod([costs(speed) for speed in SPEEDS])])

    @client.train()
    def train(message, context):
        task = Assignment.from_message(message)
        k = context.node_config["partition-id"]
        calls.append((k, task.cycle))
        given = {key: a.numpy() for key, a in message.content["arrays"].items()}
        arrays = ArrayRecord({key: Array(a) for key, a in update(given, k, task).items()})
        metrics = MetricRecord({"num-examples": task.samples})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return client


class Said:
    """Adds to what the mod says that this is a simulation."""

    def __init__(self, simulated):
        self.simulated = simulated

    def __call__(self, message, context, call_next):
        reply = call_next(message, context)
        if self.simulated and wire.RECORD in reply.content:
            reply.content[wire.RECORD][wire.SIMULATED] = 1
        return reply


class SlowGrid(InProcessGrid):
    """The way back of a task takes as long as the learner, times what `slowed` says of (node, cycle)."""

    def __init__(self, app, clock, slowed=None, *, simulated=False):
        super().__init__(app, len(SPEEDS))
        self.clock, self.slowed, self.simulated, self.ready = clock, slowed or {}, simulated, {}

    def push_messages(self, messages):
        messages = list(messages)
        ids = list(super().push_messages(messages))
        for key, message in zip(ids, messages, strict=True):
            task = message.content.get("config", {})
            node, seconds = message.metadata.dst_node_id, 0.0
            if wire.EPOCHS in task and not self.simulated:
                k = self.partition(node)
                seconds = task[wire.EPOCHS] * task[wire.SAMPLES] * T / 5.01 / HELD / SPEEDS[k]
                seconds *= self.slowed.get((k, task[wire.CYCLE]), 1.0)
            self.ready[key] = self.clock.now + seconds
        return ids

    def partition(self, node):
        return sorted(self.get_node_ids()).index(node)

    def pull_messages(self, message_ids):
        return super().pull_messages([key for key in message_ids if self.ready[key] <= self.clock.now])


def reference(records, average="samples", seed=0):
    """Train and average as the records say."""
    models, came, now = {}, {}, MODEL
    for record in records:
        models[record.cycle] = now
        used, works = [], []
        for row in record.learners:
            if row.outcome is Outcome.USED:
                task = Assignment(
                    row.epochs, row.samples, record.cycle, draw_seed(seed, record.cycle, row.learner)
                )
                used.append(update(now, int(row.learner), task))
                works.append(Work(row.epochs, row.weight, HELD))
        earlier = [row for row in record.learners if row.moved_weight]
        for row in sorted(earlier, key=lambda row: (row.moved_from, row.learner)):
            (then,) = [
                x
                for r in records
                if r.cycle == row.moved_from
                for x in r.learners
                if x.learner == row.learner
            ]
            assert (then.epochs, then.samples) == (row.moved_epochs, row.moved_weight)
            task = Assignment(
                then.epochs, then.samples, row.moved_from, draw_seed(seed, row.moved_from, row.learner)
            )
            old = models[row.moved_from]
            new = update(old, int(row.learner), task)
            keyed = [{(key,): array for key, array in model.items()} for model in (new, old, now)]
            used.append(dict(zip(new, moved(*keyed), strict=True)))
            works.append(Work(then.epochs, row.moved_weight, HELD, record.cycle - row.moved_from + 1))
            came[row.learner, row.moved_from] = new
        for x in record.echoes:
            keyed = [
                {(key,): array for key, array in model.items()}
                for model in (came[x.learner, x.cycle], models[x.cycle], now)
            ]
            used.append(dict(zip(now, moved(*keyed), strict=True)))
            works.append(Work(x.epochs, x.weight, x.held, x.cycles))
        if used:
            found = blend(flwr_mel.orchestrator.Average(average), works)
            arrays = [
                scaled(list(x.values()), list(now.values()), factor)
                for x, factor in zip(used, found.factors, strict=True)
            ]
            now = dict(zip(now, weighted_average(arrays, found.weights), strict=True))
    return now


def trained(grid, cycles, **options):
    inner = MelFedAvg(fraction_evaluate=0.0, min_train_nodes=len(SPEEDS), min_available_nodes=len(SPEEDS))
    strategy = MelStrategy(inner, **({"cycle_time_s": T, "min_samples": HELD, "max_epochs": 9} | options))
    model = ArrayRecord({key: Array(a) for key, a in MODEL.items()})
    result = strategy.start(grid, model, num_rounds=cycles)
    return strategy, {key: a.numpy() for key, a in result.arrays.items()}


def assert_same(got, wanted):
    assert list(got) == list(wanted)
    for key in got:
        assert (got[key].dtype, got[key].tobytes()) == (
            np.asarray(wanted[key]).dtype,
            np.asarray(wanted[key]).tobytes(),
        )


def rows(strategy, learner):
    return [row for record in strategy.records for row in record.learners if row.learner == str(learner)]


@pytest.mark.parametrize("average", ["samples", "nova", "nova-held"])
@pytest.mark.parametrize("simulated", [False, True], ids=["real", "simulated"])
def test_a_slow_learner_works_across_cycles_and_the_records_give_the_same_bits(simulated, average, clock):
    calls = []
    grid = SlowGrid(fleet_app(simulated=simulated, calls=calls), clock, simulated=simulated)
    strategy, model = trained(grid, 9, average=average)
    slow = rows(strategy, 4)
    assert [row.span for row in slow if row.samples] == [3, 3, 3]
    used = [
        (record.cycle, row.moved_from)
        for record, row in zip(strategy.records, slow, strict=True)
        if row.moved_from
    ]
    assert used == [(3, 1), (6, 4), (9, 7)]
    assert all(row.outcome is Outcome.USED and row.epochs >= 4 for k in range(4) for row in rows(strategy, k))
    assert len(calls) == len(set(calls)) == 4 * 9 + 3
    again = [[(x.learner, x.cycle, x.left) for x in record.echoes] for record in strategy.records]
    if average == "nova-held":  # it counts in three cycles, as it took three
        two = [[[("4", begun, 1)], [("4", begun, 0)], []] for begun in (1, 4)]
        assert again == [[], [], [], *two[0], *two[1]]
        assert all(row.share > 0.1 for row in slow[2:])
    else:
        assert again == [[]] * 9
    assert_same(model, reference(strategy.records, average))


@pytest.mark.parametrize(("times", "cycles"), [(2.0, 1), (3.0, 2)])
def test_late_is_used_when_it_comes_and_nobody_waits(times, cycles, clock):
    calls = []
    grid = SlowGrid(fleet_app(simulated=False, calls=calls), clock, {(1, 2): times})
    strategy, model = trained(grid, 6, enforce_deadline=True)
    late = rows(strategy, 1)
    outcomes = ["used", "late", *["busy"] * cycles, *["used"] * (4 - cycles)]
    assert [str(row.outcome) for row in late] == outcomes
    came = [(n, row.moved_from, row.moved_weight) for n, row in enumerate(late, 1) if row.moved_from]
    assert came == [(2 + cycles, 2, HELD)]
    assert late[1].reason == "no reply in time"
    assert clock.now <= 12.5 + 5.1 * T
    assert len(calls) == len(set(calls))
    assert_same(model, reference(strategy.records))


def test_a_quorum_goes_on_and_the_others_are_not_called_late(clock):
    grid = SlowGrid(fleet_app(simulated=False, calls=[]), clock, {(0, 1): 5.0})
    strategy, model = trained(grid, 6, quorum=0.75, max_epochs=3)
    first = rows(strategy, 0)
    assert first[0].outcome is Outcome.BUSY
    assert [row.moved_from for row in first if row.moved_from] == [1]
    assert strategy.orchestrator.state.learners["1"].estimate is None
    assert clock.now < 4.5 * T
    assert_same(model, reference(strategy.records))


def test_cycles_do_not_run_by_while_everybody_is_at_work(clock):
    """Nobody can do its task within T, so that there is nobody to wait for: a cycle still takes its time."""
    calls, t = [], T / 6
    grid = SlowGrid(fleet_app(simulated=False, calls=calls), clock)
    strategy, model = trained(grid, 6, cycle_time_s=t)
    given = [row for record in strategy.records for row in record.learners if row.samples]
    assert min(row.span for row in given) > 1
    assert not any("given up" in note for record in strategy.records for note in record.notes)
    used = [(row.learner, row.moved_from) for r in strategy.records for row in r.learners if row.moved_weight]
    assert len(used) == len(set(used)) >= 2 * len(SPEEDS) - 2
    # Nor does a cycle last longer than T.
    assert 4 * t < clock.now <= 6.1 * t
    assert_same(model, reference(strategy.records))


def test_an_update_that_cannot_be_used_is_on_record_and_the_learner_works_on(clock, monkeypatch):
    grid = SlowGrid(fleet_app(simulated=False, calls=[]), clock)
    made = update

    def broken(model, learner, task):
        new = made(model, learner, task)
        return {**new, "w": new["w"] * np.nan} if (learner, task.cycle) == (4, 1) else new

    monkeypatch.setitem(globals(), "update", broken)
    strategy, _ = trained(grid, 6)
    slow = rows(strategy, 4)
    assert (slow[2].outcome, slow[2].moved_weight) == (Outcome.REFUSED, 0)
    assert "not finite" in slow[2].reason
    assert [row.moved_from for row in slow if row.moved_weight] == [4]


@pytest.mark.parametrize("average", ["samples", "nova-held"])
@pytest.mark.parametrize("simulated", [False, True], ids=["real", "simulated"])
@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_killed_and_resumed_nothing_is_lost_or_counted_twice(stop, simulated, average, clock, tmp_path):
    """The checkpoint has the tasks in progress and their models: they are sent again, and count once.

    It has updates that count again, too: they do so as often as if nothing had happened.
    """

    def grid():
        return SlowGrid(fleet_app(simulated=simulated, calls=calls), clock, simulated=simulated)

    calls = []
    through, whole = trained(grid(), 6, average=average)
    first, _ = trained(grid(), stop, checkpoints=tmp_path / "kept", average=average)
    calls.clear()
    second, model = trained(grid(), 6, checkpoints=tmp_path / "kept", average=average)
    records = second.records
    assert [record.cycle for record in records] == list(range(1, 7))
    assert [row.outcome for row in rows(second, 4)][:stop] == [row.outcome for row in rows(first, 4)]
    moved_from = [row.moved_from for row in rows(second, 4) if row.moved_from]
    assert len(moved_from) == len(set(moved_from)) >= 1
    assert calls.count((4, 1)) == (stop < 3)
    came = {(row.learner, row.moved_from): r.cycle for r in records for row in r.learners if row.moved_from}
    for (learner, begun), cycle in came.items():
        again = [r.cycle for r in records for x in r.echoes if (x.learner, x.cycle) == (learner, begun)]
        most = 0 if average == "samples" else cycle - begun
        assert again == list(range(cycle + 1, min(cycle + most, 6) + 1))
    assert_same(model, reference(records, average))
    if simulated:
        assert_same(model, whole)
        assert [r.echoes for r in records] == [r.echoes for r in through.records]


def test_old_models_are_kept_only_as_long_as_they_are_needed(clock):
    grid = SlowGrid(fleet_app(simulated=False, calls=[]), clock, {(4, 1): math.inf})
    strategy, _ = trained(grid, 12, max_span=3)
    assert any("given up" in note for record in strategy.records for note in record.notes)
    assert len(list(strategy._models)) <= 3
    assert not strategy.orchestrator.state.arrived


def test_the_classic_api_says_what_it_cannot_do():
    with pytest.raises(ValueError, match="whose rounds wait for every reply"):
        flwr_mel.server.MelStrategy(FedAvg(), cycle_time_s=1.0, stragglers="span")
    assert flwr_mel.server.MelStrategy(FedAvg(), cycle_time_s=1.0).orchestrator.settings.stragglers == "keep"
    made = MelStrategy(flower.FedAvg(), cycle_time_s=1.0)
    assert made.orchestrator.settings.stragglers == "span"
