"""FedNova's average in both APIs: against a direct reference, and to the bit where work is equal."""

from fractions import Fraction

import numpy as np
import pytest
from flwr.serverapp import strategy as message
from hypothesis import given
from hypothesis import strategies as st

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel import wire
from flwr_mel.orchestrator.averaging import Average, Work, blend
from tests.strategies.drive import APIS, run, same_bits, words
from tests.strategies.test_zoo import CLASSIC, MESSAGE

PACKAGES = {"message": flwr_mel.serverapp, "classic": flwr_mel.server}
LIKE_FEDAVG = ("FedAvg", "FedProx", "FedAvgM", "FedAdam", "FedAdagrad", "FedYogi", "fixed DP", "MelFedAvg")
UNLIKE = ("QFedAvg", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan")
K = 7
HELD = (90, 80, 70, 60, 50, 40, 10)
MODEL = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "b": np.arange(3.0)}


def inner(api, name, model=MODEL):
    return MESSAGE[name]() if api == "message" else CLASSIC[name](model)


def unequal(k):
    """Learner k takes 1 + k ms per sample and epoch, and holds less the slower it is."""
    return {**words(k), wire.MAX_SAMPLES: HELD[k], wire.COEFFICIENTS[0]: 1e-3 * (1 + k)}


UNEQUAL = {"cycle_time_s": 0.6, "max_epochs": 9, "staleness": 8, "total_samples": 200, "max_share": None}


def change(k, cycle, arrays):
    """What learner k does to the model; another thing in every cycle."""
    rng = np.random.default_rng([k, cycle])
    return {name: (a + rng.normal(size=a.shape)).astype(a.dtype) for name, a in arrays.items()}, {}


def reference(tasks, held, average, model, cycles):
    """FedNova as it is written: x + tau_eff sum_k p_k (x_k - x) / s_k."""
    for cycle, work in zip(range(1, cycles + 1), tasks, strict=True):
        p = {k: (held[k] if average == "nova-held" else d) for k, (_, d) in work.items()}
        p = {k: x / sum(p.values()) for k, x in p.items()}
        steps = {k: tau * d for k, (tau, d) in work.items()}
        effective = sum(p[k] * steps[k] for k in work)
        moves = {k: change(k, cycle, model)[0] for k in work}
        model = {
            name: (x + effective * sum(p[k] * (moves[k][name] - x) / steps[k] for k in work)).astype(x.dtype)
            for name, x in model.items()
        }
    return model


def trained(api, strategy, settings=UNEQUAL, cycles=3, **options):
    """Train with unequal learners; return the driver and the tasks of every cycle."""
    tasks = []

    def client(k, cycle, arrays):
        tasks.extend({} for _ in range(cycle - len(tasks)))
        tasks[cycle - 1][k] = None
        return change(k, cycle, arrays)

    driver = run(
        api, strategy, MODEL, client, learners=K, cycles=cycles, settings=settings, said=unequal, **options
    )
    rows = [
        {int(r.learner): (r.epochs, r.samples) for r in x.learners if r.epochs}
        for x in driver.strategy.records
    ]
    assert [set(row) for row in rows] == [set(work) for work in tasks]
    return driver, rows


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("average", ["nova", "nova-held"])
def test_it_is_fednova_as_it_is_written(api, average):
    driver, tasks = trained(api, PACKAGES[api].MelFedNova(average=average))
    assert len({tau * d for tau, d in tasks[0].values()}) > 3  # very unequal work
    expected = reference(tasks, HELD, average, MODEL, 3)
    for name, array in driver.arrays().items():
        assert array.dtype == MODEL[name].dtype
        np.testing.assert_allclose(array, expected[name], rtol=2e-6, atol=2e-6)
    plain, _ = trained(api, PACKAGES[api].MelFedAvg())
    assert not np.allclose(plain.arrays()["w"], expected["w"], atol=1e-3)


@pytest.mark.parametrize("average", ["nova", "nova-held"])
def test_both_apis_agree_to_the_bit(average):
    models = [trained(api, PACKAGES[api].MelFedNova(average=average))[0].arrays() for api in APIS]
    assert same_bits(*models)
    other, _ = trained("message", PACKAGES["message"].MelFedAvg(), {**UNEQUAL, "average": average})
    assert same_bits(models[0], other.arrays())  # the argument and the class are the same rule


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("average", ["nova", "nova-held"])
@pytest.mark.parametrize("name", LIKE_FEDAVG)
def test_equal_work_on_equal_data_is_averaged_as_without_it(api, average, name):
    if name not in (MESSAGE if api == "message" else CLASSIC):
        pytest.fail("no such strategy")
    results = [
        run(api, inner(api, name), MODEL, change, learners=K, settings=settings).arrays()
        for settings in ({}, {"average": average})
    ]
    assert same_bits(*results)


@pytest.mark.parametrize("name", ["FedAvg", "FedAvgM", "FedAdam"])
def test_strategies_that_average_as_fedavg_take_it(name):
    """The first step of a server's optimiser goes where FedNova's average points."""
    for api in APIS:
        driver, tasks = trained(api, inner(api, name), {**UNEQUAL, "average": "nova"}, cycles=1)
        expected = reference(tasks, HELD, "nova", MODEL, 1)
        moved = {name: driver.arrays()[name] - MODEL[name] for name in MODEL}
        for key, array in expected.items():
            aim = array - MODEL[key]
            if name == "FedAvg":
                np.testing.assert_allclose(moved[key], aim, rtol=1e-5, atol=1e-5)
            else:
                assert np.array_equal(np.sign(moved[key]), np.sign(aim))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", UNLIKE)
def test_strategies_that_do_not_are_refused(api, name):
    kind = APIS[api].strategy
    with pytest.raises(
        ValueError, match=r"average must be 'samples' around \w+, which does not average.*Wrap FedAvg"
    ):
        kind(inner(api, name), cycle_time_s=1, average="nova")
    kind(inner(api, name), cycle_time_s=1)


def test_a_strategy_of_ones_own_is_refused_and_bad_words_are_told():
    class Own(message.Strategy):
        configure_train = aggregate_train = configure_evaluate = aggregate_evaluate = summary = None

    mel = flwr_mel.serverapp.MelStrategy
    with pytest.raises(ValueError, match="average must be 'samples' around Own"):
        mel(Own(), cycle_time_s=1, average="nova-held")
    with pytest.raises(ValueError, match="average must be one of 'samples', 'nova', 'nova-held', got 'novo'"):
        mel(message.FedAvg(), cycle_time_s=1, average="novo")
    with pytest.raises(
        ValueError, match=r"average must be 'nova' or 'nova-held', got 'samples'. For 'samples' use MelF"
    ):
        flwr_mel.serverapp.MelFedNova(average="samples")
    with pytest.raises(
        ValueError, match=r"'nova' or left out around MelFedNova\(average='nova'\), got 'nova-held'"
    ):
        mel(flwr_mel.serverapp.MelFedNova(), cycle_time_s=1, average="nova-held")
    data = (np.zeros((4, 2)), np.zeros(4))
    with pytest.raises(ValueError, match="average must be 'samples' or 'nova' in parallelized mode"):
        mel(message.FedAvg(), cycle_time_s=1, average="nova-held", mode="parallelized", dataset=data)


@pytest.mark.parametrize("api", APIS)
def test_outside_of_a_melstrategy_it_refuses_to_guess(api):
    with pytest.raises(
        RuntimeError, match=r"which only a MelStrategy around it knows. Use MelStrategy\(MelFedNova"
    ):
        run(api, PACKAGES[api].MelFedNova(), MODEL, change, wrapped=False)


def test_running_statistics_do_not_grow_with_the_steps():
    """Batch normalisation has a mean, a variance and a counter: their average stays within the learners'."""
    model = {
        "conv": np.ones(4, np.float32),
        "bn.weight": np.ones(3, np.float32),
        "bn.running_mean": np.zeros(3, np.float32),
        "bn.running_var": np.ones(3, np.float32),
        "bn.num_batches_tracked": np.asarray(0),
    }

    def client(k, cycle, arrays):
        new = {name: a + np.float32(0.1 * (k + 1)) for name, a in arrays.items()}
        return new | {"bn.running_var": arrays["bn.running_var"] * np.float32(0.2),
                      "bn.num_batches_tracked": np.asarray(10 * (k + 1))}, {}  # fmt: skip

    for api in APIS:
        plain, nova = (
            run(
                api, PACKAGES[api].MelFedAvg(), model, client, learners=K, cycles=1, said=unequal,
                settings={**UNEQUAL, "average": average},
            ).arrays()
            for average in ("samples", "nova")
        )  # fmt: skip
        for name in model:
            assert np.array_equal(plain[name], nova[name]) == name.startswith("bn.r") | name.endswith(
                "tracked"
            ), name
        assert (nova["bn.running_var"] > 0).all()


works = st.lists(
    st.builds(Work, st.integers(1, 50), st.integers(1, 10**6), st.none() | st.integers(1, 10**6)), min_size=1
)


@given(works, st.sampled_from(Average))
def test_shares_and_factors_are_exact(works, average):
    done = blend(average, works)
    p = [Fraction(w, sum(done.weights)) for w in done.weights]
    steps = [Fraction(x.epochs) * x.samples for x in works]
    effective = sum(a * s for a, s in zip(p, steps, strict=True))
    if average is Average.SAMPLES:
        assert list(done.weights) == [x.samples for x in works]
        assert set(done.factors) == {1.0}
        assert list(done.shares) == [float(a * s / effective) for a, s in zip(p, steps, strict=True)]
    else:
        assert list(done.factors) == [float(effective / s) for s in steps]
        assert list(done.shares) == [float(a) for a in p]
    if average is Average.NOVA_HELD:
        assert list(done.weights) == [x.samples if x.held is None else x.held for x in works]
