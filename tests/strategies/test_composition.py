"""Whatever trains unwrapped also trains wrapped, to the bit where the work is the same."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from flwr_mel import Robust, wire
from tests.cycle.tools import MODEL, App
from tests.strategies.fleet import APIS, COSTS, Fleet, close, moves, planned, same

#: All clients hold as many samples and do one epoch: the work is what the unwrapped project does.
TRIVIAL = {"cycle_time_s": 10.0, "max_epochs": 1}
STRATEGIES = {
    "FedAvg": {},
    "FedAdam": {},
    "FedAdagrad": {},
    "FedYogi": {},
    "FedAvgM": {"server_momentum": 0.9},
    "FedProx": {"proximal_mu": 0.1},
    "FedMedian": {},
    "FedTrimmedAvg": {"beta": 0.2},
    "Krum": {},
    "QFedAvg": {},
}


#: The arrays of models as Flower projects send them.
ZOO = {
    "BatchNorm CNN": {
        "conv.weight": np.linspace(-1, 1, 27, dtype=np.float32).reshape(3, 1, 3, 3),
        "bn.running_mean": np.zeros(3, np.float32),
        "bn.running_var": np.ones(3, np.float32),
        "bn.num_batches_tracked": np.array(0),
    },
    "mask of -inf": {"mask": np.array([0.0, 0.0, -np.inf]), "weight": np.ones((3, 4))},
    "scikit-learn": {"coef": np.zeros((3, 4)), "intercept": np.zeros(3), "classes": np.arange(3)},
    "quantised": {
        "weight": np.arange(-6, 6, dtype=np.int8).reshape(3, 4),
        "codes": np.arange(5, dtype=np.uint8),
        "half": np.linspace(-1, 1, 4, dtype=np.float16),
        "zero_point": np.array(3, np.int32),
        "temperature": np.array(0.5),
        "none": np.zeros((0, 4), np.float32),
    },
    "pruned": {"weight": np.linspace(-1, 1, 6, dtype=np.float32), "mask": np.arange(6) % 2 == 0},
}


def steps(k, cycle, arrays):
    """Move arrays of any type a little."""
    rng, new = np.random.default_rng([k, cycle]), {}
    for name, x in arrays.items():
        if x.dtype.kind == "b":
            new[name] = rng.random(x.shape) < 0.5
        elif x.dtype.kind == "f":
            new[name] = np.asarray(x + 0.01 * rng.normal(size=x.shape)).astype(x.dtype)
        else:
            new[name] = np.asarray(x + rng.integers(0, 3, x.shape)).astype(x.dtype)
    return new


def inner_of(api, kind):
    options = dict(STRATEGIES.get(kind, {}))
    if kind == "Krum":
        options["num_malicious_nodes" if api.name == "message" else "num_malicious_clients"] = 1
    if kind == "QFedAvg":
        options["client_learning_rate" if api.name == "message" else "qffl_learning_rate"] = 0.1
        if api.name == "message":
            options["train_loss_key"] = "loss"
        else:  # its loss is the server's
            options["evaluate_fn"] = lambda *_: (0.5, {})
    return api.inner(kind, **options)


def trained(api, strategy, **fleet):
    np.random.seed(7)  # noqa: NPY002 - the noise of Flower's DP strategies comes from there
    return api.train(strategy, Fleet(planned(5), **({"moves": moves} | fleet)), rounds=3)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_strategies_of_flower(api, kind):
    plain = trained(api, inner_of(api, kind))
    wrapped = trained(api, api.mel.MelStrategy(inner_of(api, kind), **TRIVIAL))
    assert not same(plain, MODEL)
    assert close(plain, wrapped)


def dp(api, strategy):
    return api.flower.DifferentialPrivacyServerSideFixedClipping(strategy, 0.1, 1.0, 5)


def test_differential_privacy_inside_and_outside(api):
    plain = trained(api, dp(api, api.inner()))
    inside = trained(api, api.mel.MelStrategy(dp(api, api.inner()), **TRIVIAL))
    mel = api.mel.MelStrategy(api.inner(), **TRIVIAL)
    outside = trained(api, dp(api, mel))
    assert len(mel.records) >= 2
    assert close(plain, inside)
    assert close(plain, outside)


@pytest.mark.parametrize("name", ZOO)
def test_models(api, name):
    """Also arrays that Flower's average turns into numbers, or makes infinite."""

    def run(strategy):
        with np.errstate(invalid="ignore"):
            return api.train(strategy, Fleet(planned(3), moves=steps), model=ZOO[name])

    assert close(run(api.inner()), run(api.mel.MelStrategy(api.inner(), **TRIVIAL)))


@pytest.mark.parametrize("name", ["BatchNorm CNN", "mask of -inf", "quantised"])
def test_models_with_fednova_and_bounds(api, name):
    """Scaled updates keep types and shapes."""
    model = ZOO[name]
    apps = [App(held=60, capability=COSTS | {wire.COEFFICIENTS[0]: 1e-3 * s}) for s in (1, 2, 5, 9)]
    bounds = Robust(max_norm_ratio=2.0, max_share=0.4)
    mel = api.mel.MelStrategy(api.inner(), cycle_time_s=0.4, average="nova", robust=bounds)
    with np.errstate(invalid="ignore"):
        arrays = api.train(mel, Fleet(apps, moves=steps), model=model)
    assert {n: x.shape for n, x in arrays.items()} == {n: x.shape for n, x in model.items()}
    assert len(mel.records) == 3
    assert all(row.outcome == "used" for record in mel.records for row in record.learners if row.asked)


def test_clients_that_return_adapters_only(message_api):
    """The server sends the whole model, and a strategy of the project's own merges what comes back."""
    api = message_api

    class Merging(api.flower.FedAvg):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            return ArrayRecord({**self.whole, **arrays}), metrics

        def configure_train(self, server_round, arrays, config, grid):
            self.whole = dict(arrays)
            return super().configure_train(server_round, arrays, config, grid)

    def adapters(k, cycle, arrays):
        return {"b": arrays["b"] + np.float32(k)}

    fleet = Fleet(planned(3), moves=adapters)
    arrays = api.train(api.mel.MelStrategy(api.inner(Merging), **TRIVIAL), fleet, rounds=2)
    assert arrays["b"].tolist() == [2.0, 2.0, 2.0]
    assert arrays["w"].tolist() == MODEL["w"].tolist()


def test_replies_with_other_records(message_api):
    """Several ArrayRecords and MetricRecords, for a strategy that knows what they are."""
    api = message_api

    class Several(api.flower.FedAvg):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            self.weights = [reply.content["mine"]["num-examples"] for reply in replies]
            self.seen = [sorted(reply.content) for reply in replies]
            return replies[0].content["arrays"], None

    def content(k, cycle, arrays):
        record = ArrayRecord({name: Array(x + 1) for name, x in arrays.items()})
        metrics = MetricRecord({"num-examples": 60})
        control = ArrayRecord({"c": Array(np.zeros(2))})
        return RecordDict(
            {"arrays": record, "control": control, "mine": metrics, "other": MetricRecord({"x": 1})}
        )

    inner = api.inner(Several)
    mel = api.mel.MelStrategy(inner, **TRIVIAL)
    arrays = api.train(mel, Fleet(planned(3), moves=content), rounds=2)
    assert arrays["b"].tolist() == [2.0, 2.0, 2.0]
    assert inner.weights == [60, 60, 60]
    assert inner.seen[0] == ["arrays", "control", "mine", "other"]


def test_an_average_that_a_strategy_would_undo(api):
    for kind in ("FedMedian", "Krum"):
        with pytest.raises(ValueError, match="does not average updates by their weights"):
            api.mel.MelStrategy(inner_of(api, kind), average="nova")
    assert api.mel.MelStrategy(dp(api, api.inner()), average="nova-held")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda api: api.flower.FedAvg, r"the class FedAvg.*MelStrategy\(FedAvg\(...\)\)"),
        (lambda api: api.mel.MelStrategy(api.inner()), "Wrap it once"),
        (lambda api: dp(api, api.mel.MelStrategy(api.inner())), "Wrap it once"),
        (lambda api: 3, "a flwr.* object, got 3"),
        (lambda api: None, "object, got None"),
        (lambda api: api.flower.FedXgbBagging(), "whose updates are trees"),
    ],
)
def test_what_cannot_be_wrapped(api, make, text):
    with pytest.raises(ValueError, match=text):
        api.mel.MelStrategy(make(api))


def test_a_strategy_of_the_other_api(api):
    (other,) = [x for x in APIS.values() if x is not api]
    with pytest.raises(ValueError, match=other.mel.MelStrategy.__module__.replace(".", r"\.")):
        api.mel.MelStrategy(other.inner())


def test_a_privacy_accountant_needs_equal_weights(api):
    class Private(api.flower.FedAvg):
        accountant = object()

    with pytest.raises(ValueError, match="accountant"):
        api.mel.MelStrategy(api.inner(Private))


def test_attributes_of_the_wrapped_strategy(api):
    class Saving(api.flower.FedAvg):
        path = ""

        def set_save_path(self, path):
            self.path = path

    mel = api.mel.MelStrategy(api.inner(Saving))
    mel.set_save_path("here")
    assert mel.path == mel.strategy.path == "here"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = mel.no_such_thing
