"""Trainings that go on as if nothing had happened."""

import subprocess
import sys

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp import strategy as message_flower

from flwr_mel.checkpoint import Checkpoints
from flwr_mel.clientapp import describe
from flwr_mel.learning import Learning
from tests.checkpoint.tools import (
    APIS,
    CYCLES,
    LEARNERS,
    ByClassic,
    ByMessage,
    assert_equal,
    facts,
    measured,
    moments,
    same,
    start_weights,
)
from tests.waiting import PATIENCE_S


@APIS
@pytest.mark.parametrize("inner", ByMessage.inners)
def test_a_resumed_training_equals_an_uninterrupted_one(tmp_path, api, inner):
    whole = api(inner).run()
    assert [r.cycle for r in whole.strategy.records] == [1, 2, 3, 4]
    assert all(r.total_samples == 100 and not r.failures for r in whole.strategy.records)
    for done in range(1, CYCLES):
        directory = tmp_path / str(done)
        first = api(inner, checkpoints=directory).run(done)
        assert not same(first.final, whole.final)
        # The model that a user starts with does not matter any more.
        rest = api(inner, [np.zeros_like(w) for w in start_weights()], checkpoints=directory).run()
        assert_equal(rest, whole)
        assert first.rounds_evaluated + rest.rounds_evaluated == whole.rounds_evaluated == [0, 1, 2, 3, 4]
    if inner in ("FedAdam", "clipped"):
        assert set(moments(whole)) >= {"m_t", "v_t"}
        assert ("clipping_norm" in moments(whole)) == (inner == "clipped")
    if api is ByMessage:
        assert list(rest.result.evaluate_metrics_serverapp) == [4]
        assert rest.result.evaluate_metrics_serverapp[4] == whole.result.evaluate_metrics_serverapp[4]
        assert [r.cycle for r in rest.result.records] == [1, 2, 3, 4]


@APIS
def test_without_its_moments_fedadam_would_differ(tmp_path, api):
    """The comparison above can fail."""
    whole = api().run()
    api(checkpoints=tmp_path).run(2)
    rest = api(checkpoints=tmp_path)
    rest.strategy._keeper._inner.restore = lambda _: None
    assert not same(rest.run().final, whole.final)


KILLS = """
import logging, os, signal, sys
from pathlib import Path
import numpy as np
from flwr.supercore.task_identity import TaskIdentity
from tests.checkpoint import tools as lab
from flwr_mel.records import JsonlWriter, read_jsonl
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
logging.getLogger("flwr").setLevel(logging.ERROR)
place, api, cycles, kills = Path(sys.argv[1]), getattr(lab, sys.argv[2]), 12, 0
rng = np.random.default_rng(1)
training = lambda: api(checkpoints=place / "c", callbacks=[JsonlWriter(place / "r.jsonl")])


def kill_at(n):
    # Kill this process when it is about to change the disk for the nth time.
    left = n
    def counted(change):
        def call(*args, **kwargs):
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*args, **kwargs)
        return call
    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, counted(getattr(os, name)))

while True:
    child = os.fork()
    if not child:
        kill_at(int(rng.integers(1, 30)))
        training().run(cycles)
        os._exit(0)
    rng.integers(1, 30)  # as the child did
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
    kills += 1
rest, whole = training().run(cycles), api().run(cycles)
lab.assert_equal(rest, whole)
assert lab.facts(read_jsonl(place / "r.jsonl")) == lab.facts(whole.strategy.records)
print(kills)
"""


@APIS
def test_a_server_killed_again_and_again_ends_where_it_would_have(tmp_path, api):
    done = subprocess.run(
        [sys.executable, "-c", KILLS, tmp_path, api.__name__],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2


HOLDS = """
import sys, time
from pathlib import Path
from flwr_mel.checkpoint.claim import claim
claim(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(900)
"""


@APIS
def test_two_processes_do_not_train_in_one_directory(tmp_path, api):
    other = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RuntimeError, match="another process trains with the checkpoints in"):
            api(checkpoints=tmp_path).run(1)
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    assert len(api(checkpoints=tmp_path).run(2).strategy.records) == 2
    assert len(api(checkpoints=tmp_path).run(3).strategy.records) == 3


def test_under_another_strategy_the_model_is_that_ones(tmp_path):
    """A DP wrapper outside MelStrategy adds noise after it; the checkpoint has the noisy model."""
    first = ByMessage("FedAvg", checkpoints=tmp_path)
    mel = first.strategy
    first.strategy = message_flower.DifferentialPrivacyServerSideFixedClipping(mel, 0.1, 1.0, LEARNERS)
    first.run(2)
    found = Checkpoints(tmp_path).load()
    assert found.cycle == 2
    assert same(list(found.model.values()), first.final)
    rest = ByMessage("FedAvg", checkpoints=tmp_path)
    arrays, left = rest.strategy.resume(ArrayRecord(start_weights()), 5)
    assert left == 3
    assert same(arrays.to_numpy_ndarrays(), first.final)
    assert [r.cycle for r in rest.strategy.records] == [1, 2]


@APIS
def test_what_was_learnt_comes_back(tmp_path, api):
    options = {"checkpoints": tmp_path, "learning": Learning()}
    first = api(**options).run(2).strategy.orchestrator.state.snapshot()
    assert len(first["estimates"]) == LEARNERS
    assert api(**options).run(2).strategy.orchestrator.state.snapshot() == first


@pytest.mark.parametrize(("begun", "gone_on"), [(ByMessage, ByClassic), (ByClassic, ByMessage)])
def test_a_training_goes_on_through_the_other_api_and_back(tmp_path, begun, gone_on):
    whole = begun("FedAvg").run()
    begun("FedAvg", checkpoints=tmp_path).run(1)
    other = gone_on("FedAvg", [np.zeros_like(w) for w in start_weights()], checkpoints=tmp_path).run(3)
    assert [r.cycle for r in other.strategy.records] == [1, 2, 3]
    assert Checkpoints(tmp_path).load().fingerprint["api"] == other.strategy._keeper._inner.api
    rest = begun("FedAvg", checkpoints=tmp_path).run()
    assert same(rest.final, whole.final)
    # The APIs report other metrics of training.
    for mixed, pure in zip(facts(rest.strategy.records), facts(whole.strategy.records), strict=True):
        assert mixed | {"metrics": {}} == pure | {"metrics": {}}
        assert mixed["metrics"]["accuracy"] == pure["metrics"]["accuracy"]


@pytest.mark.parametrize(("begun", "gone_on"), [(ByMessage, ByClassic), (ByClassic, ByMessage)])
def test_moments_do_not_go_from_one_api_to_the_other(tmp_path, begun, gone_on):
    """The APIs keep them in different forms; without them the training would be another."""
    begun("FedAdam", checkpoints=tmp_path).run(1)
    with pytest.raises(ValueError, match=r"FedAdam has a state \(.*m_t.*\) that cannot be taken over here"):
        gone_on("FedAdam", checkpoints=tmp_path).run()
    with pytest.raises(ValueError, match="none is usable"):
        gone_on("FedAvgM", checkpoints=tmp_path).run()
    assert begun("FedAdam", checkpoints=tmp_path).run().strategy.orchestrator.state.cycles_done == CYCLES


def test_names_of_arrays_belong_to_the_api(tmp_path):
    """A model's arrays have names in the Message API and numbers in the classic one."""
    names = [f"layer{i}.weight" for i, _ in enumerate(start_weights())]
    named = {name: Array(w) for name, w in zip(names, start_weights(), strict=True)}
    ByMessage("FedAvg", named, checkpoints=tmp_path).run(2)
    other = ByClassic("FedAvg", checkpoints=tmp_path).run(3)
    rest = ByMessage("FedAvg", named, checkpoints=tmp_path)
    arrays, left = rest.strategy.resume(ArrayRecord(named), 5)
    assert (list(arrays), left) == (names, 2)
    assert same(arrays.to_numpy_ndarrays(), other.final)


def test_learners_heard_before_going_on_stay_known(tmp_path):
    """A simulation asks before it starts the strategy's loop, which then reads the checkpoint."""
    ByMessage("FedAvg", checkpoints=tmp_path).run(2)
    rest = ByMessage("FedAvg", checkpoints=tmp_path)
    rest.strategy.orchestrator.hear("1", describe(measured(0)))
    rest.strategy.resume(ArrayRecord(start_weights()), 4)
    state = rest.strategy.orchestrator.state
    assert state.learners["1"].known
    assert (state.cycles_done, state.resumed_after) == (2, 2)
