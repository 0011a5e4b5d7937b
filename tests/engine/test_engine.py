"""Real trainings on Flower's Ray engine, in both APIs."""

import json

import pytest

from flwr_mel.records import CycleRecord, Outcome
from tests.engine.app import BROKEN, MODLESS, NODES, SLOW

APIS = ("message", "classic")


@pytest.fixture(scope="module")
def runs(engine, tmp_path_factory):
    found = {}
    for mode in ("measured", "declared"):
        out = tmp_path_factory.mktemp(mode)
        engine.play(
            "tests.engine.app",
            out,
            config={"local-epochs": 2},
            nodes=NODES,
            LAB_MODE=mode,
            LAB_OUT=out / "found.json",
        )
        found |= json.loads((out / "found.json").read_text())
    return found


def records(runs, name):
    return [CycleRecord.from_dict(data) for data in runs[name]["records"]]


def row(record, k):
    (found,) = [r for r in record.learners if r.learner == str(k)]
    return found


@pytest.mark.engine
@pytest.mark.parametrize("api", APIS)
def test_slow_clients_are_measured_and_get_less(runs, api):
    first, *later = records(runs, f"slow-{api}")
    assert first.status == "baseline"
    assert row(first, SLOW).train_s >= 2.0
    for record in later:
        assert record.cycle_time_s < first.cycle_time_s
        slow, fast = row(record, SLOW), row(record, 0)
        assert slow.epochs * slow.samples < fast.epochs * fast.samples
        assert slow.outcome is Outcome.USED


@pytest.mark.engine
@pytest.mark.parametrize("api", APIS)
def test_a_client_without_the_mod_is_skipped(runs, api):
    for record in records(runs, f"federated-{api}"):
        (without,) = [r for r in record.learners if r.outcome is Outcome.SKIPPED]
        assert "no mel_mod" in without.reason
        assert without.learner == without.node != str(MODLESS)  # it never said its partition
        assert record.count(Outcome.USED) == NODES - 1
        assert sum(r.samples for r in record.learners) == record.total_samples == 300
        assert max(r.time_s for r in record.learners) <= 1.0


@pytest.mark.engine
@pytest.mark.parametrize("scenario", ["federated", "parallelized", "faults"])
def test_both_apis_give_the_same_bits(runs, scenario):
    one, two = (runs[f"{scenario}-{api}"] for api in APIS)
    assert one["bits"] == two["bits"]
    assert len(set(one["bits"])) > 1
    for a, b in zip(records(runs, f"{scenario}-message"), records(runs, f"{scenario}-classic"), strict=True):
        plan = [[(r.learner, r.epochs, r.samples, r.weight) for r in x.asked] for x in (a, b)]
        assert plan[0] == plan[1]


@pytest.mark.engine
@pytest.mark.parametrize("api", APIS)
def test_all_data_of_the_server_are_used(runs, api):
    for record in records(runs, f"parallelized-{api}"):
        assert record.total_samples == 120
        assert all(r.held is None for r in record.learners)


@pytest.mark.engine
@pytest.mark.parametrize("api", APIS)
def test_a_client_that_fails(runs, api):
    outcomes = [row(record, BROKEN).outcome for record in records(runs, f"faults-{api}")]
    assert outcomes == [Outcome.USED, Outcome.FAILED, Outcome.USED]
    assert row(records(runs, f"faults-{api}")[1], BROKEN).reason


@pytest.mark.engine
def test_the_state_of_clients_persists_from_task_to_task(runs):
    calls = [record.metrics["train-calls"] for record in records(runs, "federated-message")]
    assert calls == pytest.approx([1, 2, 3])


@pytest.mark.engine
def test_a_stock_strategy_trains_with_the_projects_own_work(runs):
    """Only the server changes when users compare with and without planning."""
    assert runs["stock"]["epochs"] == pytest.approx(2)
    assert not [key for key in runs["stock"] if key.startswith("mel-")]
