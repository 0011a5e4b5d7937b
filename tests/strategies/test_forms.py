"""Updates in all forms that train under the plain strategy: partial, renamed, of other types and weights."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.server import strategy as classic
from flwr.serverapp import strategy as message

from flwr_mel.records import Outcome
from tests.strategies.drive import SAMPLES, outcomes, run, same_bits

MODEL = {"base": np.ones((2, 2), np.float32), "lora": np.zeros(3, np.float32)}


def inner(api, **options):
    if api == "message":
        return message.FedAvg(min_train_nodes=3, min_available_nodes=3, **options)
    return classic.FedAvg(min_fit_clients=3, min_available_clients=3, **options)


def both(api, client, model=MODEL, **options):
    """Train plain and wrapped; return both drivers after comparing them."""
    make = {"key": options["key"]} if "key" in options else {}
    strategies = [inner(api, **({"weighted_by_key": options["key"]} if make else {})) for _ in range(2)]
    plain = run(api, strategies[0], model, client, wrapped=False, **make)
    wrapped = run(api, strategies[1], model, client, **make)
    assert {row[2:] for row in outcomes(wrapped)} == {("used", "")}
    assert same_bits(wrapped.arrays(), plain.arrays())
    return wrapped


def moved(arrays, k):
    return {name: a + a.dtype.type(0.1 * (k + 1)) for name, a in arrays.items()}


def test_adapters_that_clients_send_back_alone():
    wrapped = both("message", lambda k, cycle, a: (moved({"lora": a["lora"]}, k), {}))
    assert list(wrapped.arrays()) == ["lora"]


def test_arrays_that_the_server_has_never_seen():
    def client(k, cycle, arrays):
        return {"head": np.full(4, k + cycle, np.float64), "tail": np.full((1, 2), k, np.float32)}, {}

    for model in ({"placeholder": np.zeros(0)}, MODEL):
        assert list(both("message", client, model).arrays()) == ["head", "tail"]


def test_fewer_arrays_in_the_classic_api():
    client = lambda k, cycle, a: ({"lora": np.full(3, k, np.float32)}, {})  # noqa: E731
    plain = run("classic", inner("classic"), MODEL, client, cycles=1, wrapped=False)
    wrapped = run("classic", inner("classic"), MODEL, client, cycles=1)
    assert wrapped.model.tensors == plain.model.tensors
    assert len(wrapped.model.tensors) == 1


class Merging(message.FedAvg):
    """Puts the adapters back into the whole model, as projects with adapters do."""

    def configure_train(self, server_round, arrays, config, grid):
        self.whole = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        return ArrayRecord({**self.whole, **arrays}), metrics


def test_adapters_that_the_strategy_puts_back():
    client = lambda k, cycle, a: (moved({"lora": a["lora"]}, k), {})  # noqa: E731
    strategy = Merging(min_train_nodes=3, min_available_nodes=3)
    wrapped = run("message", strategy, MODEL, client)
    assert {row[2] for row in outcomes(wrapped)} == {"used"}
    assert list(wrapped.arrays()) == ["base", "lora"]
    np.testing.assert_allclose(wrapped.arrays()["lora"], 0.6, rtol=1e-6)


def test_one_learner_does_not_choose_the_arrays():
    """Neither alone, because the others fail, nor beside them."""

    def client(k, cycle, arrays):
        if k == 0:
            return {"lora": np.full(3, 9, np.float32)}, {}
        return (moved(arrays, k) if cycle != 2 else {**arrays, "base": np.full((2, 2), np.nan)}), {}

    wrapped = run("message", inner("message"), MODEL, client, cycles=3)
    first = ["refused"] + ["used"] * 2
    assert [row[2] for row in outcomes(wrapped)] == first + ["refused"] * 3 + first
    assert "1 arrays instead of 2: base" in {row[3] for row in outcomes(wrapped)}
    assert list(wrapped.arrays()) == ["base", "lora"]


class TwoRecords(message.FedAvg):
    """Takes two ArrayRecords from everybody."""

    def aggregate_train(self, server_round, replies):
        contents = [reply.content for reply in replies]
        assert all(list(c.array_records) == ["model", "control"] for c in contents)
        mean = np.mean([c["model"]["lora"].numpy() + c["control"]["c"].numpy() for c in contents], axis=0)
        return ArrayRecord({"lora": Array(mean)}), None


def test_several_array_records():
    def client(k, cycle, arrays):
        model = ArrayRecord({"lora": Array(np.full(3, k, np.float32))})
        control = ArrayRecord({"c": Array(np.ones(3, np.float32))})
        said = MetricRecord({"num-examples": SAMPLES})
        return RecordDict({"model": model, "control": control, "metrics": said}), None

    strategy = TwoRecords(min_train_nodes=3, min_available_nodes=3)
    wrapped = run("message", strategy, {"lora": MODEL["lora"]}, client)
    assert {row[2] for row in outcomes(wrapped)} == {"used"}
    assert wrapped.arrays()["lora"].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("api", ["message", "classic"])
@pytest.mark.parametrize("sent", [np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("held", [np.float64, np.float16, np.int64])
def test_clients_whose_types_differ_from_the_models(api, sent, held):
    def client(k, cycle, arrays):
        return {"a": np.asarray(arrays["a"] + (k + 1)).astype(sent), "b": np.array(k, sent)}, {}

    both(api, client, {"a": np.arange(3).astype(held), "b": np.array(1, held)})


@pytest.mark.parametrize("api", ["message", "classic"])
def test_one_client_in_half_precision(api):
    """Flower's averages take the type of the first: it must not be the odd one's."""

    def client(k, cycle, arrays):
        new = moved(arrays, k)
        return ({name: a.astype(np.float16) for name, a in new.items()} if k == 0 else new), {}

    wrapped = run(api, inner(api), MODEL, client)
    assert {row[2] for row in outcomes(wrapped)} == {"used"}
    assert {a.dtype for a in wrapped.arrays().values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("api", ["message", "classic"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen_in_every_precision(api, kind, value):
    """Also where most send another one, in which larger numbers are fine."""
    model = {"w": np.zeros(3, kind if kind is np.complex64 else np.float32)}

    def client(k, cycle, arrays):
        return {"w": np.full(3, value, kind) if k == 1 else model["w"] + model["w"].dtype.type(1)}, {}

    wrapped = run(api, inner(api), model, client)
    assert [row[2] for row in outcomes(wrapped)] == ["used", "refused", "used"] * 3
    assert outcomes(wrapped)[1][3].endswith("has values that are not finite")


@pytest.mark.parametrize("api", ["message", "classic"])
@pytest.mark.parametrize("evil", [np.int64, np.complex128, "U3", "V2"])
def test_one_client_of_another_kind_is_refused(api, evil):
    """First in the order, whole numbers would make Flower's classic average round everybody's to zero."""

    def client(k, cycle, arrays):
        new = moved(arrays, k)
        return ({name: np.zeros(a.shape, evil) for name, a in new.items()} if k == 0 else new), {}

    wrapped = run(api, inner(api), MODEL, client)
    assert [row[2] for row in outcomes(wrapped)] == ["refused", "used", "used"] * 3
    assert "instead of float32" in outcomes(wrapped)[0][3]


def bfloat16(values):
    """Numpy has no such type: its bytes travel as they are, as those of ml_dtypes do."""
    bits = np.asarray(values, np.float32).view(np.uint32) >> 16
    return bits.astype(np.uint16).view("V2")


class Bfloat16Avg(message.FedAvg):
    def aggregate_train(self, server_round, replies):
        arrays = [reply.content["arrays"]["w"] for reply in replies]
        assert {a.dtype for a in arrays} == {"bfloat16"}
        wide = [a.numpy().view(np.uint16).astype(np.uint32) << 16 for a in arrays]
        mean = bfloat16(np.mean([w.view(np.float32) for w in wide], axis=0))
        return ArrayRecord({"w": as_bfloat16(mean)}), None


def as_bfloat16(array):
    plain = Array(array)
    return Array("bfloat16", plain.shape, plain.stype, plain.data)


def test_bfloat16():
    def client(k, cycle, arrays):
        value = np.nan if (k, cycle) == (1, 2) else np.inf if (k, cycle) == (2, 2) else 2.0 * k
        return {"w": as_bfloat16(bfloat16([value, 1.0]))}, {}

    strategy = Bfloat16Avg(min_train_nodes=3, min_available_nodes=3)
    wrapped = run("message", strategy, {"w": bfloat16([1.0, 1.0])}, client)
    assert [row[2] for row in outcomes(wrapped)] == ["used"] * 4 + ["refused"] * 2 + ["used"] * 3
    assert "not finite" in outcomes(wrapped)[4][3]
    assert wrapped.arrays()["w"].tobytes() == bfloat16([2.0, 1.0]).tobytes()


@pytest.mark.parametrize("api", ["message", "classic"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (-np.inf, np.float32),
        (np.inf, np.float32),
        (-np.inf, np.float16),
        (-np.inf, np.float64),
        (np.finfo(np.float32).min, np.float32),
        (1e16, np.float32),
    ],
)
def test_values_that_the_model_holds_too(api, value, kind):
    model = {"w": np.zeros(3, np.float32), "mask": np.array([[0, value], [0, 0]], kind)}
    fixed = {"mask": model["mask"]}
    both(api, lambda k, cycle, a: ({**moved(a, k), **fixed}, {}), model)
    # But only where the model holds them.
    turned = {"mask": model["mask"].T}
    wrapped = run(api, inner(api), model, lambda k, cycle, a: ({**a, **(turned if k == 0 else fixed)}, {}))
    assert [row[2] for row in outcomes(wrapped)] == ["refused", "used", "used"] * 3
    flipped = {"mask": -model["mask"]}
    wrapped = run(api, inner(api), model, lambda k, cycle, a: ({**a, **(flipped if k == 0 else fixed)}, {}))
    assert [row[2] for row in outcomes(wrapped)] == ["refused", "used", "used"] * 3


@pytest.mark.parametrize("key", ["num-examples", "n", "quality"])
def test_weights_by_any_key_and_in_fractions(key):
    """The server's own numbers count: here everybody's are the same, so the average is the plain one."""
    for weight in (0.25, 2.5, SAMPLES) if key != "quality" else (0.25, 1.0):
        client = lambda k, cycle, a, w=weight: (moved(a, k), {key: w})  # noqa: E731
        wrapped = both("message", client, key=key)
        weights = {row.weight for record in wrapped.strategy.records for row in record.learners}
        assert weights == {SAMPLES}


@pytest.mark.parametrize("api", ["message", "classic"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_a_metric_that_is_no_number_costs_the_metric(api, bad):
    def client(k, cycle, arrays):
        said = {"loss": bad if k == 0 else float(k), "parts": [bad, 1.0] if k == 1 else [3.0, 1.0]}
        return moved(arrays, k), said if api == "message" else {"loss": said["loss"]}

    def join(metrics):
        return {"loss": sum(n * m["loss"] for n, m in metrics) / sum(n for n, _ in metrics)}

    strategy = inner(api) if api == "message" else inner(api, fit_metrics_aggregation_fn=join)
    wrapped = run(api, strategy, MODEL, client)
    assert {row[2] for row in outcomes(wrapped)} == {"used"}
    assert wrapped.metrics["loss"] == pytest.approx(1.5)
    if api == "message":
        assert wrapped.metrics["parts"] == pytest.approx([3.0, 1.0])
    assert wrapped.strategy.records[-1].metrics["train-loss"] == pytest.approx(1.5)


def test_a_metric_that_is_no_number_for_most_stays_none():
    client = lambda k, cycle, a: (moved(a, k), {"loss": np.nan if k else 1.0})  # noqa: E731
    wrapped = run("message", inner("message"), MODEL, client)
    assert {row[2] for row in outcomes(wrapped)} == {"used"}
    assert np.isnan(wrapped.metrics["loss"])


@pytest.mark.parametrize("api", ["message", "classic"])
def test_updates_are_handed_on_as_they_came(api):
    seen, sent = [], []
    strategy = inner(api)
    name = "aggregate_train" if api == "message" else "aggregate_fit"
    aggregate = getattr(strategy, name)

    def look(cycle, replies, *rest):
        for reply in replies:
            data = (
                [a.data for a in reply.content["arrays"].values()]
                if api == "message"
                else reply[1].parameters.tensors
            )
            seen.append(data)
        return aggregate(cycle, replies, *rest)

    setattr(strategy, name, look)

    def client(k, cycle, arrays):
        new = {name: np.asfortranarray(a) for name, a in moved(arrays, k).items()}
        sent.append([Array(a).data for a in new.values()])
        return new, {"loss": 1.0}

    run(api, strategy, MODEL, client)
    assert seen == sent
    assert Outcome.USED == "used"
