"""The paper's defaults, exactly: d_k-weighted mean in `aggregate_fit` and `aggregate_train`, nothing else."""

import inspect

import numpy as np
import pytest

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel import AllocationProblem, Coefficients, Workload, allocate, paper_fleet, wire
from flwr_mel.clientapp import describe
from flwr_mel.paper import PAPER_LAYERS
from flwr_mel.solvers import Exact
from tests.cycle.tools import MODEL, App
from tests.strategies.fleet import APIS, Fleet, moves, same

T, D, C = 15.0, 6000, 2
WORKLOAD = Workload.mlp(PAPER_LAYERS)


def devices():
    return paper_fleet(np.random.default_rng(0))


def paper_clients():
    apps = [App(capability=describe(d) | {wire.LEARNER: str(k)}, held=D) for k, d in enumerate(devices())]
    return Fleet(apps, moves=moves)


def strategy(api, **more):
    return api.mel.MelStrategy(
        api.inner(), cycle_time_s=T, total_samples=D, staleness=C, workload=WORKLOAD, **more
    )


def test_one_round_is_the_papers(api):
    fleet = paper_clients()
    mel = strategy(api)
    arrays = api.train(mel, fleet, rounds=1)
    problem = AllocationProblem(
        Coefficients.from_devices(devices(), WORKLOAD),
        T,
        [device.energy_limit_j for device in devices()],
        total_samples=D,
        staleness=C,
    )
    solution = allocate(problem, Exact())
    sent = [fleet.tasks.get((1, k), {}) for k in range(20)]
    assert [task.get(wire.EPOCHS, 0) for task in sent] == solution.epochs.tolist()
    assert [task.get(wire.SAMPLES, 0) for task in sent] == solution.samples.tolist()
    for name, old in MODEL.items():
        updates = [moves(k, 1, MODEL)[name] for k in range(20)]
        mean = sum(d * x.astype(np.float64) for d, x in zip(solution.samples, updates, strict=True)) / D
        assert arrays[name] == pytest.approx(mean, abs=1e-6)
        assert arrays[name].dtype == old.dtype
    (record,) = mel.records
    assert [row.weight for row in record.learners] == solution.samples.tolist()
    assert not any(row.bounded for row in record.learners)
    assert record.value == solution.value


def test_both_apis_give_the_same_bits_with_our_fedavg():
    found = {}
    for name, api in APIS.items():
        mel = api.mel.MelStrategy(
            api.inner(api.mel.MelFedAvg), cycle_time_s=T, total_samples=D, staleness=C, workload=WORKLOAD
        )
        found[name] = api.train(mel, paper_clients(), rounds=3), [r.as_dict() for r in mel.records]
    assert same(found["message"][0], found["classic"][0])
    metrics = [[record.pop("metrics") for record in found[name][1]] for name in APIS]
    assert found["message"][1] == found["classic"][1]
    assert metrics[1] == [{}] * 3  # classic FedAvg has no metrics without a function


def test_both_apis_have_the_same_keywords_and_defaults():
    message = inspect.signature(flwr_mel.serverapp.MelStrategy.__init__)
    classic = inspect.signature(flwr_mel.server.MelStrategy.__init__)
    assert message == classic
    keywords = [p for p in message.parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert len(keywords) == 15
    names = """cycle_time_s total_samples staleness min_samples max_epochs solver workload default_device
        shards average estimation robust rounds callbacks seed"""
    assert [p.name for p in keywords] == names.split()
    robust = message.parameters["robust"].default
    assert robust.max_samples is robust.max_share is robust.max_norm_ratio is None
    assert message.parameters["average"].default == "samples"
    assert message.parameters["staleness"].default is None


@pytest.mark.parametrize("average", ["nova", "nova-held"])
def test_fednova_by_name(api, average):
    """Changes per step, times the mean number of steps."""
    fleet = paper_clients()
    mel = strategy(api, average=average)
    arrays = api.train(mel, fleet, rounds=1)
    rows = mel.records[0].learners
    weights = np.array([row.weight for row in rows], dtype=float)
    steps = np.array([row.epochs * row.samples for row in rows], dtype=float)
    p, effective = weights / weights.sum(), np.average(steps, weights=weights)
    for name, old in MODEL.items():
        change = [moves(k, 1, MODEL)[name].astype(float) - old for k in range(20)]
        mean = old + sum(p_k * (effective / s) * x for p_k, s, x in zip(p, steps, change, strict=True))
        assert arrays[name] == pytest.approx(mean, rel=1e-4, abs=1e-5)
    assert sum(row.share for row in rows) == pytest.approx(1)
