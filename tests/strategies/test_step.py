"""`SlopeStep` around real strategies of both APIs."""

import logging

import numpy as np
import pytest

from flwr_mel import InputError
from flwr_mel.checkpoint import Checkpointed
from flwr_mel.step_strategies import ClassicSlopeStep, MessageSlopeStep
from flwr_mel.wrapped import averages
from tests.strategies.fleet import Fleet, planned, same

BEST = {"w": np.linspace(-1, 1, 6).reshape(2, 3), "b": np.array([0.5, -0.5, 1.0])}
START = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32)}
KINDS = ("FedAvg", "FedProx", "FedMedian", "FedTrimmedAvg", "Krum")


def slope_step(api, strategy):
    return (MessageSlopeStep if api.name == "message" else ClassicSlopeStep)(strategy)


def inner(api, kind="FedAvg"):
    options = {"proximal_mu": 0.1} if kind == "FedProx" else {}
    if kind == "Krum":
        options["num_malicious_nodes" if api.name == "message" else "num_malicious_clients"] = 1
    return api.inner(kind, **options)


def descends(rate):
    """Return clients that go a part of the way to their own targets, near the best model."""

    def moves(k, cycle, arrays):
        rng = np.random.default_rng([k, cycle])
        target = {n: x + 0.05 * rng.normal(size=x.shape) for n, x in BEST.items()}
        return {n: (x + rate * (target[n] - x)).astype(np.float32) for n, x in arrays.items()}

    return moves


def distance(model):
    return float(np.abs(model["w"] - BEST["w"]).mean())


def trained(api, strategy, rounds=12, rate=0.02, model=START, **more):
    fleet = Fleet(planned(5), **({"moves": descends(rate)} | more))
    # Nothing is lost: only an overloaded machine would notice a timeout.
    return api.train(
        strategy, fleet, rounds=rounds, model=model, timeout=None if api.name == "classic" else 600
    )


def alike(one, other):
    """Check that two models are equal but for the order of sums, which Adam's quotients magnify."""
    for n in START:
        np.testing.assert_allclose(one[n], other[n], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_small_local_steps_become_large_ones(api, kind):
    strategy = slope_step(api, inner(api, kind))
    stepped = trained(api, strategy)
    assert distance(stepped) < 0.15
    assert distance(stepped) < 0.3 * distance(trained(api, inner(api, kind)))
    assert strategy.facts.ratio is not None
    assert {n: x.dtype for n, x in stepped.items()} == {n: x.dtype for n, x in START.items()}


def test_both_apis_step_alike(message_api, classic_api):
    strategies = [slope_step(api, api.inner()) for api in (message_api, classic_api)]
    models = [trained(x, y, 4) for x, y in zip((message_api, classic_api), strategies, strict=True)]
    alike(*models)
    assert strategies[0].facts == pytest.approx(strategies[1].facts, rel=1e-3)


def test_vectors_are_averaged(api):
    """Biases are as the wrapped strategy makes them, from the same replies."""
    plain = trained(api, api.inner(), rounds=1)
    stepped = trained(api, slope_step(api, api.inner()), rounds=1)
    assert np.allclose(plain["b"], stepped["b"], rtol=1e-5)
    assert not np.allclose(plain["w"], stepped["w"])


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_differential_privacy(api, order):
    np.random.seed(7)  # noqa: NPY002 - the noise of Flower's DP strategies comes from there

    def private(strategy):
        return api.flower.DifferentialPrivacyServerSideFixedClipping(strategy, 0.01, 1.0, 5)

    if order == "inside":
        strategy = slope_step(api, private(api.inner()))
    else:
        strategy = private(slope_step(api, api.inner()))
    assert distance(trained(api, strategy)) < 0.5 * distance(START)


def test_the_length_does_not_look_at_clients_behind_privacy(api):
    """With noise inside, the average is not the clients' mean: r comes from the private average alone."""
    strategy = slope_step(
        api, api.flower.DifferentialPrivacyServerSideFixedClipping(api.inner(), 0.5, 1.0, 5)
    )
    trained(api, strategy, rounds=4)
    assert strategy.state.slopes == {}
    assert strategy.facts.error == 0
    open_ = slope_step(api, api.inner())
    trained(api, open_, rounds=4)
    assert len(open_.state.slopes) == 5
    assert open_.facts.error > 0


@pytest.mark.parametrize("average", ["samples", "nova"])
def test_inside_mel_strategy(api, average):
    mel = api.mel.MelStrategy(slope_step(api, api.inner()), cycle_time_s=10.0, max_epochs=1, average=average)
    alone = slope_step(api, api.inner())
    alike(trained(api, mel, 4), trained(api, alone, 4))
    assert len(mel.records) == 4
    assert mel.facts == pytest.approx(alone.facts, rel=1e-3)


def test_a_lying_clients_update_moves_no_weight_far(api):
    moves = descends(0.02)

    def huge(k, cycle, arrays):
        new = moves(k, cycle, arrays)
        return {n: x + np.float32(1e6) * (k == 0 and cycle == 8) for n, x in new.items()}

    alone, strategy = trained(api, api.inner(), moves=huge), slope_step(api, api.inner())
    assert distance(alone) > 1e4
    assert distance(trained(api, strategy, moves=huge)) < distance(START)


def test_a_round_without_finite_replies_is_undone(api):
    """What every client makes infinite from is the last step's model: training goes on before it."""
    moves, seen = descends(0.02), {}

    def broken(k, cycle, arrays):
        seen[cycle] = {n: x.copy() for n, x in arrays.items()}
        new = moves(k, cycle, arrays)
        return {n: x * np.float32(np.nan if cycle == 6 else 1) for n, x in new.items()}

    strategy = slope_step(api, api.inner())
    stepped = trained(api, strategy, moves=broken)
    assert np.allclose(seen[7]["w"], seen[5]["w"], atol=1e-6)
    assert np.array_equal(seen[7]["b"], seen[6]["b"])
    assert not np.allclose(seen[6]["w"], seen[5]["w"])
    assert distance(stepped) < 0.3


def test_a_caller_undoes_a_round_without_replies(api):
    """`MelStrategy` rejects replies itself."""
    strategy = slope_step(api, api.inner())
    model = trained(api, strategy, rounds=3)
    length, step = strategy.state.length, strategy.state.step["w" if api.name == "message" else "0"]
    grid = None
    if api.name == "message":
        from flwr.app import Array, ArrayRecord, ConfigRecord

        from tests.strategies.fleet import FakeGrid

        grid = FakeGrid(Fleet(planned(5)))
        record = ArrayRecord({n: Array(x) for n, x in model.items()})
        list(strategy.configure_train(4, record, ConfigRecord(), grid))
        back = {n: x.numpy() for n, x in strategy.undo().items()}
    else:
        from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
        from flwr.server import SimpleClientManager

        from tests.strategies.fleet import FakeProxy

        manager = SimpleClientManager()
        manager.register(FakeProxy(Fleet(planned(5)), 0, list(model)))
        strategy.configure_fit(4, ndarrays_to_parameters(list(model.values())), manager)
        back = dict(zip(model, parameters_to_ndarrays(strategy.undo()), strict=True))
    assert np.allclose(back["w"], model["w"] - step)
    assert np.array_equal(back["b"], model["b"])
    assert strategy.state.length == length / 2
    assert "undone" in strategy.describe()


def test_observed_steps_replace_the_examples(api):
    """FedNova's effective steps: the same average after ten times the work is a tenth of the slope."""
    few, many = (slope_step(api, api.inner()) for _ in range(2))
    for strategy, steps in ((few, 60.0), (many, 600.0)):
        strategy.observe(steps)
        trained(api, strategy, rounds=1)
    for name, x in few.state.mean.items():
        np.testing.assert_allclose(x, 10 * many.state.mean[name], rtol=1e-5)


def test_the_log_shows_step_and_ratio(api, caplog):
    with caplog.at_level(logging.INFO, logger="flwr.mel"):
        strategy = slope_step(api, api.inner())
        assert strategy.describe() == ""
        trained(api, strategy, rounds=2)
    assert strategy.describe() in caplog.text
    assert f"step {strategy.facts.length:.2g}, slope ratio {strategy.facts.ratio:.2f}" in caplog.text


@pytest.mark.parametrize("kind", ["FedAdam", "FedYogi", "FedAdagrad", "FedAvgM", "QFedAvg", "SlopeStep"])
def test_a_strategy_with_its_own_step_is_refused(api, kind):
    if kind == "SlopeStep":
        strategy = slope_step(api, api.inner())
    else:
        loss = {"client_learning_rate": 0.1, "train_loss_key": "loss"} if kind == "QFedAvg" else {}
        strategy = api.inner(kind, **(loss if api.name == "message" else {}))
    assert not averages(strategy)
    with pytest.raises(InputError, match="a strategy that averages"):
        slope_step(api, strategy)


def test_a_resumed_training_continues_with_its_step(api, tmp_path):
    def wrapped():
        return api.mel.MelStrategy(slope_step(api, api.inner()), cycle_time_s=10.0, max_epochs=1)

    whole = wrapped()
    model = trained(api, whole, rounds=8)
    trained(api, Checkpointed(wrapped(), tmp_path), rounds=5)
    rest = wrapped()
    rounds = 8 if api.name == "message" else 3
    assert same(trained(api, Checkpointed(rest, tmp_path), rounds=rounds), model)
    np.testing.assert_equal(vars(rest.strategy.state), vars(whole.strategy.state))


def test_it_keeps_two_models_more_than_fed_adam(api):
    """FedAdam keeps the model, m and v."""
    strategy = slope_step(api, api.inner())
    trained(api, strategy, rounds=3)
    arrays = [x for kept in vars(strategy.state).values() if isinstance(kept, dict) for x in kept.values()]
    arrays = [x for x in arrays if isinstance(x, np.ndarray)]
    assert len(arrays) == 4  # of one weight: m, v, the last step and the last mean
    assert strategy._model == {}
