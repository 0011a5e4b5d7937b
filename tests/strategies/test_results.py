"""What the wrapped strategy makes of the updates is checked too: the old one stays, training goes on."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.common import ndarrays_to_parameters
from flwr.server import strategy as classic
from flwr.serverapp import strategy as message

from tests.strategies.drive import APIS, TRIVIAL, outcomes, run, same_bits

MODEL = {"w": np.zeros(4, np.float32), "b": np.zeros(2, np.float32)}
NODES = {"min_train_nodes": 3, "min_available_nodes": 3}
CLIENTS = {"min_fit_clients": 3, "min_available_clients": 3}


def steps(k, cycle, arrays):
    return {name: a + np.float32(0.5) for name, a in arrays.items()}, {"train_loss": 1.0}


def test_a_loss_below_zero_does_not_end_qfedavg():
    def client(k, cycle, arrays):
        new, _ = steps(k, cycle, arrays)
        return new, {"train_loss": -1.0 if (k, cycle) == (1, 2) else 1.0}

    inner = message.QFedAvg(client_learning_rate=0.1, **NODES)
    with np.errstate(invalid="ignore"):
        driver = run("message", inner, MODEL, client, cycles=2)
    after = driver.arrays()
    assert all(np.isfinite(a).all() for a in after.values())
    (record,) = driver.strategy.records[1:]
    words = "the model that QFedAvg made has values that are not finite (array w)"
    assert [(r.learner, r.outcome, r.weight, r.reason) for r in record.learners] == [
        (str(k), "refused", 0, words) for k in range(3)
    ]
    assert f"{words}: the old one stays. It was made of the updates of 0, 1, 2" in record.notes
    driver.cycle(3, client)
    assert [r.outcome for r in driver.strategy.orchestrator.record.learners] == ["used"] * 3
    assert all((driver.arrays()[name] > after[name]).all() for name in MODEL)


def test_qfedavg_is_given_a_loss_by_everybody():
    """One learner without it would end the run."""
    client = lambda k, cycle, a: (steps(k, cycle, a)[0], {} if k == 2 else {"train_loss": 1.0})  # noqa: E731
    driver = run("message", message.QFedAvg(client_learning_rate=0.1, **NODES), MODEL, client)
    assert [row[2] for row in outcomes(driver)] == ["used", "used", "refused"] * 3
    assert outcomes(driver)[2][3] == "its metrics lack train_loss, which the strategy needs"


def wrong(api, arrays):
    if api == "message":
        return ArrayRecord({name: Array(a) for name, a in arrays.items()})
    return ndarrays_to_parameters(list(arrays.values()))


WRONG = {
    "NaN": {**MODEL, "b": np.full(2, np.nan)},
    "inf": {**MODEL, "b": np.full(2, np.inf, np.float32)},
    "shape": {**MODEL, "b": np.zeros(3)},
    "fewer": {"w": MODEL["w"]},
    "more": {**MODEL, "c": np.zeros(1)},
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_model_is_refused(api, kind):
    inner = message.FedAvg(**NODES) if api == "message" else classic.FedAvg(**CLIENTS)
    name = "aggregate_train" if api == "message" else "aggregate_fit"
    right = getattr(inner, name)

    def sometimes(cycle, *rest):
        model, metrics = right(cycle, *rest)
        return (wrong(api, WRONG[kind]) if cycle == 2 else model), metrics

    setattr(inner, name, sometimes)
    driver = run(api, inner, MODEL, steps)
    assert [row[2] for row in outcomes(driver)] == ["used"] * 3 + ["refused"] * 3 + ["used"] * 3
    for array in driver.arrays().values():
        np.testing.assert_array_equal(array, 1.0)  # two steps of the three


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ["FedAdam", "FedYogi", "FedAvgM"])
def test_a_spoilt_state_does_not_spoil_the_next_model(api, name):
    """Moments and momenta that are NaN would make every later model NaN."""
    options = {"server_momentum": 0.9} if name == "FedAvgM" else {}
    if api == "message":
        inner = getattr(message, name)(**NODES, **options)
    else:
        first = ndarrays_to_parameters(list(MODEL.values()))
        inner = getattr(classic, name)(initial_parameters=first, **CLIENTS, **options)
    knob = "server_momentum" if name == "FedAvgM" else "beta_1"
    driver = APIS[api](APIS[api].strategy(inner, **TRIVIAL), 3, MODEL)
    driver.cycle(1, steps)
    before, right = driver.arrays(), getattr(inner, knob)
    setattr(inner, knob, np.inf)
    with np.errstate(invalid="ignore"):
        driver.cycle(2, steps)
    assert same_bits(driver.arrays(), before)
    setattr(inner, knob, right)
    driver.cycle(3, steps)
    driver.strategy.orchestrator.close()
    assert [row[2] for row in outcomes(driver)] == ["used"] * 3 + ["refused"] * 3 + ["used"] * 3
    assert all((a > before[key]).all() for key, a in driver.arrays().items())


@pytest.mark.parametrize("api", APIS)
def test_a_model_that_cannot_be_read_is_an_error_with_the_remedy(api):
    inner = message.FedAvg(**NODES) if api == "message" else classic.FedAvg(**CLIENTS)
    driver = APIS[api](APIS[api].strategy(inner, **TRIVIAL), 3, MODEL)
    if api == "message":
        driver.model = ArrayRecord({"w": Array("float32", (1,), "own.format", b"1234")})
    else:
        driver.model.tensors[0] = b"1234"
    with pytest.raises(
        ValueError, match=r"MelStrategy checks updates against the model, which it cannot read"
    ):
        driver.cycle(1, steps)
