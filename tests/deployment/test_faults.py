"""Devices and servers that die in the middle of the work."""

import os
import signal
import time
from contextlib import suppress

import numpy as np
import pytest

from flwr_mel.records import Outcome
from tests.deployment.reference import records_of, same_model, work_of
from tests.waiting import PATIENCE_S, wait_for


def cycles_in(run_dir):
    path = run_dir / "records.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def test_an_unregistered_device_is_turned_away(federation):
    federation.make_stranger("stranger")
    try:
        process = federation.start_node("stranger")
        assert process.wait(PATIENCE_S) != 0
    finally:
        del federation.nodes["stranger"]
    assert federation.node_id("stranger") is None


# --- devices ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def eventful(federation):
    """All are as fast as they declare, until device-0 becomes ten times slower; device-2 is killed later."""
    run_dir, last = federation.root / "eventful", 60.0
    federation.pace("device-0", 0.2, 2.0, real=True)
    federation.pace("device-1", 0.2, real=True)
    federation.pace("device-2", 0.2, 0.2, 0.2, last, real=True)  # long enough to be killed while it works
    app = federation.app_declaring(0.2, 10.0)
    run = federation.submit(app, cycles=4, cycle_time=600.0, samples=24, max_epochs=1, run_dir=str(run_dir))
    try:

        def begun():
            assert federation.status(run).status != "finished", federation.log("superlink")[-4000:]
            return federation.works_at("device-2", last)

        wait_for(begun, pause_s=1.0)
        federation.kill_node("device-2")
        assert federation.finish(run)[0] == "completed"
    finally:
        federation.reset_paces()
    return run_dir


def test_a_device_that_slows_down_gets_less_work(eventful):
    records = records_of(eventful)
    before, after = (work_of(records[k]) for k in (0, 3))
    assert set(before.values()) == {8}
    # How much less depends on what else the machine does meanwhile, which slows the others, too.
    assert after["device-0"] < 8 < after["device-1"]


def test_the_cycle_time_holds_by_the_servers_own_clock(eventful):
    for record in records_of(eventful)[:3]:
        for row in record.learners:
            assert row.outcome is Outcome.USED
            assert 0 < row.reported_time_s < row.round_trip_s <= record.cycle_time_s


def test_the_cycle_goes_on_without_a_device_that_dies(eventful):
    *earlier, last = same_model(eventful)
    assert all(row.outcome is Outcome.USED for record in earlier for row in record.learners)
    outcomes = {row.learner: row.outcome for row in last.learners}
    assert outcomes.pop("device-2") in (Outcome.FAILED, Outcome.LATE)
    assert set(outcomes.values()) == {Outcome.USED}


def test_a_restarted_device_is_the_same_to_the_server(federation, eventful):
    before = federation.node_id("device-2")
    assert {row.node for row in records_of(eventful)[0].learners if row.learner == "device-2"} == {before}
    assert federation.revive_node("device-2") == before


# --- the server ---------------------------------------------------------------------------------------


class Training:
    """One training in as many runs as its server's accidents make of it; every device declares one cost."""

    def __init__(self, fleet, name, cycles):
        self.fleet, self.run_dir = fleet, fleet.root / name
        self.config = {
            "cycles": cycles,
            "cycle_time": 5.0,
            "samples": 120,
            "max_epochs": 2,
            "learning": False,
        }
        self.config |= {"run_dir": str(self.run_dir), "app": fleet.app_declaring(0.01, 0.5)}

    def run_until(self, moment):
        """Start or resume; return True once `moment` is true, False if the run ended before."""
        self.run = self.fleet.submit(**self.config)
        wait_for(self.fleet.serverapp_pids)
        while not moment():
            if not self.fleet.serverapp_pids() and self.fleet.status(self.run).status == "finished":
                return False
            time.sleep(0.2)
        return True

    def kill(self):
        """Kill the ServerApp; stop its run, or Flower may start it again."""
        for pid in self.fleet.serverapp_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.fleet.stop_run(self.run)

        def gone():
            for pid in self.fleet.serverapp_pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not self.fleet.serverapp_pids()

        wait_for(gone)

    def kill_after(self, seconds):
        """Kill the ServerApp so long after its start; return whether it still ran."""
        began = []

        def moment():
            began.append(time.monotonic())
            return began[-1] - began[0] >= seconds

        done = cycles_in(self.run_dir)
        if not self.run_until(moment):
            return False
        self.kill()
        # One line may be ahead of its checkpoint; a resume takes it back.
        assert cycles_in(self.run_dir) >= done - 1
        return True

    def finish(self):
        """Resume for the last time and compare with the training that nothing interrupts."""
        config = dict(self.config)
        self.fleet.complete(config.pop("app"), **config)
        records = same_model(self.run_dir)
        assert [record.cycle for record in records] == list(range(1, self.config["cycles"] + 1))
        # Costs are declared, so the plan is the same in every cycle, whatever happened in between.
        plans = [[(r.learner, r.epochs, r.samples, r.outcome) for r in x.learners] for x in records]
        assert all(plan == plans[0] for plan in plans)
        assert all(row[3] is Outcome.USED for row in plans[0])
        assert len(plans[0]) == len(self.fleet.nodes)
        return records


def test_training_survives_its_server(federation):
    """The SuperLink is killed, and with it the ServerApp; `make test-slow` kills ServerApps alone."""
    training = Training(federation, "interrupted", cycles=2)
    assert training.run_until(lambda: cycles_in(training.run_dir) >= 1)
    federation.kill_superlink()
    federation.start_superlink()
    training.finish()


#: FLWR_MEL_KILLS=4: a part of it, where there is less time.
KILLS = int(os.environ.get("FLWR_MEL_KILLS", "20"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_kills_at_random_moments(small_fleet):
    rng = np.random.default_rng(20)
    span = 30.0  # grows where cycles take longer, so that kills do not all fall into the first one
    kills = trainings = 0
    while kills < KILLS:
        trainings += 1
        training = Training(small_fleet, f"killed-{trainings}", cycles=6)
        done = 0
        while kills < KILLS and training.kill_after(rng.uniform(0.0, span)):
            kills += 1
            before, done = done, cycles_in(training.run_dir)
            span *= 1.3 if done == before else 0.9
            print(f"kill {kills}: training {trainings}, {done} cycles done", flush=True)
        span *= 1.0 if kills >= KILLS else 0.5  # the run ended before its kill
        training.finish()
