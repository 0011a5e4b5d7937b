"""Nothing that one client sends ends a training or spoils the model; its client is named once."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from flwr_mel import Robust
from tests.cycle.tools import MODEL
from tests.strategies.fleet import FakeProxy, Fleet, planned, wrapped

ROUNDS = 3
BOUNDS = Robust(max_samples=10_000, max_share=0.5, max_norm_ratio=2.0)


def bfloat16(x):
    return np.asarray(x, np.float32).view(np.uint16)[..., 1::2].copy().view("V2").reshape(np.shape(x))


TYPES = {
    "int64": lambda x: np.full(x.shape, 10**15 + 1),
    "int64 that fits": lambda x: np.full(x.shape, 2**40),
    "float16": lambda x: (x + 1).astype(np.float16),
    "float64": lambda x: x + 1.0,
    "bfloat16": lambda x: bfloat16(x + 1),
    "complex64": lambda x: x.astype(np.complex64),
    "longdouble": lambda x: np.full(x.shape, np.longdouble("1e4000")),
    "bool": lambda x: np.ones(x.shape, bool),
}
#: What is not used; the others are cast.
REASONS = {
    "int64": "type int64, which cannot become float32",
    "bfloat16": "type bfloat16, which cannot become float32",
    "complex64": "type complex64, which cannot become float32",
    "longdouble": "not finite",
}


def warnings(caplog, client):
    return [r for r in caplog.records if r.levelname == "WARNING" and f"client {client}: " in r.getMessage()]


def honest(arrays):
    return {name: x + np.float32(1) for name, x in arrays.items()}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_arrays_of_another_type(api, kind, first):
    """The model keeps its type and its size, and the others go on, whoever is averaged first."""
    odd = 0 if first else 3

    def moves(k, cycle, arrays):
        return {n: TYPES[kind](x) for n, x in arrays.items()} if k == odd else honest(arrays)

    mel = wrapped(api, cycle_time_s=1.0, robust=BOUNDS)
    arrays = api.train(mel, Fleet(planned(), moves=moves), rounds=ROUNDS)
    assert {x.dtype for x in arrays.values()} == {np.dtype(np.float32)}
    assert 2 <= arrays["b"].min() <= arrays["b"].max() <= 2 * ROUNDS
    for record in mel.records:
        assert [row.outcome for k, row in enumerate(record.learners) if k != odd] == ["used"] * 3
        reason = record.learners[odd].reason
        assert REASONS.get(kind, "") in reason
        assert (record.learners[odd].outcome == "used") == (kind not in REASONS)


def content(arrays, metrics, name="arrays"):
    record = ArrayRecord({n: Array(np.asarray(x)) for n, x in arrays.items()})
    return RecordDict({name: record, **{n: MetricRecord(m) for n, m in metrics.items()}})


METRICS = {
    "none": {},
    "a missing one": {"metrics": {"num-examples": 60}},
    "one more": {"metrics": {"num-examples": 60, "loss": 1.0, "more": 2.0}},
    "a list": {"metrics": {"num-examples": 60, "loss": [1.0, 2.0]}},
    "another record": {"other": {"num-examples": 60, "loss": 1.0}},
    "several records": {"metrics": {"num-examples": 60, "loss": 1.0}, "other": {"loss": 1.0}},
    "no number of examples": {"metrics": {"loss": 1.0}},
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("odd", [*METRICS, "arrays of another name"])
def test_metrics_that_are_not_the_others(message_api, odd, first, caplog):
    """Flower's FedAvg ends the training if they differ; the mean of the loss is that of the others."""
    at = 0 if first else 3

    def moves(k, cycle, arrays):
        good = {"metrics": {"num-examples": 60, "loss": 1.0}}
        name = "model" if k == at and odd not in METRICS else "arrays"
        return content(honest(arrays), METRICS.get(odd, good) if k == at else good, name)

    mel = wrapped(message_api, cycle_time_s=1.0)
    arrays = message_api.train(mel, Fleet(planned(), moves=moves), rounds=ROUNDS)
    assert arrays["b"].tolist() == [ROUNDS] * 3
    for record in mel.records:
        assert {str(row.outcome) for row in record.learners} == {"used"}
        assert record.metrics == {"train-loss": 1.0}
    # The number of examples is replaced in any case.
    assert len(warnings(caplog, at)) == (odd != "no number of examples")


class OddMetrics(FakeProxy):
    """The classic API; in an evaluation as well."""

    def fit(self, ins, timeout, group_id):
        result = super().fit(ins, timeout, group_id)
        if self.k == 1:
            del result.metrics["loss"]
            result.metrics["more"] = "x"
        return result

    def evaluate(self, ins, timeout, group_id):
        result = super().evaluate(ins, timeout, group_id)
        if self.k == 1:
            result.metrics = {}
        if self.k == 2:
            result.num_examples = -10
        return result


def mean_of_first(pairs):
    """As projects write it: the names of the first client's metrics."""
    total = sum(n for n, _ in pairs)
    return {key: sum(n * m[key] for n, m in pairs) / total for key in pairs[0][1]}


def test_metrics_in_the_classic_api(classic_api, caplog, monkeypatch):
    monkeypatch.setattr("tests.strategies.fleet.FakeProxy", OddMetrics)
    options = {
        "fraction_evaluate": 1.0,
        "fit_metrics_aggregation_fn": mean_of_first,
        "evaluate_metrics_aggregation_fn": mean_of_first,
    }
    mel = wrapped(classic_api, inner=options, cycle_time_s=1.0)
    classic_api.train(mel, Fleet(planned()), rounds=2)
    for record in mel.records:
        assert record.metrics == {
            "train-loss": pytest.approx((0.5 + 2.5 + 3.5) / 3),
            "accuracy": 0.5,
            "loss": 1.0,
        }
    assert len(warnings(caplog, 1)) == 2  # in training and in evaluation
    assert len(warnings(caplog, 2)) == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"num-examples": 10},
        {"accuracy": [0.5], "num-examples": 10},
        {"num-examples": float("nan"), "accuracy": 9.0},
        {"num-examples": [1, 2], "accuracy": 9.0},
        {"num-examples": -10, "accuracy": 9.0},
    ],
)
def test_odd_evaluations(message_api, odd, caplog):
    evaluates = lambda k: odd if k == 1 else {"accuracy": 0.5}  # noqa: E731
    mel = wrapped(message_api, inner={"fraction_evaluate": 1.0}, cycle_time_s=1.0)
    message_api.train(mel, Fleet(planned(), evaluates=evaluates), rounds=2)
    assert [record.metrics["accuracy"] for record in mel.records] == [0.5, 0.5]
    assert len(warnings(caplog, 1)) == 1


class NoExamples(FakeProxy):
    def evaluate(self, ins, timeout, group_id):
        result = super().evaluate(ins, timeout, group_id)
        result.num_examples = 0
        return result


def test_evaluations_without_an_example(api, monkeypatch):
    """Flower would divide by their sum."""
    monkeypatch.setattr("tests.strategies.fleet.FakeProxy", NoExamples)
    mel = wrapped(api, inner={"fraction_evaluate": 1.0}, cycle_time_s=1.0)
    fleet = Fleet(planned(), evaluates=lambda _k: {"num-examples": 0, "accuracy": 1.0})
    api.train(mel, fleet, rounds=2)
    assert len(mel.records) == 2
    assert "accuracy" not in mel.records[-1].metrics


def test_the_only_reply_of_a_round_does_not_replace_the_model(api):
    """All others fail in one round; one client always returns another layout."""

    def moves(k, cycle, arrays):
        return {"x": np.full(2, 7, np.float32)} if k == 0 else honest(arrays)

    fleet = Fleet(planned(), moves=moves, errors={(2, k) for k in (1, 2, 3)})
    mel = wrapped(api, cycle_time_s=1.0)
    arrays = api.train(mel, fleet, rounds=4)
    assert {name: x.shape for name, x in arrays.items()} == {name: x.shape for name, x in MODEL.items()}
    assert arrays["b"].tolist() == [3.0] * 3
    assert [str(record.learners[1].outcome) for record in mel.records] == ["used", "failed", "used", "used"]


def test_one_full_model_among_adapters(message_api):
    """The server merges adapters; one client returns the whole model in every round."""
    api = message_api

    class Merging(api.flower.FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            self.current = arrays
            return super().configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round, replies):
            adapters, metrics = super().aggregate_train(server_round, replies)
            step = adapters["lora"].numpy().mean()
            return ArrayRecord({n: Array(x.numpy() + step) for n, x in self.current.items()}), metrics

    def moves(k, cycle, arrays):
        return honest(arrays) if k == 3 else {"lora": np.full(2, 1, np.float32)}

    # In the second round only one client answers beside the odd one, in the third none.
    errors = {(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)}
    mel = api.mel.MelStrategy(api.inner(Merging), cycle_time_s=1.0)
    arrays = api.train(mel, Fleet(planned(), moves=moves, errors=errors), rounds=4)
    assert arrays["b"].tolist() == [3.0] * 3
    outcomes = [[str(row.outcome)[0] for row in record.learners] for record in mel.records]
    assert outcomes == [list("uuur"), list("ffur"), list("fffr"), list("uuur")]


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_replies_are_bounded(api, n):
    """Compared with the rounds before."""

    def moves(k, cycle, arrays):
        huge = cycle > 2 and k == 0
        return {name: x + np.float32(1e14 if huge else 1) for name, x in arrays.items()}

    errors = {(cycle, k) for cycle in (3, 4) for k in range(n, 4)}
    mel = wrapped(api, cycle_time_s=1.0, robust=BOUNDS)
    arrays = api.train(mel, Fleet(planned(), moves=moves, errors=errors), rounds=4)
    assert 2 < arrays["b"].max() <= 2 + 2 + 4
    assert "update scaled" in mel.records[2].learners[0].bounded


def test_arrays_in_another_order(message_api):
    """Averages go by name, whoever is first."""
    api = message_api

    def moves(k, cycle, arrays):
        new = {"a": np.full(1, 1, np.float32), "b": np.full(1, 100, np.float32)}
        return new if k else dict(reversed(new.items()))

    model = {"a": np.zeros(1, np.float32), "b": np.zeros(1, np.float32)}
    for kind in (api.mel.MelFedAvg, "FedMedian"):
        mel = api.mel.MelStrategy(api.inner(kind), cycle_time_s=1.0)
        arrays = api.train(mel, Fleet(planned(), moves=moves), rounds=1, model=model)
        assert {name: float(x[0]) for name, x in arrays.items()} == {"a": 1.0, "b": 100.0}


def test_a_mask_cannot_be_made_nan(api):
    """A NaN where the model has -inf would stay in it."""
    model = {"mask": np.array([0.0, -np.inf]), "w": np.zeros(2)}

    def moves(k, cycle, arrays):
        return {"mask": np.array([0.0, np.nan if k == 0 else -np.inf]), "w": arrays["w"] + 1}

    mel = wrapped(api, cycle_time_s=1.0)
    with np.errstate(invalid="ignore"):
        arrays = api.train(mel, Fleet(planned(), moves=moves), rounds=2, model=model)
    assert arrays["mask"].tolist() == [0.0, -np.inf]
    assert arrays["w"].tolist() == [2.0, 2.0]
