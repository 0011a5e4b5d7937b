"""Updates that are much larger than the others' are cut back, in both APIs; honest unequal work is not."""

import numpy as np
import pytest
from flwr.server import strategy as classic
from flwr.serverapp import strategy as message

from flwr_mel import InputError
from flwr_mel.flower.sizes import change, cut_back, too_large
from flwr_mel.orchestrator import Settings
from tests import attacks
from tests.strategies.drive import APIS, run, same_bits
from tests.strategies.models import Torch, cnn, images

MODEL = {"a": np.zeros((3, 4), np.float32), "n": np.array(3), "b": np.ones(5)}
K = 5
FEDAVG = {
    "message": lambda: message.FedAvg(fraction_evaluate=0.0, min_train_nodes=K, min_available_nodes=K),
    "classic": lambda: classic.FedAvg(min_fit_clients=K, min_available_clients=K),
}


@pytest.fixture(autouse=True)
def _outside_of_flowers_runtime(monkeypatch):
    attacks.outside_runtime(monkeypatch)


def client(times):
    """Everybody moves by steps of about one size; the last one's is this many times as large."""

    def work(k, cycle, arrays):
        rng = np.random.default_rng([k, cycle])
        by = times if k == K - 1 else 1.0
        moved = {
            key: a + by * rng.normal(size=a.shape).astype(a.dtype) for key, a in arrays.items() if key != "n"
        }
        return {"a": moved["a"], "n": arrays["n"] + 7, "b": moved["b"]}, {"loss": 1.0}

    return work


def trained(api, times, cycles=1, **settings):
    return run(api, FEDAVG[api](), MODEL, client(times), learners=K, cycles=cycles, settings=settings)


@pytest.mark.parametrize("api", APIS)
def test_what_is_not_too_large_is_handed_on_to_the_bit(api):
    for times in (1.0, 2.0):
        free, bound = (trained(api, times, max_norm_ratio=ratio) for ratio in (None, 4.0))
        assert same_bits(free.arrays(), bound.arrays())
        assert not any(row.bounded for row in bound.strategy.records[0].learners)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("times", [50.0, 1e6])
def test_what_is_too_large_is_cut_back_and_the_record_says_so(api, times):
    free, bound = (trained(api, times, max_norm_ratio=ratio) for ratio in (None, 3.0))
    moved = [change(list(x.arrays().values()), list(MODEL.values())) for x in (free, bound)]
    sizes = []
    for k in range(K):
        new, _ = client(1.0)(k, 1, MODEL)
        sizes.append(change(list(new.values()), list(MODEL.values())))
    middle = float(np.median(sizes))
    # It moves the average by no more than the middle one does.
    assert moved[0] > times / K
    assert moved[1] < middle / K + sum(sizes[: K - 1]) / K
    *others, liar = bound.strategy.records[0].learners
    assert liar.bounded.startswith("sent an update ")
    assert float(liar.bounded.split()[3]) == pytest.approx(sizes[-1] * times / middle, rel=0.3)
    assert all(not row.bounded for row in others)
    assert any("max_norm_ratio" in note for note in bound.strategy.records[0].notes)
    # Counters are handed on as they came.
    assert bound.arrays()["n"] == free.arrays()["n"]


def test_more_work_may_change_more_up_to_a_limit():
    norms = {str(k): 1.0 for k in range(4)} | {"x": 9.0}
    works = dict.fromkeys(norms, 100.0)
    assert too_large(norms, works, 3.0) == {"x": pytest.approx(1 / 9)}
    assert too_large(norms, works | {"x": 400.0}, 3.0) == {"x": pytest.approx(1 / 9)}
    assert too_large(norms, works | {"x": 901.0}, 3.0) == {}
    # A claim of endless work makes no endless update.
    assert too_large({**norms, "x": 24.0}, works | {"x": 1e12}, 3.0) == {"x": pytest.approx(1 / 24)}
    # Where most change nothing, or there are but two, nobody can tell.
    assert too_large({"a": 0.0, "b": 0.0, "c": 5.0}, {"a": 1.0, "b": 1.0, "c": 1.0}, 3.0) == {}
    assert too_large({"a": 1.0, "b": 50.0}, {"a": 1.0, "b": 1.0}, 3.0) == {}
    assert too_large({}, {}, 3.0) == {}


def test_norms_of_all_kinds_of_arrays():
    rng = np.random.default_rng(0)
    old = [rng.normal(size=(300, 500)), rng.normal(size=7).astype(np.float16), np.arange(3), np.array(2.0)]
    new = [x + 1 if x.dtype.kind == "f" else x + 100 for x in old]
    assert change(new, old) == pytest.approx(np.sqrt(300 * 500 + 7 + 1), rel=1e-3)
    assert change([x.T for x in new], [x.T for x in old]) == pytest.approx(change(new, old))
    mask = np.array([0.0, -np.inf, 1.0])
    assert change([mask + np.array([3.0, 0.0, 4.0])], [mask]) == pytest.approx(5.0)
    assert change([np.full(4, 1e15, np.float32)] * 2, [np.zeros(4, np.float32)] * 2) == pytest.approx(
        np.sqrt(8) * 1e15
    )
    assert change([np.ones(3) * 2j], [np.zeros(3, complex)]) == pytest.approx(np.sqrt(12))
    assert change([np.ones(3), np.ones(2)], [None, np.ones(3)]) == 0.0
    half = cut_back(new, old, 0.5)
    assert change(half, old) == pytest.approx(change(new, old) / 2, rel=1e-2)
    assert [x.dtype for x in half] == [x.dtype for x in new]
    assert half[2] is new[2]


@pytest.mark.parametrize("api", APIS)
def test_running_variances_stay_variances(api):
    zoo = Torch(cnn, images)

    def liar(k, cycle, arrays):
        new, said = zoo.client(k, cycle, arrays)
        if k == K - 1:
            new = {key: x * x.dtype.type(1e6) if x.dtype.kind == "f" else x for key, x in new.items()}
        return new, said

    driver = run(api, FEDAVG[api](), zoo.model, liar, learners=K, cycles=2, settings={"max_norm_ratio": 3.0})
    arrays = driver.arrays()
    assert all(np.abs(x).max() < 100 for x in arrays.values())
    assert all((x > 0).all() for key, x in arrays.items() if key.endswith("running_var"))


@pytest.mark.parametrize("ratio", [0.5, 0, -1, "3", np.nan, np.inf])
def test_bad_ratios(ratio):
    with pytest.raises(InputError, match="max_norm_ratio"):
        Settings(max_norm_ratio=ratio)
