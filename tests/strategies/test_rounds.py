"""Rounds of both APIs: failures, late replies, partial participation, callbacks, errors."""

import logging
import random
from dataclasses import fields, replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays

from flwr_mel import JsonlWriter, Measured, Robust, Rounds, Shards, Stopping, read_jsonl, wire
from flwr_mel.clientapp import Assignment
from flwr_mel.cycle.advice import round_line
from flwr_mel.cycle.errors import NoWork
from flwr_mel.grid import TimedGrid
from flwr_mel.solvers import EqualBatches
from tests.cycle.tools import MODEL, App
from tests.strategies.fleet import COSTS, FakeGrid, Fleet, close, measured, planned, wrapped


def outcomes(mel, cycle):
    return [str(row.outcome) for row in mel.records[cycle - 1].learners]


def test_a_baseline_round_is_the_projects_own(api):
    fleet = Fleet(measured())
    mel = wrapped(api)
    arrays = api.train(mel, fleet, rounds=1)
    plain = api.train(api.inner(), Fleet(measured()), rounds=1)
    assert close(arrays, plain)
    assert all(wire.BASELINE in task and wire.EPOCHS not in task for task in fleet.tasks.values())


def test_every_client_gets_a_config_of_its_own(api):
    """Flower's strategies share one object among all clients, and keep it for the next round."""
    fleet = Fleet(planned())
    mel = wrapped(api, cycle_time_s=1.0)
    api.train(mel, fleet, rounds=2)
    cycles = {cycle: {fleet.tasks[cycle, k][wire.CYCLE] for k in range(4)} for cycle in (1, 2)}
    assert cycles == {1: {1}, 2: {2}}


def test_the_epochs_key_is_named(api):
    fleet = Fleet(measured())
    api.train(wrapped(api, rounds=Rounds(epochs_key="my-passes")), fleet, rounds=1)
    assert fleet.tasks[1, 0][wire.EPOCHS_KEY] == "my-passes"


def test_a_client_that_fails(api, caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    mel = wrapped(api, cycle_time_s=1.0)
    arrays = api.train(mel, Fleet(planned(), errors={(1, 1), (2, 1)}), rounds=2)
    assert outcomes(mel, 2) == ["used", "failed", "used", "used"]
    assert "client 1 is broken" in mel.records[1].learners[1].reason
    assert "round 2, client 1 failed: client 1 is broken" in caplog.text
    assert arrays["b"][0] == pytest.approx(2 * (1 + 3 + 4) / 3)


def test_all_fail_in_the_first_round(api):
    with pytest.raises(NoWork, match=r"client 0 is broken(.|\n)*client's log"):
        api.train(wrapped(api), Fleet(measured(), errors={(1, k) for k in range(4)}), rounds=2)


def test_all_fail_later(api):
    mel = api.mel.MelStrategy(api.inner(api.mel.MelFedAvg))
    arrays = api.train(mel, Fleet(measured(), errors={(2, k) for k in range(4)}), rounds=2)
    assert outcomes(mel, 2) == ["failed"] * 4
    assert arrays["b"][0] == pytest.approx(2.5)


def test_updates_that_are_rejected(api):
    def moves(k, cycle, arrays):
        new = {name: x + np.float32(1) for name, x in arrays.items()}
        if k == 0:
            new["w"] = new["w"] * np.float32(np.nan)
        if k == 1:
            new["w"] = new["w"][:, 1:]
        return new

    mel = wrapped(api, cycle_time_s=1.0)
    arrays = api.train(mel, Fleet(planned(), moves=moves), rounds=1)
    assert outcomes(mel, 1) == ["rejected", "rejected", "used", "used"]
    assert arrays["w"].tolist() == np.ones((2, 3)).tolist()


def test_replies_that_cannot_be_read(message_api):
    def moves(k, cycle, arrays):
        metrics = {"metrics": MetricRecord({"num-examples": 9})}
        if k == 0:
            return RecordDict(metrics)
        form = "pickle" if k == 1 else "numpy.ndarray"
        odd = {name: Array("float32", x.shape, form, b"x") for name, x in arrays.items()}
        record = ArrayRecord(odd if k < 3 else {name: Array(x + 1) for name, x in arrays.items()})
        return RecordDict({"arrays": record, **metrics})

    mel = wrapped(message_api, cycle_time_s=1.0)
    message_api.train(mel, Fleet(planned(), moves=moves), rounds=1)
    assert outcomes(mel, 1) == ["failed", "failed", "failed", "used"]
    reasons = [row.reason for row in mel.records[0].learners]
    assert "no ArrayRecord" in reasons[0]
    assert "has the format 'pickle'" in reasons[1]
    assert "cannot be decoded" in reasons[2]


def test_secure_aggregation_is_an_error(classic_api):
    """Its workflow hands the one average of all clients to every client."""

    class Masking(classic_api.mel.MelStrategy):
        def aggregate_fit(self, server_round, results, failures):
            for _, result in results:
                result.parameters = results[0][1].parameters
            return super().aggregate_fit(server_round, results, failures)

    mel = Masking(classic_api.inner(), cycle_time_s=1.0)
    with pytest.raises(RuntimeError, match="secure aggregation"):
        classic_api.train(mel, Fleet(planned()), rounds=1)


def test_a_model_that_is_not_finite_is_not_used(api):
    name = "aggregate_train" if api.name == "message" else "aggregate_fit"

    def broken(self, server_round, *given):
        arrays, metrics = getattr(api.flower.FedAvg, name)(self, server_round, *given)
        if api.name == "message":
            return type(arrays)([x.numpy() * np.nan for x in arrays.values()]), metrics
        return ndarrays_to_parameters([x * np.nan for x in parameters_to_ndarrays(arrays)]), metrics

    kind = type("Broken", (api.flower.FedAvg,), {name: broken})
    mel = api.mel.MelStrategy(api.inner(kind), cycle_time_s=1.0)
    arrays = api.train(mel, Fleet(planned()), rounds=1)
    assert arrays["b"].tolist() == MODEL["b"].tolist()
    assert set(outcomes(mel, 1)) == {"rejected"}
    assert "Broken returned a model with values that are not finite" in mel.records[0].notes[0]


def test_a_reply_after_the_deadline_is_dropped_and_the_next_task_is_half_as_large(message_api):
    """The client has no task in the next round. It answers the probe, so it is asked before two rounds."""
    api = message_api
    mel = wrapped(api, cycle_time_s=0.1, max_epochs=1, rounds=Rounds(deadline_slack=0.5))
    fleet = Fleet(planned(), lost={(1, 0)})
    api.train(mel, fleet, rounds=4, timeout=600)
    rows = [record.learners[0] for record in mel.records]
    assert "1 late" in round_line(mel.records[0])
    assert [str(row.outcome) for row in rows] == ["late", "skipped", "used", "used"]
    assert "did not reply in time" in rows[1].reason
    assert rows[2].samples == pytest.approx((0.05 - 0.01) / 1e-3, abs=1)
    assert rows[3].samples == rows[0].samples == 60


def test_a_timeout_of_flower_is_a_late_reply(message_api):
    mel = wrapped(message_api, cycle_time_s=1.0)
    message_api.train(mel, Fleet(planned(), lost={(1, 2)}), rounds=1, timeout=0.05)
    assert outcomes(mel, 1) == ["used", "used", "late", "used"]


def test_a_reply_that_never_comes_in_the_classic_api(classic_api):
    mel = wrapped(classic_api, cycle_time_s=1.0)
    classic_api.train(mel, Fleet(planned(), lost={(1, 2)}), rounds=1)
    assert outcomes(mel, 1) == ["used", "used", "failed", "used"]
    assert mel.records[0].learners[2].reason == "no reply"


def test_a_message_that_could_not_be_pushed_is_not_awaited():
    class Refusing(FakeGrid):
        def push_messages(self, messages):
            return [*super().push_messages(messages), None]

        def get_nodes(self):
            return ["a node with a location"]

    grid = TimedGrid(Refusing(Fleet(planned())))
    assert grid.send_and_receive([], timeout=600) == []
    assert len(list(grid.get_node_ids())) == 4
    assert grid.get_nodes() == ["a node with a location"]


def test_partial_participation(api):
    """Each client is measured when it is first sampled."""
    mel = wrapped(api, inner=api.sampled(0.5))
    random.seed(1)  # Flower samples from there
    api.train(mel, Fleet(measured()), rounds=10)
    assert {len(record.learners) for record in mel.records} == {2}
    baselines = [row.learner for record in mel.records for row in record.learners if row.baseline]
    assert len(baselines) == len(set(baselines))


def test_no_client_has_the_mod(api):
    with pytest.raises(NoWork, match=r"the model stays untrained(.|\n)*ClientApp\(mods=\[mel_mod\]\)"):
        api.train(wrapped(api), Fleet([App(modded=False)] * 3), rounds=1)


def test_a_training_without_any_task_is_an_error(message_api):
    """Limits that no client can keep: Flower would finish with an untrained model."""
    poor = COSTS | {wire.COEFFICIENTS[5]: 5.0, wire.ENERGY_LIMIT_J: 1.0}
    mel = wrapped(message_api, cycle_time_s=1.0, total_samples=60)
    with pytest.raises(NoWork, match=r"untrained(.|\n)*energy limit"):
        message_api.train(mel, Fleet([App(capability=poor)] * 2), rounds=2)


def test_robust_bounds(api):
    def moves(k, cycle, arrays):
        return {name: x + np.float32(1000 if k == 3 else 1) for name, x in arrays.items()}

    large = App(held=600, capability=COSTS | {wire.MAX_SAMPLES: 600})
    bounds = Robust(max_share=0.4, max_norm_ratio=2.0)
    mel = wrapped(api, cycle_time_s=10.0, max_epochs=1, robust=bounds)
    arrays = api.train(mel, Fleet([*planned(3), large], moves=moves), rounds=1)
    # 60 samples of each of the first three, and 120 of the last, whose update is 2 * 120 / 60 times as large.
    assert arrays["b"][0] == pytest.approx((3 * 60 * 1 + 120 * 4) / 300, rel=1e-4)
    bounded = mel.records[0].learners[3].bounded
    assert "update scaled" in bounded
    assert "instead of" in bounded


X, Y = np.arange(60.0).reshape(30, 2), np.arange(30)


def sending_shards(api):
    costs = Measured(1e-3, 1e-3, 0.01, 0, 0, 0)
    return wrapped(api, cycle_time_s=1.0, shards=Shards((X, Y)), default_device=costs)


def test_shards_reach_simulated_clients(api):
    fleet = Fleet(measured())
    api.train(sending_shards(api), fleet, rounds=1)
    shards = [Assignment.from_config(task).shard for task in fleet.tasks.values()]
    assert sorted(np.concatenate([y for _, y in shards]).tolist()) == list(range(30))
    for x, y in shards:
        assert np.array_equal(x, X[y])
        assert (x.dtype, y.dtype) == (X.dtype, Y.dtype)


def test_shards_reach_no_other_clients(api):
    fleet = Fleet(measured(simulated=False))
    with pytest.raises(PermissionError, match="over_tls=True"):
        api.train(sending_shards(api), fleet, rounds=1)
    assert not fleet.tasks


def evaluated(api, accuracy):
    """Return what makes the server evaluate: the accuracy grows from round to round."""
    if api.name == "message":
        return {}, {"evaluate_fn": lambda n, _: MetricRecord({"accuracy": accuracy * n})}
    return {"evaluate_fn": lambda n, _arrays, _config: (1.0, {"accuracy": accuracy * n})}, {}


def test_callbacks_receive_every_record(api, tmp_path):
    inner, start = evaluated(api, 0.1)
    mel = wrapped(api, inner=inner, callbacks=[JsonlWriter(tmp_path / "run.jsonl")])
    api.train(mel, Fleet(measured()), rounds=3, **start)
    found = list(read_jsonl(tmp_path / "run.jsonl"))
    assert [record.cycle for record in found] == [1, 2, 3]
    assert [record.metrics["accuracy"] for record in found] == pytest.approx([0.1, 0.2, 0.3])
    assert found == list(mel.records)


def test_client_evaluations_are_recorded(api):
    options = {"fraction_evaluate": 1.0}
    if api.name == "classic":
        options["evaluate_metrics_aggregation_fn"] = lambda pairs: {"accuracy": pairs[0][1]["accuracy"]}
    mel = wrapped(api, inner=options)
    api.train(mel, Fleet(measured()), rounds=2)
    assert [record.metrics["accuracy"] for record in mel.records] == [0.5, 0.5]


def test_stopping(api, caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    inner, start = evaluated(api, 0.3)
    fleet = Fleet(measured())
    mel = wrapped(api, inner=inner, callbacks=[Stopping(target=0.5)])
    api.train(mel, fleet, rounds=9, **start)
    assert mel.stopped == "accuracy reached 0.6 (target 0.5)"
    assert len(mel.records) == 2
    assert max(cycle for cycle, _ in fleet.tasks) == 2
    assert "training stops after round 2" in caplog.text
    if api.name == "message":
        assert fleet.result.stopped == mel.stopped
        assert len(fleet.result.records) == 2
        api.train(mel, fleet, rounds=1)
        assert len(mel.records) == 3


def test_a_callback_that_fails_stops_nothing(api):
    def broken(record):
        raise OSError("disk full")

    mel = wrapped(api, callbacks=[broken])
    api.train(mel, Fleet(measured()), rounds=2)
    assert "disk full" in mel.records[0].notes[-1]
    with pytest.raises(ValueError, match="callbacks"):
        wrapped(api, callbacks=[3])


def test_older_records_drop_their_rows_where_clients_are_many(api, monkeypatch, tmp_path):
    """Memory must not grow with rounds times clients; callbacks and the log's last lines had them."""
    monkeypatch.setattr("flwr_mel.strategy.KEEP_ROWS", 9)
    mel = wrapped(api, callbacks=[JsonlWriter(tmp_path / "r.jsonl")])
    api.train(mel, Fleet(measured()), rounds=5)
    assert [len(record.learners) for record in mel.records] == [0, 0, 0, 4, 4]
    written = list(read_jsonl(tmp_path / "r.jsonl"))
    assert [len(record.learners) for record in written] == [4] * 5
    for kept, whole in zip(mel.records, written, strict=True):
        assert replace(kept, learners=whole.learners) == whole
    monkeypatch.setattr("flwr_mel.strategy.KEEP_ROWS", 1)  # those of the last record stay
    mel = wrapped(api)
    api.train(mel, Fleet(measured()), rounds=2)
    assert [len(record.learners) for record in mel.records] == [0, 4]


@pytest.mark.parametrize("given", [{}, {"cycle_time_s": 0.5, "total_samples": 900}])
def test_a_trial_that_observes_plans_nothing(api, monkeypatch, given):
    monkeypatch.setenv("FLWR_MEL_TRY", "observe")
    mel = wrapped(api, **given)
    monkeypatch.delenv("FLWR_MEL_TRY")  # it is read once
    fleet = Fleet(measured())
    arrays = api.train(mel, fleet, rounds=4)
    plain = api.train(api.inner(), Fleet(measured()), rounds=4)
    assert close(arrays, plain)
    assert all(row.baseline for record in mel.records for row in record.learners)
    assert all(wire.EPOCHS not in task and wire.SECONDS not in task for task in fleet.tasks.values())


def test_a_trial_that_plans_is_as_without_a_trial(api, monkeypatch):
    monkeypatch.setenv("FLWR_MEL_TRY", "plan")
    tried = wrapped(api)
    monkeypatch.delenv("FLWR_MEL_TRY")
    assert vars_of(tried.options) == vars_of(wrapped(api).options)


@pytest.mark.parametrize("given", [{}, {"cycle_time_s": 0.5, "total_samples": 900, "solver": EqualBatches()}])
def test_a_trial_with_the_best_round_time(api, monkeypatch, given):
    monkeypatch.setenv("FLWR_MEL_TRY", "best")
    tried = wrapped(api, **given)
    monkeypatch.delenv("FLWR_MEL_TRY")
    recipe = api.mel.MelStrategy(api.mel.SlopeStep(api.inner()), cycle_time_s="best")
    assert vars_of(tried.options) == vars_of(recipe.options)
    assert type(tried.strategy) is api.mel.SlopeStep


def test_a_trial_keeps_a_server_step_of_the_project(api, monkeypatch):
    monkeypatch.setenv("FLWR_MEL_TRY", "best")
    assert type(wrapped(api, inner={"kind": "FedAvgM"}).strategy).__name__ == "FedAvgM"


def vars_of(options):
    return {field.name: getattr(options, field.name) for field in fields(options)}


def test_records_go_to_the_file_that_is_named(api, monkeypatch, tmp_path):
    monkeypatch.setenv("FLWR_MEL_RECORDS", str(tmp_path / "r.jsonl"))
    mel = wrapped(api)
    monkeypatch.delenv("FLWR_MEL_RECORDS")
    api.train(mel, Fleet(measured()), rounds=2)
    assert list(read_jsonl(tmp_path / "r.jsonl")) == list(mel.records)
