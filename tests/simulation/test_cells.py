"""Cells of a sweep: which there are, what is planned for them, which are the same training."""

import sys
from pathlib import Path

import numpy as np
import pytest
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.dry_run import settings_of
from mel_simulation.scenario.job import dataset_of
from mel_simulation.scenario.network import initial_weights, train
from mel_simulation.sweep.cells import Average, Cell, read_sweep
from mel_simulation.sweep.schedule import PlannedCycle, plan_schedule
from mel_simulation.sweep.training import combine

from flwr_mel._validate import InputError
from flwr_mel.orchestrator import Orchestrator, Settings

TOOL = str(Path(sys.executable).parent / "flwr-mel")


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
        ("base = 3\n[[grid]]\nseed = 1\n", "base must be a table, got 3"),
        ("grid = 3\n", "grid must be a list of tables, got 3"),
        ("[[grid]]\nseed = 'x'\n", "s.toml, grid 1: seed must be"),
        ("[[grid]]\nepochs = {}\nbaseline = 'fedavg'\n", "epochs must be"),
        ("[[grid]]\nscheme = 'best'\n", "scheme must be one of"),
        ("[[grid]]\nspeed = 3\n", "speed"),
        ("[[grid]]\nbaseline = 'magic'\n", "baseline must be one of"),
        ("[[grid]\n", "line 1"),
        ("[[grid]]\nepochs = 3\n", "epochs must be left out without a baseline"),
        (
            "[[grid]]\nbaseline = 'fedavg'\nproximal = 1.0\n",
            "proximal must be left out without",
        ),
        (
            "[[grid]]\nbaseline = 'fedavg'\nstaleness = 1\n",
            "staleness must be left out with",
        ),
        ("[[grid]]\ntarget-accuracy = 0.9\n", "target_accuracy must be left out of a sweep"),
        ("[[grid]]\nscheme = 'ha-sync'\nstaleness = [0, 1]\n", "staleness must be left out or 0 for ha-sync"),
        ("[other]\nx = 1\n[[grid]]\nseed = 1\n", "other"),
    ],
)
def test_bad_sweeps_are_refused(tmp_path, text, says):
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_sweep(path)


@pytest.mark.parametrize(
    "name", ["quick", "headline", "paper", "past", "stragglers", "phones", "variations", "objectives"]
)
def test_profiles_are_valid(name):
    from mel_simulation import sweep

    cells = read_sweep(Path(sweep.__file__).parent / "profiles" / f"{name}.toml")
    assert {cell.config.learners for cell in cells} == {50 if name == "phones" else 20}
    assert len(cells) >= 20


def test_a_script_is_what_the_orchestrator_would_plan():
    cell = Cell(RunConfig(cycles=3))
    script = plan_schedule(cell, 20)
    from mel_simulation.scenario.fleet import VirtualFleet

    fleet, brain = VirtualFleet(20, cell.config), Orchestrator(Settings(**settings_of(cell.config)))
    for act, cycle in zip(script.cycles, (1, 2, 3), strict=True):
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
    a, b, c = (plan_schedule(cell, 20).signature(cell) for cell in (sync, zero, two))
    assert a == b != c
    nova = Cell(RunConfig(staleness=0, cycles=2), average=Average.NOVA)
    assert plan_schedule(nova, 20).signature(nova) != b


def test_baselines_keep_their_promises():
    base = RunConfig(cycles=2)
    wait = plan_schedule(Cell(base, baseline="fedavg", epochs=3), 20)
    drop = plan_schedule(Cell(base, baseline="fedavg-drop", epochs=3), 20)
    prox = plan_schedule(Cell(base, baseline="fedprox", epochs=3), 20)
    partial = plan_schedule(Cell(base, baseline="partial", epochs=3), 20)
    assert wait.cycles[0].makespan_s > base.cycle_time
    assert len(wait.cycles[0].tasks) == 20
    assert wait.cycles[0].broken > 0
    for script in (drop, prox, partial):
        assert script.cycles[0].makespan_s <= base.cycle_time
        assert 0 < len(script.cycles[0].tasks) < 20
    assert {t.epochs for t in prox.cycles[0].tasks} <= {1, 2, 3}
    assert prox.cycles[0].broken == partial.cycles[0].broken == 0


def test_infeasible_cells_say_so():
    script = plan_schedule(Cell(RunConfig(scheme="hu-sync", cycles=2)), 20)
    assert not script.cycles
    assert "equal batch" in script.trouble


def test_ways_to_average():
    class T:
        learner, cycle = "x", 1

        def __init__(self, epochs, samples):
            self.epochs, self.samples = epochs, samples

    act = PlannedCycle((T(1, 10), T(3, 30)), 0, 0, 0, 0, 0, 0)
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
