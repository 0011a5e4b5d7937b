"""Sweeps: which cells there are, which are the same training, and that a kill loses nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from flwr_mel.orchestrator import Orchestrator, Settings
from simulation import launch
from simulation.cells import Average, Cell, read_sweep
from simulation.claims import Finding, Grid, Verdict, updates_to
from simulation.config import RunConfig
from simulation.network import initial_weights, train
from simulation.paper_claims import CLAIMS
from simulation.rehearsal import settings_of
from simulation.results import read_results
from simulation.script import Act, write_script
from simulation.sweep_app import combine
from simulation.task import dataset_of

TOOL = str(Path(sys.executable).parent / "flwr-mel")

SWEEP = """
[base]
cycles = 2
learners = 20

[[grid]]
scheme = "ha-sync"

[[grid]]
scheme = "ha-asyn"
staleness = [0, 2]

[[grid]]
scheme = "hu-sync"

[[grid]]
baseline = "fedprox"
epochs = 2
"""


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "1")


@pytest.fixture(scope="module")
def sweep_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "small.toml"
    path.write_text(SWEEP)
    return path


def test_cells_are_multiplied_out_once_each(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        "[base]\ncycles = 3\n[[grid]]\nstaleness = [1, 2]\nseed = [0, 1]\n[[grid]]\nstaleness = 1\n"
    )
    cells = read_sweep(path)
    assert [(c.config.staleness, c.config.seed, c.config.cycles) for c in cells] == [
        (1, 0, 3),
        (1, 1, 3),
        (2, 0, 3),
        (2, 1, 3),
    ]
    assert len({c.key for c in cells}) == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[base]\n", "grid"),
        ("[[grid]]\nscheme = 'best'\n", "scheme must be one of"),
        ("[[grid]]\nspeed = 3\n", "speed"),
        ("[[grid]]\nbaseline = 'magic'\n", "baseline must be one of"),
        ("[[grid]\n", "line 1"),
        ("[other]\nx = 1\n[[grid]]\nseed = 1\n", "other"),
    ],
)
def test_bad_sweeps_are_refused(tmp_path, text, says):
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        read_sweep(path)


@pytest.mark.parametrize("name", ["quick", "headline", "paper", "past"])
def test_profiles_are_valid(name):
    import simulation

    cells = read_sweep(Path(simulation.__file__).parent / "profiles" / f"{name}.toml")
    assert {cell.config.learners for cell in cells} == {20}
    assert len(cells) >= 20


def test_a_script_is_what_the_orchestrator_would_plan():
    cell = Cell(RunConfig(cycles=3))
    script = write_script(cell, 20)
    from simulation.fleet import VirtualFleet

    fleet, brain = VirtualFleet(20, cell.config), Orchestrator(Settings(**settings_of(cell.config)))
    for act, cycle in zip(script.acts, (1, 2, 3), strict=True):
        for k in range(20):
            brain.hear(f"node-{97 - k}", fleet.words(k, cycle, None))
        plan = brain.plan(cycle, [f"node-{97 - k}" for k in range(20)])
        mine = [(t.learner, t.epochs, t.samples, t.seed, t.shard.tolist()) for t in plan.tasks]
        assert mine == [(t.learner, t.epochs, t.samples, t.seed, t.shard.tolist()) for t in act.tasks]


def test_the_same_training_has_the_same_signature():
    sync, zero, two = (
        Cell(RunConfig(scheme="ha-sync", cycles=2)),
        Cell(RunConfig(staleness=0, cycles=2)),
        Cell(RunConfig(staleness=2, cycles=2)),
    )
    a, b, c = (write_script(cell, 20).signature(cell) for cell in (sync, zero, two))
    assert a == b != c
    nova = Cell(RunConfig(staleness=0, cycles=2), average=Average.NOVA)
    assert write_script(nova, 20).signature(nova) != b


def test_baselines_keep_their_promises():
    base = RunConfig(cycles=2)
    wait = write_script(Cell(base, baseline="fedavg", epochs=3), 20)
    drop = write_script(Cell(base, baseline="fedavg-drop", epochs=3), 20)
    prox = write_script(Cell(base, baseline="fedprox", epochs=3), 20)
    partial = write_script(Cell(base, baseline="partial", epochs=3), 20)
    assert wait.acts[0].makespan_s > base.cycle_time
    assert len(wait.acts[0].tasks) == 20
    assert wait.acts[0].broken > 0
    for script in (drop, prox, partial):
        assert script.acts[0].makespan_s <= base.cycle_time
        assert 0 < len(script.acts[0].tasks) < 20
    assert {t.epochs for t in prox.acts[0].tasks} <= {1, 2, 3}
    assert prox.acts[0].broken == partial.acts[0].broken == 0


def test_infeasible_cells_say_so():
    script = write_script(Cell(RunConfig(scheme="hu-sync", cycles=2)), 20)
    assert not script.acts
    assert "equal batch" in script.trouble


def test_ways_to_average():
    class T:
        def __init__(self, epochs, samples):
            self.epochs, self.samples = epochs, samples

    act = Act((T(1, 10), T(3, 30)), 0, 0, 0, 0, 0, 0)
    old, updates = [np.zeros(2, np.float32)], [[np.full(2, 1.0, np.float32)], [np.full(2, 5.0, np.float32)]]
    assert combine(Average.DATA, old, updates, act)[0].tolist() == [4.0, 4.0]
    assert combine(Average.UNIFORM, old, updates, act)[0].tolist() == [3.0, 3.0]
    # Steps 10 and 90, shares 1/4 and 3/4: 70 effective steps of (0.25 * 1/10 + 0.75 * 5/90) each.
    np.testing.assert_allclose(
        combine(Average.NOVA, old, updates, act)[0], 70 * (0.025 + 3.75 / 90), rtol=1e-6
    )


def test_the_proximal_term_holds_the_model_back():
    data, start = dataset_of(RunConfig()), initial_weights(0)
    x, y = data.train_x[:200], data.train_y[:200]

    def distance(mu):
        new, _ = train(start, x, y, 3, batch=16, rng=np.random.default_rng(0), proximal=mu)
        return sum(float(((a - b) ** 2).sum()) for a, b in zip(new, start, strict=True))

    assert distance(0.0) > distance(1.0) > distance(10.0)


def row(scheme, c, time_s, energy_j, seed, accuracy):
    config = {"scheme": scheme, "staleness": c, "cycle-time": time_s, "energy": energy_j, "seed": seed}
    config |= {"mode": "pl", "handout": "proportional", "average": "data", "baseline": "", "solver": "exact"}
    config |= {"exclude": "infeasible"}
    return {"config": {**config, "mobility": 0.0}, "accuracy": accuracy, "trouble": "", "acts": []}


def test_claims_are_judged_by_seed():
    assert Finding("", ()).verdict is Verdict.MISSING
    assert Finding("", (True, True)).verdict is Verdict.HOLDS
    assert Finding("", (True, False)).verdict is Verdict.PART
    assert Finding("", (False,)).verdict is Verdict.FAILS
    slow, fast = [0.90, 0.93, 0.945], [0.92, 0.941, 0.95]
    rows = [row("ha-sync", 2, 10.0, 10.0, s, slow) for s in (0, 1)]
    rows += [row("ha-asyn", c, 10.0, 10.0, s, fast if s == 0 else slow) for s in (0, 1) for c in (1, 2)]
    assert updates_to(rows[0], 94.0) == 3
    claim = next(c for c in CLAIMS if c.says.startswith("T=10, E=10: 94 %"))
    finding = claim.check(Grid.of(rows))
    assert finding.ours == "2 against 3; 3 against 3"
    assert finding.verdict is Verdict.PART
    missing = [c for c in CLAIMS if c.check(Grid.of(rows)).verdict is Verdict.MISSING]
    assert len(missing) > 10


def sweep(path, out, *more):
    return subprocess.run(
        [TOOL, "sweep", str(path), "--out", str(out), *more],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.fixture(scope="module")
def finished(sweep_file, tmp_path_factory):
    os.environ["FLWR_MEL_OFFLINE"] = "1"
    out = tmp_path_factory.mktemp("finished")
    result = sweep(sweep_file, out)
    assert result.returncode == 0, result.stderr
    return out


def test_a_sweep_leaves_one_line_per_cell(finished, sweep_file):
    rows = read_results(finished)
    assert [r["cell"] for r in rows] == [c.key for c in read_sweep(sweep_file)]
    sync, zero, two, unaware, prox = rows
    assert sync["accuracy"] == zero["accuracy"] != two["accuracy"]
    assert len(two["accuracy"]) == 2
    assert unaware["trouble"]
    assert not unaware["accuracy"]
    assert len(prox["accuracy"]) == 2
    # Three trainings for five cells: one is shared, one is infeasible.
    assert len(list((finished / "trainings").iterdir())) == 3


def test_killed_and_restarted_it_gives_the_same_bytes(finished, sweep_file, tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        [TOOL, "sweep", str(sweep_file), "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while not list((out / "cells").glob("*.json")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=60)
    assert 0 < len(read_results(out)) < 5  # what was finished can be looked at
    again = sweep(sweep_file, out)
    assert again.returncode == 0, again.stderr
    assert (out / "results.jsonl").read_bytes() == (finished / "results.jsonl").read_bytes()
    once_more = sweep(sweep_file, out)  # nothing left to do: no engine is started
    assert once_more.returncode == 0
    assert (out / "results.jsonl").read_bytes() == (finished / "results.jsonl").read_bytes()


def test_a_cell_equals_the_simulation_of_the_same_configuration(finished, tmp_path):
    result = subprocess.run(
        [TOOL, "simulate", "--cycles", "2", "--run-dir", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    simulated = [json.loads(line)["metrics"]["accuracy"] for line in lines]
    assert simulated == read_results(finished)[2]["accuracy"]


@pytest.mark.parametrize(("log", "tries"), [("The current node timed out during startup", 2), ("no disk", 1)])
def test_only_a_slow_start_of_ray_is_tried_again(monkeypatch, tmp_path, log, tries):
    seen = []

    class Failing:
        alive = staticmethod(lambda: False)

        def verdict(self):
            return "it crashed"

    @contextmanager
    def running(config, engine, log_path, serverapp):
        log_path.write_text(log)
        yield Failing()

    monkeypatch.setattr(launch, "running", running)  # a machine too busy for Ray cannot be had at will
    verdict = launch.complete({}, launch.Engine(2), tmp_path / "log", lambda alive: seen.append(alive()))
    assert verdict == "it crashed"
    assert seen == [False] * tries
