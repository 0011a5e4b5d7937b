"""Updates that count again, as wrapped strategies see them: replies like others, whose metrics weigh nothing.

Learners, clock and reference are those of `test_across_cycles`.
"""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flwr_mel.checkpoint import Checkpoints
from flwr_mel.clientapp import Assignment, MelMod
from flwr_mel.serverapp import MelFedAvg, MelStrategy
from tests.strategies.test_across_cycles import (
    HELD,
    MODEL,
    SPEEDS,
    Said,
    SlowGrid,
    T,
    assert_same,
    clock,
    costs,
    reference,
    rows,
    update,
)

__all__ = ["clock"]
HUGE = 4  # the slow one


class Seen(MelFedAvg):
    """Remembers what it was given, and what it made of the metrics."""

    def __init__(self, **options):
        super().__init__(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4, **options)
        self.given, self.losses = [], []

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.given.append([(r.metadata.src_node_id, dict(r.content["metrics"]), r.content) for r in replies])
        model, metrics = super().aggregate_train(server_round, replies)
        self.losses.append(metrics["loss"])
        return model, metrics


def app(times=1.0):
    client = ClientApp(mods=[Said(False), MelMod([costs(speed) for speed in SPEEDS])])

    @client.train()
    def train(message, context):
        task, k = Assignment.from_message(message), context.node_config["partition-id"]
        given = {key: a.numpy() for key, a in message.content["arrays"].items()}
        new = update(given, k, task)
        if k == HUGE:
            new = {**new, "w": (given["w"] + times * (new["w"] - given["w"])).astype(np.float32)}
        arrays = ArrayRecord({key: Array(a) for key, a in new.items()})
        loss = 100.0 * task.cycle if k == HUGE else float(task.cycle)
        metrics = MetricRecord({"num-examples": task.samples, "loss": loss, "several": [loss, 1.0]})
        content = RecordDict({"arrays": arrays, "metrics": metrics, "own": ConfigRecord({"k": k})})
        return Message(content, reply_to=message)

    return client


def run(grid, cycles, inner=None, **options):
    given = {"cycle_time_s": T, "min_samples": HELD, "max_epochs": 9, "average": "nova-held"} | options
    strategy = MelStrategy(inner or Seen(), **given)
    model = ArrayRecord({key: Array(a) for key, a in MODEL.items()})
    result = strategy.start(grid, model, num_rounds=cycles)
    return strategy, {key: a.numpy() for key, a in result.arrays.items()}


def test_metrics_count_once_and_the_reply_is_one_like_others(clock):
    strategy, model = run(SlowGrid(app(), clock), 6)
    assert_same(model, reference(strategy.records, "nova-held"))
    nodes = [[node for node, *_ in given] for given in strategy.given]
    assert nodes == [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5],
                     [1, 2, 3, 4, 5]]  # fmt: skip
    # In cycle 3 it came, and its loss of cycle 1 is in the mean; in 4 and 5 it is not.
    weights = [[said["num-examples"] for _, said, _ in given] for given in strategy.given]
    assert weights[2] == weights[3] == [HELD] * 4 + [round(HELD / np.sqrt(3))]
    assert strategy.losses[2] == pytest.approx((4 * HELD * 3 + weights[2][4] * 100) / sum(weights[2]))
    assert strategy.losses[3:5] == pytest.approx([4.0, 5.0])
    assert strategy.given[3][4][1]["several"] == pytest.approx([4.0, 1.0])
    assert strategy.given[3][4][2]["own"]["k"] == 4
    assert [strategy.records[n].metrics["train-loss"] for n in (3, 4)] == pytest.approx([4.0, 5.0])


def test_a_learner_that_left_counts_on_and_nothing_is_kept_longer_than_needed(clock):
    grid = SlowGrid(app(), clock)
    inner, kept = Seen(), []

    def look(record):
        kept.append((sorted(strategy._models), sorted(strategy._models.updates)))
        if record.cycle == 3:
            del grid.contexts[5]

    given = {"cycle_time_s": T, "min_samples": HELD, "max_epochs": 9, "average": "nova-held"}
    strategy = MelStrategy(inner, callbacks=[look], **given)
    result = strategy.start(grid, ArrayRecord({k: Array(a) for k, a in MODEL.items()}), num_rounds=7)
    assert [len(given) for given in inner.given] == [4, 4, 5, 5, 5, 4, 4]
    assert inner.given[4][4][0] == 5
    assert [[x.learner for x in r.echoes] for r in strategy.records] == [[], [], [], ["4"], ["4"], [], []]
    assert kept[2:] == [
        ([1, 3], ["4 (cycle 1)"]),
        ([1, 4], ["4 (cycle 1)"]),
        ([1, 5], []),
        ([6], []),
        ([7], []),
    ]
    model = {key: a.numpy() for key, a in result.arrays.items()}
    assert_same(model, reference(strategy.records, "nova-held"))


def test_who_was_cut_back_is_cut_back_again_and_after_a_resume(clock, tmp_path):
    options = {"max_norm_ratio": 2.0, "max_share": None}
    whole, model = run(SlowGrid(app(1e4), clock), 5, **options)
    slow = rows(whole, 4)
    assert "it was cut back" in slow[2].bounded
    for given in whole.given[2:5]:  # its change is as large as before, not ten thousand times
        sizes = [float(np.abs(content["arrays"]["w"].numpy()).max()) for *_, content in given]
        assert sizes[4] < 10 * max(sizes[:4])
    run(SlowGrid(app(1e4), clock), 3, checkpoints=tmp_path, **options)
    (kept,) = Checkpoints(tmp_path).load().updates.values()
    assert 0 < kept["factor"] < 1e-2
    assert kept["node"] == 5
    resumed, again = run(SlowGrid(app(1e4), clock), 5, checkpoints=tmp_path, **options)
    assert [len(given) for given in resumed.given] == [5, 5]
    assert [len(record.echoes) for record in resumed.records] == [0, 0, 0, 1, 1]
    assert_same(again, model)


def test_what_does_not_fit_any_more_is_told(clock):
    """As when a checkpoint of another hand lacks it: said on the record, and the others go on."""
    grid = SlowGrid(app(), clock)

    def lose(record):
        if record.cycle == 3:
            strategy._models.updates.clear()

    given = {"cycle_time_s": T, "min_samples": HELD, "max_epochs": 9, "average": "nova-held"}
    strategy = MelStrategy(Seen(), callbacks=[lose], **given)
    strategy.start(grid, ArrayRecord({k: Array(a) for k, a in MODEL.items()}), num_rounds=4)
    assert [len(given) for given in strategy.given] == [4, 4, 5, 4]
    note = "4: its update of cycle 1 does not count again: it, or the model that it began with, is not there"
    assert any(text.startswith(note) for text in strategy.records[3].notes)
