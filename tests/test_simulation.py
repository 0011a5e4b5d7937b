"""The simulation without its engine: configuration, fleet, ledger, run directory, what is refused."""

import csv
import inspect
import json
import os
import subprocess
import sys
import time
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from flwr_mel.allocation.solution import Infeasible
from flwr_mel.cli import app
from flwr_mel.cli.simulate import _NOT_THE_RUNS, simulate
from flwr_mel.learners import Measured, paper_fleet, write_fleet, write_fleet_csv
from flwr_mel.learners.fleet import Fleet
from flwr_mel.learners.paper import PAPER_CLASSES, PAPER_RADIUS_M
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from simulation import task
from simulation.config import RESUMABLE, RunConfig
from simulation.data import embedded
from simulation.fleet import VirtualFleet
from simulation.flower_app import toml_lines, write_app, write_connection
from simulation.launch import Engine
from simulation.live import Pace, Tail, remarks
from simulation.network import initial_weights
from simulation.processes import end, tree
from simulation.rehearsal import rehearse
from simulation.run_dir import BATTERY_J, RunDir, atomically, describe_run, ledger_rows
from simulation.server_app import count_nodes
from simulation.window import Windowed

pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_MEL_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "1")
    monkeypatch.setattr("simulation.launch.running", None)  # nothing here is to start the engine
    task._partitions.cache_clear()


def cli(*args: object, code: int) -> str:
    """Run `flwr-mel simulate`; return what it says."""
    result = CliRunner().invoke(app, ["simulate", *(str(a) for a in args)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


# --- configuration ----------------------------------------------------------------------------------


def test_pyproject_has_the_defaults():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert config == RunConfig().as_dict()
    assert list(config) == RunConfig.keys()
    assert RunConfig.parse(config) == RunConfig()


def test_the_options_have_the_defaults():
    parameters = inspect.signature(simulate).parameters
    defaults = {k: p.default for k, p in parameters.items() if k not in _NOT_THE_RUNS}
    assert list(defaults) == [f.name for f in fields(RunConfig)]
    # The command line brings its own federation, of the paper's size; `flwr run` takes the one there is.
    assert (defaults["learners"], RunConfig().learners) == (20, 0)
    assert replace(RunConfig(**defaults), learners=0) == RunConfig()


def test_every_key_is_documented():
    text = (ROOT / "docs" / "SIMULATION.md").read_text()
    for key, value in RunConfig().as_dict().items():
        shown = f"{value:g}" if isinstance(value, float) else str(value).lower() or "empty"
        assert f"| `{key}` | {shown} |" in text, key
        assert key.replace("-", "_") in inspect.getdoc(RunConfig)
    for key in RESUMABLE:
        assert key in RunConfig().as_dict()


BAD = [
    ({"scheme": "random"}, "scheme must be one of ha-asyn, ha-sync, hu-asyn, hu-sync"),
    ({"mode": "dl"}, "mode must be one of pl, fl"),
    ({"solver": "magic"}, "solver must be one of exact, suggest-improve"),
    ({"handout": "random"}, "handout must be one of"),
    ({"dataset": "cifar"}, "dataset must be one of mnist, fashion-mnist"),
    ({"api": "rest"}, "api must be one of message, classic"),
    ({"cycles": 0}, "cycles must be"),
    ({"cycle-time": -5.0}, "cycle_time must be"),
    ({"cycle-time": float("nan")}, "cycle_time must be"),
    ({"energy": -1.0}, "energy must be"),
    ({"energy-spread": 10.0}, "energy_spread must be below energy = 10"),
    ({"energy-spread": -1.0}, "energy_spread must be"),
    ({"staleness": -1}, "staleness must be"),
    ({"learners": -3}, "learners must be"),
    ({"samples": -1}, "samples must be"),
    ({"batch-size": -1}, "batch_size must be"),
    ({"learning-rate": 0.0}, "learning_rate must be"),
    ({"target-accuracy": 95.0}, "target_accuracy must be between 0 and 1"),
    ({"mobility": -1.0}, "mobility must be"),
    ({"alpha": -0.5}, "alpha must be"),
    ({"seed": -1}, "seed must be"),
    ({"data-dir": "/no/such/place"}, "data_dir must be an existing directory"),
    ({"fleet": "/no/such/fleet.toml"}, "fleet must be an existing TOML or CSV file"),
    ({"resume": True}, "run_dir must be the run to go on with"),
]


@pytest.mark.parametrize(("bad", "says"), BAD, ids=[f"{k}={v}" for b, _ in BAD for k, v in b.items()])
def test_bad_values_are_refused_and_stop_the_command(bad, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"must be") as error:
        RunConfig.parse(bad)
    assert says in str(error.value)
    [(key, value)] = bad.items()
    assert str(value) in str(error.value) or key == "resume"
    said = cli(*(["--resume"] if key == "resume" else [f"--{key}={value}"]), code=2)
    assert "--" + says.split(" ")[0].replace("_", "-") in said
    assert list(tmp_path.iterdir()) == []  # nothing was started


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"cycle": 3}, "run config must be made of scheme, mode"),
        ({"cycles": "many"}, "cycles must be of type int, got 'many'"),
        ({"cycles": 3.5}, "cycles must be of type int"),
        ({"energy": True}, "energy must be of type float"),
        ({"seed": False}, "seed must be of type int"),
        ({"scheme": 1}, "scheme must be of type str"),
        ({"resume": 1}, "resume must be of type bool"),
    ],
)
def test_run_config_of_other_keys_and_types(bad, says):
    with pytest.raises(ValueError, match=r"must be") as error:
        RunConfig.parse(bad)
    assert says in str(error.value)


def test_whole_numbers_do_where_floats_are_meant():
    assert RunConfig.parse({"cycle-time": 20, "energy": 20}) == RunConfig(cycle_time=20.0, energy=20.0)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--scheme", "hu-sync"], 3, "5 of 20 learners cannot do one epoch"),
        (["--cycle-time", "0.5"], 3, "the smallest cycle time that works"),
        (["--energy", "1", "--energy-spread", "0.1"], 3, "the largest --samples that fits is"),
        (["--samples", "5000"], 2, "samples must be at most the 4000 training samples, got 5000"),
        (["--min-samples", "500"], 2, "lower --min-samples"),
        (["--learners", "0"], 2, "--learners must be at least 1"),
        (["--cpus-per-learner", "0"], 2, "--cpus-per-learner must be"),
        (["--cpus-per-learner", "1000"], 2, "--cpus-per-learner must be at most"),
        (["--cpus-per-learner", "0.5", "--ray-address", "127.0.0.1:1"], 2, "a whole number on a Ray cluster"),
        (["--cycles", "x"], 2, "--cycles"),
        (["--no-such-option"], 2, "No such option"),
    ],
)
def test_what_cannot_work_fails_before_anything_starts(arguments, code, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in cli(*arguments, code=code)
    assert not (tmp_path / "runs").exists()


def test_run_directories_that_will_not_do(tmp_path):
    (tmp_path / "file").write_text("")
    assert "--run-dir must be a directory" in cli("--run-dir", tmp_path / "file", code=2)
    run = finished(tmp_path / "old")
    before = {p.name: p.read_bytes() for p in run.path.iterdir()}
    assert "which holds a run" in cli("--run-dir", run.path, code=2)
    assert "has no config.json" in cli("--run-dir", tmp_path / "empty", "--resume", code=2)
    assert "seed must stay 0" in cli("--run-dir", run.path, "--resume", "--seed", 1, code=2)
    assert "scheme must stay 'ha-asyn'" in cli("--run-dir", run.path, "--resume", "--scheme=hu-asyn", code=2)
    assert before == {p.name: p.read_bytes() for p in run.path.iterdir()}
    (run.path / "model.npz").write_bytes(b"PK")
    assert "model.npz is damaged" in cli("--run-dir", run.path, "--resume", code=2)


# --- data and workload ------------------------------------------------------------------------------


def test_the_subset_is_costed_like_the_papers_samples():
    config = RunConfig(learners=20)
    assert (task.total_samples(config), task.min_samples(config), task.batch_size(config)) == (4000, 7, 16)
    assert task.workload_of(config).operations_per_sample == 15 * 1_123_736
    assert task.total_samples(replace(config, mode="fl")) == 2000
    assert task.min_samples(replace(config, learners=1000)) == 2  # half of 4 samples each
    assert task.min_samples(replace(config, min_samples=3)) == 3


def test_partitions_are_kept_for_other_processes(tmp_path):
    config = RunConfig(mode="fl", alpha=0.5)
    parts = [task.local_indices(config, k, 20) for k in range(20)]
    assert sorted(np.concatenate(parts)) == list(range(4000))
    [kept] = (tmp_path / "cache" / "partitions").iterdir()
    task._partitions.cache_clear()
    assert all(np.array_equal(a, task.local_indices(config, k, 20)) for k, a in enumerate(parts))
    kept.write_bytes(b"damaged")
    task._partitions.cache_clear()
    assert all(np.array_equal(a, task.local_indices(config, k, 20)) for k, a in enumerate(parts))


def test_rehearsal_passes_sensible_runs_and_refuses_idle_ones():
    rehearse(RunConfig(), 20)
    rehearse(RunConfig(mode="fl", alpha=0.5), 20)
    rehearse(RunConfig(scheme="hu-sync", energy=30.0, cycle_time=30.0), 20)
    rehearse(RunConfig(), 1000)
    rehearse(RunConfig(mode="fl"), 1000)
    with pytest.raises(Infeasible):
        rehearse(RunConfig(scheme="hu-sync"), 20)
    with pytest.raises(ValueError, match="no learner can take part"):
        rehearse(RunConfig(mode="fl", min_samples=250, samples=3000), 20)  # nobody holds that many


def test_a_dry_run_says_nothing(caplog):
    caplog.set_level("INFO")
    rehearse(RunConfig(), 20)
    assert [r.getMessage() for r in caplog.records if r.name == "flwr.mel"] == []


# --- fleet ------------------------------------------------------------------------------------------


def test_the_fleet_follows_from_seed_and_cycle():
    config = RunConfig(mobility=20.0)
    assert VirtualFleet(20, config).devices(3) == VirtualFleet(20, replace(config, cycles=99)).devices(3)
    assert VirtualFleet(20, config).devices(3) != VirtualFleet(20, replace(config, seed=1)).devices(3)
    words = VirtualFleet(20, config).words(4, 3, None)
    assert words["mel-energy-limit-j"] == VirtualFleet(20, config).devices(3)[4].energy_limit_j
    assert VirtualFleet(20, config).words(4, 3, 150)["mel-max-samples"] == 150


def test_energy_is_drawn_anew_within_the_spread():
    fleet = VirtualFleet(500, RunConfig(energy=20.0, energy_spread=4.0))
    limits = np.array([[d.energy_limit_j for d in fleet.devices(cycle)] for cycle in (1, 2, 3)])
    assert (limits > 16).all()
    assert (limits < 24).all()
    assert limits.min() < 16.2
    assert limits.max() > 23.8
    assert (limits[0] != limits[1]).all()
    assert (limits[1] != limits[2]).all()
    rates = [[d.rate_bps for d in fleet.devices(cycle)] for cycle in (1, 2)]
    assert rates[0] == rates[1]  # nobody moves
    assert all(d.energy_limit_j is None for d in VirtualFleet(20, RunConfig(energy=0.0)).devices(1))


@pytest.mark.parametrize("step_m", [5.0, 100.0, 2000.0])
def test_movers_stay_in_the_disc(step_m):
    fleet = VirtualFleet(200, RunConfig(mobility=step_m))
    places = np.array([fleet.distances_m(cycle) for cycle in range(1, 8)])
    assert (places >= 1).all()
    assert (places <= PAPER_RADIUS_M).all()
    assert (places[0] != places[1]).all()
    still = VirtualFleet(200, RunConfig()).devices(1)
    assert np.allclose([d.rate_bps for d in fleet.devices(1)], [d.rate_bps for d in still])
    assert [d.rate_bps for d in fleet.devices(2)] != [d.rate_bps for d in fleet.devices(1)]
    assert [d.cpu_hz for d in fleet.devices(7)] == [d.cpu_hz for d in still]


def test_classes_have_equal_shares():
    names = [d.name.rsplit("-", 1)[0] for d in VirtualFleet(1000, RunConfig()).devices(1)]
    assert {name: names.count(name) for name in PAPER_CLASSES} == dict.fromkeys(PAPER_CLASSES, 250)


def test_fleets_from_files(tmp_path):
    devices = paper_fleet(np.random.default_rng(5), 6)
    (tmp_path / "f.toml").write_text(write_fleet(Fleet(devices)))
    (tmp_path / "f.csv").write_text(write_fleet_csv(Fleet(devices)))
    for name in ("f.toml", "f.csv"):
        fleet = VirtualFleet(6, RunConfig(fleet=str(tmp_path / name)))
        assert fleet.devices(1) == fleet.devices(2) == devices
        rehearse(replace(fleet.config, samples=2000), 6)
        with pytest.raises(ValueError, match="has 6 learners, the federation 20 nodes"):
            VirtualFleet(20, fleet.config).devices(1)
    told = Measured(1e-4, 1e-3, 1.0, 1e-4, 0.0, 0.1, name="bench", energy_limit_j=9.0, max_samples=80)
    (tmp_path / "m.toml").write_text(write_fleet(Fleet([told])))
    words = VirtualFleet(1, RunConfig(fleet=str(tmp_path / "m.toml"))).words(0, 1, 100)
    assert words["mel-learner"] == "bench"
    assert (words["mel-c2"], words["mel-energy-limit-j"], words["mel-max-samples"]) == (1e-4, 9.0, 80)


class FakeGrid:
    def __init__(self, *counts):
        self.counts = list(counts)

    def get_node_ids(self):
        return range(self.counts.pop(0) if len(self.counts) > 1 else self.counts[0])


def test_nodes_are_counted_when_all_are_there():
    assert count_nodes(FakeGrid(0, 3, 20), 0) == 20
    assert count_nodes(FakeGrid(0, 3, 20), 20) == 20
    with pytest.raises(ValueError, match="num-supernodes=20"):
        count_nodes(FakeGrid(2), 20, patience_s=0.6)


class SlowGrid:
    """Answers messages one at a time and remembers how many it held."""

    def __init__(self, lost=()):
        self.held, self.most, self.lost = [], 0, lost

    def push_messages(self, messages):
        ids = [str(m) for m in messages]
        self.held += ids
        self.most = max(self.most, len(self.held))
        return ids

    def pull_messages(self, ids):
        answered = [i for i in self.held if i not in self.lost][:1]
        self.held = [i for i in self.held if i not in answered]
        assert set(answered) <= set(ids)
        return [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=i)) for i in answered]


def test_messages_go_out_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr("simulation.window._cpus", lambda: 2)
    inner = SlowGrid()
    replies = Windowed(inner).send_and_receive(range(200))
    assert sorted(int(r.metadata.reply_to_message_id) for r in replies) == list(range(200))
    assert inner.most == 32
    assert len(Windowed(SlowGrid(lost=("3",))).send_and_receive(range(5), timeout=0.3)) == 4
    assert Windowed(SlowGrid()).send_and_receive([]) == []
    assert Windowed(inner).held == []  # everything else is the grid's own


# --- ledger -----------------------------------------------------------------------------------------


def record(cycle: int = 1, **change) -> CycleRecord:
    row = LearnerRecord("phone-01", "1", Outcome.USED, "", 3, 200, 200, 9.5, 8.0, 10.0)
    rested = LearnerRecord("phone-02", "2", Outcome.LEFT_OUT, "deadline")
    for key, value in change.items():
        setattr(row, key, value)
    metrics = {"accuracy": 0.5 + cycle / 100, "loss": 1.0}
    clock = {"clock_s": 9.5 * cycle, "energy_j": 8.0, "total_energy_j": 8.0 * cycle}
    return CycleRecord(cycle, 10.0, 9.5, 200, 200, learners=[row, rested], metrics=metrics, **clock)


def test_the_ledger_adds_up():
    busy, rested = ledger_rows(record())
    assert busy == [1, "phone-01", 3, 200, 9.5, 0.5, 10.0, 8.0, 10.0, 8.0 / 36_000, "used"]
    assert rested == [1, "phone-02", 0, 0, 0.0, 10.0, 10.0, 0.0, None, 0.0, "left out"]
    assert BATTERY_J == 36_000


@pytest.mark.parametrize("change", [{"time_s": 10.0001}, {"energy_j": 10.0001}])
def test_the_ledger_refuses_who_exceeds_a_limit(change, tmp_path):
    with pytest.raises(RuntimeError, match="phone-01 took"):
        ledger_rows(record(**change))
    run = RunDir(tmp_path)
    with pytest.raises(RuntimeError):
        run.add(record(**change), 1.0)
    assert run.records() == []
    assert len(ledger_rows(record(time_s=10.0, energy_j=10.0))) == 2


# --- run directory ----------------------------------------------------------------------------------


def finished(path: Path, cycles: int = 3, models: int | None = None, **settings) -> RunDir:
    """Leave a run with so many records, and a model after `models` of them."""
    config = RunConfig(learners=20, cycles=cycles, run_dir=str(path), **settings)
    run = RunDir(path)
    run.start(config, VirtualFleet(20, config).devices(1), embedded())
    for cycle in range(1, cycles + 1):
        run.add(record(cycle), 0.25 * cycle)
        if cycle <= (cycles if models is None else models):
            run.save_model(initial_weights(cycle), cycle, {"clock_s": 9.5 * cycle})
    return run


def table(path: Path) -> list[dict]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_what_a_run_leaves(tmp_path):
    run = finished(tmp_path / "run")
    assert [r.cycle for r in run.records()] == [1, 2, 3]
    assert [float(row["wall_s"]) for row in table(run.path / "metrics.csv")] == [0.25, 0.5, 0.75]
    assert len(table(run.path / "ledger.csv")) == 6
    for row in table(run.path / "ledger.csv"):
        assert float(row["busy_s"]) + float(row["idle_s"]) == float(row["cycle_time_s"])
    weights, state = run.load_model()
    assert state == {"cycle": 3, "clock_s": 28.5}
    assert all(np.array_equal(a, b) for a, b in zip(weights, initial_weights(3), strict=True))
    facts = run.facts()
    assert RunConfig.parse(facts["config"]).cycles == 3
    assert {"python", "flwr", "torch", "numpy"} <= set(facts["versions"])
    assert facts["data"] == {"source": embedded().source, "train": 4000, "test": 1000}
    assert {d["class"] for d in facts["fleet"]} == set(PAPER_CLASSES)
    assert "wall" not in (run.path / "records.jsonl").read_text()


def test_resume_cuts_the_records_to_the_checkpoint(tmp_path):
    run = finished(tmp_path / "run", cycles=3, models=2)  # killed between record and model
    with (run.path / "records.jsonl").open("a") as file:
        file.write('{"cycle": 4, "cyc')  # and once more while writing
    config = RunConfig(learners=20, cycles=9, run_dir=str(run.path), resume=True)
    run.start(config, VirtualFleet(20, config).devices(1), embedded())
    assert [r.cycle for r in run.records()] == [1, 2]
    assert [row["wall_s"] for row in table(run.path / "metrics.csv")] == ["0.250", "0.500"]
    assert len(table(run.path / "ledger.csv")) == 4
    run.add(record(3), 1.0)
    assert [r.cycle for r in run.records()] == [1, 2, 3]


def test_resume_refuses_another_run(tmp_path):
    run = finished(tmp_path / "run")

    def check(fleet_seed=0, data=None, **change):
        config = RunConfig(learners=20, run_dir=str(run.path), resume=True, **change)
        fleet = VirtualFleet(20, replace(config, seed=fleet_seed)).devices(1)
        run.check_same(describe_run(config, fleet, data or embedded()))

    check(cycles=50, api="classic", target_accuracy=0.9)
    with pytest.raises(ValueError, match="staleness must stay 2 as the run began, got 3"):
        check(staleness=3)
    with pytest.raises(ValueError, match="the learners differ"):
        check(fleet_seed=1)
    small = replace(embedded(), train_x=embedded().train_x[:100], train_y=embedded().train_y[:100])
    with pytest.raises(ValueError, match="dataset must stay as the run began"):
        check(data=small)
    (run.path / "records.jsonl").write_text("")
    with pytest.raises(ValueError, match="0 cycles on record, but a model after 3"):
        run.trim(3)


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file"
    atomically(path, lambda f: f.write("old"))

    def fail(file):
        file.write("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomically(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_names_of_new_run_directories():
    path = RunDir.of(RunConfig(scheme="ha-sync", mode="fl")).path
    assert path.parent == Path("runs")
    assert path.name.endswith(f"-ha-sync-fl-{os.getpid()}")


# --- Flower app, live view, processes ---------------------------------------------------------------


def test_the_app_directory_carries_any_configuration(tmp_path):
    config = RunConfig(seed=7, learning_rate=1e-7, run_dir='/a "b" \\ ü 😀/c', target_accuracy=0.97)
    write_app(tmp_path, "simulation.server_app:app", config.as_dict())
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    assert RunConfig.parse(project["tool"]["flwr"]["app"]["config"]) == config
    assert project["tool"]["flwr"]["app"]["components"] == {
        "serverapp": "simulation.server_app:app",
        "clientapp": "simulation.client_app:app",
    }
    assert tomllib.loads(toml_lines({"a": True, "b": 1.0, "c": "x\ny"})) == {"a": True, "b": 1.0, "c": "x\ny"}
    write_connection(tmp_path / "home", 4711)
    home = tomllib.loads((tmp_path / "home" / "config.toml").read_text())
    assert home["superlink"]["mel"] == {"address": "127.0.0.1:4711", "insecure": True}


def test_actors_by_cpus():
    assert Engine(20).federation() == "num-supernodes=20 client-resources-num-cpus=1"
    assert Engine(20, 2.0).federation() == "num-supernodes=20 client-resources-num-cpus=2"
    actors = 2 * os.cpu_count()
    options = f"num-supernodes=20 client-resources-num-cpus=1 init-args-num-cpus={actors}"
    assert Engine(20, 0.5).federation() == options


def test_the_live_view_reads_each_record_once(tmp_path):
    tail = Tail(tmp_path / "records.jsonl")
    assert tail.fresh() == []
    run = RunDir(tmp_path)
    run.trim(0)
    run.add(record(1), 1.0)
    run.add(record(2), 1.0)
    assert [r.cycle for r in tail.fresh()] == [1, 2]
    line = json.dumps(record(3).as_dict())
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write(line[:50])
        file.flush()
        assert tail.fresh() == []
        file.write(line[50:] + "\n")
    assert [r.cycle for r in tail.fresh()] == [3]


def test_the_time_left_leaves_out_the_start(monkeypatch):
    clock = iter([100.0, 102.0, 102.0, 104.0, 105.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    pace = Pace(cycles=10, done=2)
    pace.tick(3)
    assert pace.left() == ""  # nothing is known after one cycle
    pace.tick(4)
    assert pace.left() == "about 12 s left"
    pace.tick(5)
    assert pace.left() == "about 9 s left"


def test_lost_work_is_remarked():
    lost = record(outcome=Outcome.FAILED, reason="no memory")
    lost.notes = ["3,000 samples do not fit"]
    assert remarks(lost) == ["3,000 samples do not fit", "phone-01 failed: no memory"]


def test_whole_trees_of_processes_end():
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "c = [sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(60)']\n"
        "p = subprocess.Popen(c, start_new_session=True, stdout=subprocess.PIPE)\n"
        "p.stdout.readline(); print('up', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"up\n"
    family = tree(process.pid)
    assert len(family) == 2
    end(process, patience_s=0.5)
    process.stdout.close()
    assert process.poll() is not None
    assert not any(each in tree(each.pid) for each in family)
