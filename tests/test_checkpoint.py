"""Checkpoints: files that are whole or not there, and trainings that go on as if nothing had happened."""

import json
import logging
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import Code, FitRes, GetPropertiesRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import Server, SimpleClientManager
from flwr.server import strategy as classic_flower
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import strategy as message_flower
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.strategy import InProcessGrid
from flwr_mel import server as classic
from flwr_mel import serverapp as message
from flwr_mel.checkpoint import Checkpoint, Checkpoints
from flwr_mel.clientapp import Assignment, MelMod, describe
from flwr_mel.learners import Measured
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import Stopping
from flwr_mel.records import CycleRecord, JsonlWriter, LearnerRecord, Outcome, read_jsonl

LEARNERS, CYCLES = 4, 4


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Messages can only be made inside a run."""
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def record(cycle):
    row = LearnerRecord("a", "1", Outcome.USED, epochs=2, samples=10, time_s=0.1 + 0.2)
    return CycleRecord(cycle, 2.0, learners=[row], metrics={"accuracy": 0.1 * cycle, "odd": float("nan")})


def checkpoint(cycle, **more):
    rng = np.random.default_rng(cycle)
    model = {"w/1": rng.normal(size=(3, 4)).astype(np.float32), "w/2": rng.integers(0, 9, 5)}
    kept = {"fingerprint": {"seed": 3, "model": [["w/1", "<f4", [3, 4]]]}, "state": {"cycle": cycle}}
    return Checkpoint(cycle, model, records=[record(n + 1) for n in range(cycle)], **(kept | more))


def same(a, b):
    """Whether two trees have the same types, values and bits."""
    if isinstance(a, np.ndarray | np.generic):
        return type(a) is type(b) and (a.dtype.str, a.shape, a.tobytes()) == (
            b.dtype.str,
            b.shape,
            b.tobytes(),
        )
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.name != "lock")


# --- the files ------------------------------------------------------------------------------------------


def test_everything_comes_back_bit_for_bit(tmp_path):
    arrays = [
        np.array([1.5, np.nan, -0.0, np.inf], ">f4"),
        np.float16([[1], [2]]).T,
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(True),
        np.zeros((0, 3), np.uint8),
        np.array([1 + 2j], np.complex64),
        np.array(["a", "äö"]),
        np.array([2**63], np.uint64),
    ]
    odd = [{"m_t": ("plain", [*arrays, {"x": arrays[0]}, (np.float32(0.1), b"\x00bytes", b"")])}, {7: None}]
    model = {f"layer {i}/../x": a for i, a in enumerate(arrays)}
    kept = replace(checkpoint(2), model=model, inner=odd, callbacks=[("JsonlWriter 1", {"bytes": 10**12})])
    path = Checkpoints(tmp_path).save(kept)
    found = Checkpoints(tmp_path).load()
    assert path.name == "mel-00000002.ckpt"
    for field in ("model", "inner", "callbacks", "state"):
        assert same(getattr(kept, field), getattr(found, field)), field
    assert [r.as_dict() for r in found.records] == [r.as_dict() for r in kept.records]
    assert b"pickle" not in path.read_bytes()


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_generators_go_on_where_they_were(tmp_path, kind):
    mine = np.random.Generator(kind(5))
    mine.normal(size=7)
    Checkpoints(tmp_path, generators={"noise": mine}).save(checkpoint(1))
    expected = mine.integers(0, 2**60, 9)
    other = np.random.Generator(kind(99))
    Checkpoints(tmp_path, generators={"noise": other}).load()
    assert np.array_equal(other.integers(0, 2**60, 9), expected)
    with pytest.raises(ValueError, match="another training: generators was"):
        Checkpoints(tmp_path).load()


@pytest.mark.parametrize(
    "bad", [np.array([object()]), np.zeros(2, [("x", "f4")]), {1, 2}, np.ma.masked_array([1]), 1 + 2j]
)
def test_what_cannot_be_read_back_is_not_written(tmp_path, bad):
    with pytest.raises(TypeError, match="cannot be kept in a checkpoint"):
        Checkpoints(tmp_path).save(replace(checkpoint(1), inner=[bad]))
    assert names(tmp_path) == []


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_ones_are_kept(tmp_path, keep):
    store = Checkpoints(tmp_path, keep)
    for cycle in range(6):
        store.save(checkpoint(cycle))
        expected = [f"mel-{n:08d}.ckpt" for n in range(max(0, cycle + 1 - keep), cycle + 1)]
        assert names(tmp_path) == expected


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="keep must be an integer from 1"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ValueError, match=r"generators\['a'\] must be a np.random.Generator, got 3"):
        Checkpoints(tmp_path, generators={"a": 3})
    inner = message.MelFedAvg()
    with pytest.raises(ValueError, match="resume must be True"):
        message.MelStrategy(inner, cycle_time_s=1.0, checkpoints=tmp_path, resume="yes")
    with pytest.raises(ValueError, match="checkpoints must be a flwr_mel"):
        message.MelStrategy(inner, cycle_time_s=1.0, checkpoints=3)


def test_odd_files_are_ignored(tmp_path):
    store = Checkpoints(tmp_path / "mine")
    assert store.load() is None
    good = store.save(checkpoint(1))
    elsewhere = shutil.copy(good, tmp_path / "mel-00000009.ckpt")
    (good.parent / "mel-00000009.ckpt").symlink_to(elsewhere)
    (good.parent / "mel-00000008.ckpt").mkdir()
    for name in (
        "mel-7.ckpt",
        "mel-00000007.ckpt.bak",
        "xmel-00000007.ckpt",
        "mel-0000000\u0667.ckpt",
        "a\nb",
    ):
        shutil.copy(good, good.parent / name)
    assert store.files() == [good]
    assert store.load().cycle == 1


def test_leftovers_of_killed_processes_go_away(tmp_path):
    mine, not_mine = tmp_path / ".mel-00000004.ckpt.0123abcd.tmp", tmp_path / ".mel.tmp"
    mine.write_bytes(b"half")
    not_mine.write_bytes(b"other")
    Checkpoints(tmp_path).save(checkpoint(5))
    assert names(tmp_path) == [".mel.tmp", "mel-00000005.ckpt"]


# --- what is refused ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two checkpoints and the bytes of the newer one."""
    store = Checkpoints(tmp_path_factory.mktemp("two"))
    store.save(checkpoint(1))
    return store, store.save(checkpoint(2)).read_bytes()


def falls_back(store, content, caplog):
    """Put `content` in the newer one's place: it is refused, and the older one is used."""
    path = store.directory / "mel-00000002.ckpt"
    path.write_bytes(content)
    caplog.clear()
    found = store.load({"seed": 3})
    assert found.cycle == 1
    assert same(found.model, checkpoint(1).model)
    assert [r.cycle for r in found.records] == [1]
    assert not path.exists()
    assert path.with_name("mel-00000002.ckpt.refused").read_bytes() == content
    return caplog.text


QUICK = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_refused(two, caplog, where, bit):
    store, content = two
    broken = bytearray(content)
    broken[int(where * len(broken))] ^= 1 << bit
    assert "mel-00000002.ckpt is refused: it " in falls_back(store, bytes(broken), caplog)


def test_a_flipped_bit_in_the_first_line_is_refused(two, caplog):
    store, content = two
    for place in range(content.index(b"\n") + 1):
        for bit in range(8):
            broken = bytearray(content)
            broken[place] ^= 1 << bit
            falls_back(store, bytes(broken), caplog)


@QUICK
@given(where=st.floats(0, 1, exclude_max=True), more=st.binary(max_size=3))
def test_a_cut_or_longer_file_is_refused(two, caplog, where, more):
    store, content = two
    falls_back(store, content[: int(where * len(content))], caplog)
    falls_back(store, content + b"\0" + more, caplog)


def test_a_newer_format_is_refused_by_name(two, caplog):
    store, content = two
    said = falls_back(store, content.replace(b"checkpoint 1 ", b"checkpoint 12 ", 1), caplog)
    assert "it has format 12, of a newer flwr_mel; this one reads up to 1" in said
    said = falls_back(store, content.replace(b"checkpoint 1 ", b"checkpoint 0 ", 1), caplog)
    assert "unknown format 0" in said


def test_another_training_is_refused(two, tmp_path, caplog):
    store, _ = two
    other = Checkpoints(tmp_path)
    cases = {
        "seed was 4, is now 3": {"seed": 4},
        "mode was parallelized, is now federated": {"seed": 3, "mode": "parallelized"},
        "model was ['a', '<f4', [2]], is now ['a', '<f4', [3]]": {"model": [["a", "<f4", [2]]]},
        "model was 2 entries, is now 1 entries": {"model": [["a", "<f4", [2]], ["b", "<f4", [2]]]},
    }
    now = {"seed": 3, "mode": "federated", "model": [["a", "<f4", [3]]], "strategy": None}
    for reason, fingerprint in cases.items():
        other.save(replace(checkpoint(2), fingerprint=fingerprint))
        caplog.clear()
        with pytest.raises(ValueError, match="has 1 checkpoints and none is usable") as error:
            other.load(now)
        assert reason in str(error.value)
        assert "give another directory or remove the files" in str(error.value)
        assert reason in caplog.text
        assert names(tmp_path) == ["mel-00000002.ckpt"]  # refused, but still what it was
    content = (tmp_path / "mel-00000002.ckpt").read_bytes()
    other.save(replace(checkpoint(2), fingerprint={"seed": 4}))
    assert "seed was 4" in falls_back(store, (tmp_path / "mel-00000002.ckpt").read_bytes(), caplog)
    shutil.copy(store.directory / "mel-00000001.ckpt", tmp_path / "one")
    assert "is of cycle 1, which is not" in falls_back(store, (tmp_path / "one").read_bytes(), caplog)
    assert content


def test_files_but_none_usable_is_an_error(tmp_path):
    store = Checkpoints(tmp_path)
    for cycle in (1, 2):
        store.save(checkpoint(cycle)).write_bytes(b"")
    with pytest.raises(ValueError, match=r"has 2 checkpoints and none is usable .*00002.*damaged.*00001"):
        store.load()
    assert names(tmp_path) == ["mel-00000001.ckpt", "mel-00000002.ckpt"]


# --- kills ----------------------------------------------------------------------------------------------

NURSERY = """
import os, signal, sys, time
import numpy as np
from pathlib import Path
from flwr_mel.checkpoint import Checkpoint, Checkpoints
import logging
logging.basicConfig(level=logging.WARNING)
store, rng = Checkpoints(sys.argv[1], keep=2), np.random.default_rng(0)
model = lambda n: {"w": np.full(30_000, n, np.float32), "b": np.arange(n % 7)}
halves = 0
for kill in range(50):
    found = store.load()
    first = found.cycle + 1 if found else 1
    r, w = os.pipe()
    child = os.fork()
    if not child:
        for n in range(first, 10**6):
            store.save(Checkpoint(n, model(n)))
            os.write(w, b"%d\\n" % n)
    os.close(w)
    said = os.read(r, 4096)
    time.sleep(rng.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(r, 65536):
        said += part
    os.close(r)
    halves += any(p.name.endswith(".tmp") for p in Path(sys.argv[1]).iterdir())
    last, found = int(said.split()[-1]), store.load()
    assert last <= found.cycle <= last + 1, (last, found.cycle)
    assert all(np.array_equal(found.model[k], v) for k, v in model(found.cycle).items())
    assert len(store.files()) <= 3
print(found.cycle, halves)
"""


def test_fifty_kills_in_the_middle_of_saving(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", NURSERY, tmp_path], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "refused" not in done.stderr
    cycles, halves = map(int, done.stdout.split())
    assert cycles > 50
    assert halves > 5  # kills did hit half-written files


# --- trainings ------------------------------------------------------------------------------------------


def measured(k):
    return Measured(1e-3, 1e-3, 0.1, 1e-4, 0.0, 0.1, name=f"d{k}", max_samples=40 + 5 * k)


def work(config, weights):
    """Something that depends on everything a task says."""
    task = Assignment.from_config(config)
    rng = task.rng()
    return [
        w + (0.01 * task.epochs * rng.normal(size=w.shape)).astype(w.dtype) for w in weights
    ], task.samples


def accuracy(weights):
    return float(np.tanh(sum(np.abs(w).sum() for w in weights) / 50))


def start_weights():
    rng = np.random.default_rng(1)
    return [rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=4)]


COMMON = {"cycle_time_s": 2.0, "total_samples": 100, "staleness": 2, "seed": 5}


class ByMessage:
    """A training through the Message API."""

    inners: ClassVar = {
        "FedAvg": message.MelFedAvg,
        "FedAdam": lambda **o: message_flower.FedAdam(**o, eta=0.05),
        "FedYogi": lambda **o: message_flower.FedYogi(**o, eta=0.05),
        "FedAvgM": lambda **o: message_flower.FedAvgM(**o, server_momentum=0.9, server_learning_rate=0.7),
        # Its clipping norm changes from cycle to cycle; without noise, which nobody could repeat.
        "clipped": lambda **o: message_flower.DifferentialPrivacyServerSideAdaptiveClipping(
            message_flower.FedAdam(**o, eta=0.05), 0.0, LEARNERS, clipped_count_stddev=1e-300
        ),
    }

    def __init__(self, inner="FedAdam", weights=None, **options):
        self.weights = weights or start_weights()
        self.inner = self.inners[inner](
            fraction_evaluate=0.0, min_train_nodes=LEARNERS, min_available_nodes=LEARNERS
        )
        self.strategy = message.MelStrategy(self.inner, **(COMMON | options))
        self.rounds_evaluated = []

    def run(self, cycles=CYCLES):
        app = ClientApp(mods=[MelMod(lambda context, _: measured(int(context.node_config["partition-id"])))])

        @app.train()
        def train(asked, context):
            moved, samples = work(asked.content["config"], asked.content["arrays"].to_numpy_ndarrays())
            metrics = MetricRecord(
                {"num-examples": samples, "round": asked.content["config"]["server-round"]}
            )
            return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=asked)

        def evaluate(server_round, arrays):
            self.rounds_evaluated.append(server_round)
            return MetricRecord({"accuracy": accuracy(arrays.to_numpy_ndarrays())})

        result = self.strategy.start(
            InProcessGrid(app, LEARNERS), ArrayRecord(self.weights), num_rounds=cycles, evaluate_fn=evaluate
        )
        self.result = result
        self.final = result.arrays.to_numpy_ndarrays()
        return self


class Proxy(ClientProxy):
    """A classic client in this process."""

    def __init__(self, k):
        super().__init__(str(k))
        self.k = k

    def get_properties(self, ins, timeout, group_id):
        return GetPropertiesRes(Status(Code.OK, ""), describe(measured(self.k)))

    def fit(self, ins, timeout, group_id):
        moved, samples = work(ins.config, parameters_to_ndarrays(ins.parameters))
        return FitRes(Status(Code.OK, ""), ndarrays_to_parameters(moved), samples, {})

    get_parameters = evaluate = reconnect = None


class ByClassic:
    """A training through the classic API."""

    inners: ClassVar = {
        "FedAvg": classic.MelFedAvg,
        "FedAdam": lambda **o: classic_flower.FedAdam(**o, eta=0.05),
        "FedYogi": lambda **o: classic_flower.FedYogi(**o, eta=0.05),
        "FedAvgM": lambda **o: classic_flower.FedAvgM(**o, server_momentum=0.9, server_learning_rate=0.7),
        "clipped": lambda **o: classic_flower.DifferentialPrivacyServerSideAdaptiveClipping(
            classic_flower.FedAdam(**o, eta=0.05), 0.0, LEARNERS, clipped_count_stddev=1e-300
        ),
    }

    def __init__(self, inner="FedAdam", weights=None, **options):
        self.rounds_evaluated = []

        def evaluate(server_round, weights, config):
            self.rounds_evaluated.append(server_round)
            return 1.0, {"accuracy": accuracy(weights)}

        self.inner = self.inners[inner](
            fraction_evaluate=0.0,
            min_fit_clients=LEARNERS,
            min_available_clients=LEARNERS,
            evaluate_fn=evaluate,
            initial_parameters=ndarrays_to_parameters(weights or start_weights()),
        )
        self.strategy = classic.MelStrategy(self.inner, **(COMMON | options))

    def run(self, cycles=CYCLES):
        manager = SimpleClientManager()
        for k in range(LEARNERS):
            manager.register(Proxy(k))
        server = Server(client_manager=manager, strategy=self.strategy)
        server.fit(self.strategy.rounds_left(cycles), timeout=None)
        self.final = parameters_to_ndarrays(server.parameters)
        return self


APIS = pytest.mark.parametrize("api", [ByMessage, ByClassic])


STATE = ("m_t", "v_t", "momentum_vector", "current_weights", "clipping_norm")


def moments(training):
    found = {}
    for layer in (training.inner, getattr(training.inner, "strategy", training.inner)):
        found |= {name: value for name, value in vars(layer).items() if name in STATE and value is not None}
    return found


def facts(records):
    """Records without what a real clock measured."""
    plain = [r.as_dict() for r in records]
    for cycle in plain:
        for row in cycle["learners"]:
            row["reported_time_s"] = row["round_trip_s"] = None
    return plain


def assert_equal(a, b):
    assert same(a.final, b.final)
    assert same(moments(a), moments(b))
    assert facts(a.strategy.records) == facts(b.strategy.records)
    assert a.strategy.orchestrator.state.snapshot() == b.strategy.orchestrator.state.snapshot()
    assert a.strategy.stopped == b.strategy.stopped


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
import logging, os, signal, sys, time
from pathlib import Path
import numpy as np
from flwr.supercore.task_identity import TaskIdentity
from tests import test_checkpoint as lab
from flwr_mel.records import JsonlWriter, read_jsonl
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
logging.getLogger("flwr").setLevel(logging.ERROR)
place, api, cycles, kills = Path(sys.argv[1]), getattr(lab, sys.argv[2]), 12, 0
rng = np.random.default_rng(1)
training = lambda: api(checkpoints=place / "c", callbacks=[JsonlWriter(place / "r.jsonl")])
while True:
    child = os.fork()
    if not child:
        training().run(cycles)
        os._exit(0)
    # The first ones come early on any machine, later ones let a slow machine get on too.
    time.sleep(0.02 * 1.2**kills * rng.uniform(0.5, 1.5))
    ended, _ = os.waitpid(child, os.WNOHANG)
    if ended:
        break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
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
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2


HOLDS = """
import sys, time
from pathlib import Path
from flwr_mel.checkpoint.claim import claim
claim(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
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


class Killed(BaseException):
    """Ends the process, as far as a test in one process can."""


@APIS
def test_a_kill_between_any_two_writes_loses_and_doubles_nothing(tmp_path, api, monkeypatch):
    whole = api().run()
    api(callbacks=[JsonlWriter(tmp_path / "older.jsonl")], seed=9).run(2)
    older = facts(read_jsonl(tmp_path / "older.jsonl"))
    real = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}
    calls, fatal = 0, None

    def wrapped(name):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == fatal:
                raise Killed
            done = real[name](*args, **kwargs)
            calls += 1
            if calls == fatal:
                raise Killed
            return done

        return call

    for name in real:
        monkeypatch.setattr(os, name, wrapped(name))
    for n in range(1, 1000):
        place = tmp_path / str(n)
        calls, fatal = 0, n
        place.mkdir()
        shutil.copy(tmp_path / "older.jsonl", place / "r.jsonl")

        def training(place=place):
            return api(
                checkpoints=Checkpoints(place / "c", keep=2), callbacks=[JsonlWriter(place / "r.jsonl")]
            )

        try:
            ended = training().run()
            assert_equal(ended, whole)
            break
        except Killed:
            fatal = None
        done = max((int(p.name[4:12]) for p in (place / "c").glob("mel-*")), default=0)
        rest = training()
        told = []
        rest.strategy.orchestrator.callbacks.insert(0, lambda record, told=told: told.append(record.cycle))
        rest.run()
        assert_equal(rest, whole)
        assert facts(read_jsonl(place / "r.jsonl")) == older + facts(whole.strategy.records)
        assert told == list(range(done + 1, CYCLES + 1))
    assert 40 < n < 100


@APIS
def test_going_on_after_the_newest_is_damaged(tmp_path, api, caplog):
    whole = api().run()
    api(checkpoints=tmp_path / "c", callbacks=[JsonlWriter(tmp_path / "r.jsonl")]).run(3)
    newest = tmp_path / "c" / "mel-00000003.ckpt"
    newest.write_bytes(newest.read_bytes()[:-9])
    caplog.set_level(logging.INFO, "flwr.mel")
    assert_equal(api(checkpoints=tmp_path / "c", callbacks=[JsonlWriter(tmp_path / "r.jsonl")]).run(), whole)
    assert facts(read_jsonl(tmp_path / "r.jsonl")) == facts(whole.strategy.records)
    assert "mel-00000003.ckpt is refused: it is damaged or cut off" in caplog.text
    assert "r.jsonl: 1 cycles after the checkpoint are dropped" in caplog.text
    assert names(tmp_path / "c") == [
        *("mel-00000002.ckpt", "mel-00000003.ckpt", "mel-00000003.ckpt.refused", "mel-00000004.ckpt")
    ]


@APIS
def test_what_must_not_change(tmp_path, api):
    api("FedAvg", checkpoints=tmp_path).run(1)
    other = [np.zeros((5, 3), np.float32), np.zeros(4, np.float32)]
    for reason, options in {
        "seed was 5, is now 6": {"seed": 6},
        "strategy was": {"inner": "FedAdam"},
        "'<f8', [4]], is now": {"weights": other},
    }.items():
        with pytest.raises(ValueError, match="none is usable") as error:
            api(**({"inner": "FedAvg", "checkpoints": tmp_path} | options)).run()
        assert reason in str(error.value)
    assert len(names(tmp_path)) == 2
    with pytest.raises(ValueError, match="without a training when resume=False"):
        api("FedAvg", checkpoints=tmp_path, resume=False).run()
    fresh = api("FedAvg", checkpoints=tmp_path / "new", resume=False).run()
    assert_equal(fresh, api("FedAvg").run())


@APIS
def test_nothing_is_left_to_do(tmp_path, api, caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    done = api(checkpoints=tmp_path).run()
    again = api(checkpoints=tmp_path).run()
    assert_equal(again, done)
    assert "all 4 cycles are done: nothing is left to do" in caplog.text
    assert again.rounds_evaluated == []
    assert_equal(api(checkpoints=tmp_path).run(6), api().run(6))


@APIS
def test_a_stopped_training_says_so_and_stays_stopped(tmp_path, api, caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    options = {"checkpoints": tmp_path, "stopping": Stopping(cycles=2)}
    stopped = api(**options).run()
    assert stopped.strategy.stopped.cycle == 2
    caplog.clear()
    again = api(**options).run()
    assert_equal(again, stopped)
    assert "training stopped after cycle 2 (2 cycles done): nothing is left" in caplog.text
    more = api(**(options | {"stopping": Stopping(cycles=3)})).run()
    assert "goes on with other criteria" in caplog.text
    assert same(more.final, api(stopping=Stopping(cycles=3)).run().final)
    assert [r.stopped for r in more.strategy.records] == ["", "2 cycles done", "3 cycles done"]


@APIS
def test_a_full_disk_does_not_cost_the_training(tmp_path, api, caplog):
    whole = api().run()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(record):
        if record.cycle == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))

    try:
        assert_equal(api(checkpoints=tmp_path, callbacks=[fill]).run(), whole)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [r.levelname for r in caplog.records if "no checkpoint of cycle" in r.message] == ["ERROR"] * 3
    assert names(tmp_path) == ["mel-00000000.ckpt", "mel-00000001.ckpt"]
    assert_equal(api(checkpoints=tmp_path).run(), whole)


@APIS
def test_a_directory_that_goes_away_or_cannot_be_written(tmp_path, api, caplog):
    whole = api().run()
    place = tmp_path / "c"

    def spoil(record):
        if record.cycle == 2:
            shutil.rmtree(place)
            place.write_text("a file")
        if record.cycle == 4:
            place.unlink()

    assert_equal(api(checkpoints=place, callbacks=[spoil]).run(), whole)
    assert caplog.text.count("no checkpoint of cycle") == 2
    assert names(place) == ["mel-00000004.ckpt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="checkpoints must be a directory that takes the model"):
        api(checkpoints=tmp_path / "file" / "c").run()


@APIS
def test_state_that_is_not_an_array(tmp_path, api):
    """A number that training changes is state; one that it leaves alone stays the user's."""

    def counting(training):
        inner = training.inner
        name = "aggregate_train" if api is ByMessage else "aggregate_fit"
        method = getattr(inner, name)
        inner.norm, inner.rng = 1.0, np.random.default_rng(8)
        inner.history = []

        def counted(*args):
            inner.norm *= 0.7
            inner.history.append(inner.rng.normal())
            return method(*args)

        setattr(inner, name, counted)
        strategy = message.MelStrategy if api is ByMessage else classic.MelStrategy
        training.strategy = strategy(inner, **COMMON, checkpoints=training.directory)
        return training

    def training(directory):
        made = api()
        made.directory = directory
        return counting(made)

    whole = training(tmp_path / "whole").run()
    training(tmp_path / "c").run(2)
    rest = training(tmp_path / "c")
    rest.inner.eta = 0.05 / 2
    rest.run()
    assert (rest.inner.norm, rest.inner.history) == (whole.inner.norm, whole.inner.history)
    assert rest.inner.rng.bit_generator.state == whole.inner.rng.bit_generator.state
    assert rest.inner.eta == 0.05 / 2


# --- the record file -------------------------------------------------------------------------------------


def test_a_writer_drops_the_surplus_and_nothing_else(tmp_path):
    writer = JsonlWriter(tmp_path / "r.jsonl")
    writer(record(7))  # another training's
    for cycle in (1, 2):
        writer(record(cycle))
    kept = writer.snapshot()
    for cycle in (3, 4):
        writer(record(cycle))
    writer.restore(kept, [record(1), record(2)])
    assert [r.cycle for r in read_jsonl(writer.path)] == [7, 1, 2]
    writer.restore(kept, [record(1), record(2)])
    assert [r.cycle for r in read_jsonl(writer.path)] == [7, 1, 2]


def test_a_new_or_lost_file_gets_all_cycles_and_a_strange_one_is_refused(tmp_path):
    records = [record(1), record(2)]
    for snapshot in ({}, {"bytes": 10**6}):
        path = tmp_path / f"{len(snapshot)}.jsonl"
        JsonlWriter(path).restore(snapshot, records)
        assert [json.loads(line) for line in path.read_text().splitlines()] == [r.as_dict() for r in records]
        size = path.stat().st_size
        for odd in (
            {},
            {"bytes": size - 1},
            {"bytes": size + 1},
            {"bytes": path.read_bytes().index(b"\n") + 1},
        ):
            with pytest.raises(ValueError, match="the file that the resumed training wrote, or a new one"):
                JsonlWriter(path).restore(odd, records)
        assert path.stat().st_size == size
