"""Other strategies inside and around MelStrategy, Flower's DP mods, SecAgg+, and what is refused."""

import numpy as np
import pytest
from flwr.server import strategy as classic
from flwr.serverapp import strategy as message

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel.records import JsonlWriter, Outcome, read_jsonl
from tests.flower import lab


def moved(run, name):
    pairs = zip(run.weights(name), lab.initial_weights(), strict=True)
    return float(np.sqrt(sum(((a - b) ** 2).sum() for a, b in pairs)))


@pytest.mark.parametrize("name", ["FedAdam", "FedProx", "FedMedian", "dp-inside", "local-dp-mod"])
def test_it_runs_inside(run, name):
    records = run.records(name)
    assert run.result(name)["error"] is None
    assert len(records) == 2
    assert all(r.outcome is Outcome.USED for r in records[0].learners)
    assert 0 < moved(run, name) < np.inf


def test_batch_normalisation_trains_for_more_than_one_cycle(run):
    """Averages turn its counters into fractions, and the clients go on sending whole numbers."""
    records = run.records("BatchNorm")
    assert run.result("BatchNorm")["error"] is None
    worked = [[r.outcome for r in record.learners if r.samples] for record in records]
    assert [set(outcomes) for outcomes in worked] == [{Outcome.USED}] * 3
    x, y = np.load(run.path / "digits.npz").values()
    expected, work = lab.reference(x, y, len(records), normed=True, max_epochs=3)
    assert [([r.epochs for r in c.learners], [r.samples for r in c.learners]) for c in records] == work
    for ours, plain in zip(run.weights("BatchNorm"), expected, strict=True):
        if plain.ndim:  # not the counters
            np.testing.assert_allclose(ours, plain, atol=1e-4)
    before = lab.accuracy_of_normed(lab.initial_normed(), x[2000:], y[2000:])
    after = lab.accuracy_of_normed(run.weights("BatchNorm"), x[2000:], y[2000:])
    assert before < 0.2
    assert after > 0.6


def test_dp_outside_sees_the_stop_through_the_watched_evaluation(run):
    assert run.result("dp-outside")["stopped"] == [2, "accuracy reached 0.95 (target 0.9)"]
    assert max(cycle for cycle, _ in run.calls("dp-outside")) == 2
    assert all(r.outcome is Outcome.USED for r in run.records("dp-outside")[0].learners)


def test_client_side_clipping_works_although_shards_are_shipped(run):
    """Flower's mod wants exactly one ArrayRecord and one ConfigRecord; shards and task fit into those."""
    records = run.records("clipping-mod")
    assert all(r.outcome is Outcome.USED for r in records[0].learners)
    # Two cycles, each clipped to 0.01, and a little noise; unclipped it would be about 20.
    size = sum(w.size for w in lab.initial_weights())
    assert moved(run, "clipping-mod") < 0.02 + 4 * 0.1 * 0.01 / lab.LEARNERS * size**0.5


def test_flowers_workflow_runs_a_wrapped_strategy(classic_run):
    assert classic_run.result("workflow")["error"] is None
    assert [len(r.failures) for r in classic_run.records("workflow")] == [0, 0]


def test_secure_aggregation_is_refused_with_the_reason(classic_run):
    error = classic_run.result("secagg")["error"]
    assert error.startswith("RuntimeError: these results come from secure aggregation (SecAgg+)")
    assert "docs/COMPOSITION.md" in error


class Accounted(message.FedAvg):
    accountant = object()


def test_a_privacy_accountant_is_refused_where_it_is_seen():
    with pytest.raises(ValueError, match=r"privacy accountant, which demands equal client weights"):
        flwr_mel.serverapp.MelStrategy(Accounted(), cycle_time_s=1)


def test_flower_refuses_an_accountant_around_it():
    accounting = pytest.importorskip("flwr.supercore.privacy_accounting")
    accountant = type("Accountant", (), {})()
    accountant.config = type("Config", (), {"sampling_method": accounting.SamplingMethod.NO_AMPLIFICATION})()
    mel = flwr_mel.serverapp.MelStrategy(message.FedAvg(), cycle_time_s=1)
    with pytest.raises(ValueError, match=r"requires a strategy using FedAvg\.aggregate_train"):
        message.DifferentialPrivacyServerSideFixedClipping(mel, 1.0, 1.0, 5, accountant=accountant)


def test_strategies_of_the_other_api_are_refused_with_the_remedy():
    with pytest.raises(TypeError, match=r"other API use flwr_mel\.server\.MelStrategy"):
        flwr_mel.serverapp.MelStrategy(classic.FedAvg(), cycle_time_s=1)
    with pytest.raises(TypeError, match=r"other API use flwr_mel\.serverapp\.MelStrategy"):
        flwr_mel.server.MelStrategy(message.FedAvg(), cycle_time_s=1)


def test_records_survive_the_file_and_a_crash(run, tmp_path):
    records = run.records("faults")
    writer = JsonlWriter(tmp_path / "deep" / "cycles.jsonl")
    for record in records:
        writer(record)
    assert list(read_jsonl(writer.path)) == records
    whole = writer.path.read_bytes()
    writer.path.write_bytes(whole[:-40])
    assert list(read_jsonl(writer.path)) == records[:2]
    JsonlWriter(writer.path)(records[2])
    assert list(read_jsonl(writer.path)) == records
    writer.path.write_bytes(b"{broken\n" + whole)
    with pytest.raises(ValueError, match="line 1: the line must be a cycle record"):
        list(read_jsonl(writer.path))
