"""The named scheme of the progress objective, and the page about what lies past the paper."""

import numpy as np
import pytest
from mel_simulation.paper import past_the_paper as past
from mel_simulation.scenario.config import RunConfig
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.schedule import facts, plan_schedule

from flwr_mel import allocate, scheme
from flwr_mel.solvers import Exact, SuggestImprove
from tests.zoo import paper_problem

BASE = {"learners": 20, "cycles": 3}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "1")


def row(curve, **keys):
    """Plan a cell for real, with a curve that is made up."""
    cell = Cell.parse({**BASE, **{key.replace("_", "-"): value for key, value in keys.items()}})
    script = plan_schedule(cell, 20)
    acts = [facts(act) for act in script.cycles]
    return {"config": cell.as_dict(), "trouble": script.trouble, "acts": acts, "accuracy": curve}


def test_ha_progress_is_the_exact_progress_objective():
    script = plan_schedule(Cell(RunConfig(scheme="ha-progress", cycles=1)), 20)
    paper = plan_schedule(Cell(RunConfig(scheme="ha-asyn", cycles=1)), 20)
    ours, theirs = facts(script.cycles[0]), facts(paper.cycles[0])
    assert ours["progress"] > 1.05 * theirs["progress"]
    assert ours["energy_j"] < theirs["energy_j"]
    assert ours["mean_epochs"] < theirs["mean_epochs"]


OURS = {"ha-progress": "progress", "soonest": "soonest", "cheapest": "cheapest"}


@pytest.mark.parametrize("name", OURS)
def test_our_schemes_by_name_and_by_hand_agree(name):
    problem = paper_problem(0, 10.0, 10.0, 0)
    by_name = scheme(name, 2).allocate(problem)
    by_hand = allocate(problem.replace(staleness=2), Exact(objective=OURS[name]))
    assert by_name.samples.tolist() == by_hand.samples.tolist()
    assert scheme(name).staleness == 1


def test_the_simulation_plans_soonest_and_cheapest():
    paper, soonest, cheapest = (
        facts(plan_schedule(Cell(RunConfig(scheme=name, cycles=1, cycle_time=20.0)), 20).cycles[0])
        for name in ("ha-asyn", "soonest", "cheapest")
    )
    assert soonest["makespan_s"] < 0.7 * paper["makespan_s"]
    assert soonest["progress"] / soonest["makespan_s"] > 1.2 * paper["progress"] / paper["makespan_s"]
    assert cheapest["progress"] / cheapest["energy_j"] > 5 * paper["progress"] / paper["energy_j"]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("solver", [Exact(), SuggestImprove()])
def test_our_schemes_refuse_other_solvers(name, solver):
    with pytest.raises(ValueError, match=rf"solver must be Exact\(objective=.{OURS[name]}.\) for {name}"):
        scheme(name, solver=solver)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"scheme": "ha-progress", "handout": "even"}, "handout must be left out for ha-progress"),
        ({"scheme": "soonest", "handout": "even"}, "handout must be left out for soonest"),
        ({"scheme": "cheapest", "solver": "suggest-improve"}, "solver must be exact for cheapest"),
        ({"scheme": "ha-progress", "solver": "suggest-improve"}, "solver must be exact for ha-progress"),
        ({"solver": "suggest-improve", "exclude": "optimal"}, "exclude must be infeasible without"),
        ({"scheme": "hu-asyn", "exclude": "optimal"}, "exclude must be infeasible without"),
        ({"exclude": "some"}, "exclude must be one of infeasible, optimal"),
    ],
)
def test_rules_that_do_not_go_together_are_refused(keys, says):
    with pytest.raises(ValueError, match=says):
        RunConfig(**keys)


def test_excluding_stragglers_reaches_the_solver():
    assert RunConfig(exclude="optimal").scheme_object().solver == Exact(exclude="optimal")


def test_verdicts_need_more_than_the_spread():
    def group(values):
        return [{"config": {"seed": s}, "accuracy": [v]} for s, v in enumerate(values)]

    base = group([0.950, 0.952, 0.954])
    assert past.against(base, group([0.960, 0.962, 0.964]), 1).startswith("better (+1.00 ± 0.00")
    assert past.against(base, group([0.940, 0.942, 0.944]), 1).startswith("worse (-1.00")
    assert past.against(base, group([0.951, 0.950, 0.958]), 1).startswith("no clear difference")
    assert past.against(base, group([0.960]), 1) == "-"
    assert past.against([], group([0.960, 0.961]), 1) == "-"


def test_the_page_shows_every_comparison_and_only_what_was_run():
    rows = []
    for seed in (0, 1, 2):
        curves = np.linspace(0.9, 0.96, 3) + 0.001 * seed
        better = (curves + 0.01).tolist()
        rows += [row(curves.tolist(), seed=seed, staleness=2), row(better, scheme="ha-progress", seed=seed)]
        rows += [row(curves.tolist(), seed=seed, average="nova")]
        rows += [row(curves.tolist(), mode="fl", alpha=0.5, seed=seed)]
        rows += [row(curves.tolist(), baseline="fedavg", epochs=3, seed=seed)]
    text = past.document(rows)
    assert "c = 2, progress | 3 3 3 | 3 3 3 | 97.10 ± 0.10 |" in text
    assert "better (+1.00 ± 0.00 points)" in text
    assert "## FL, Dirichlet labels, alpha = 0.5, T = 10 s, E = 10 J" in text
    assert "averaged by nova" in text
    assert "FedAvg, waits, 3 ep." in text
    assert "uniform" not in text
    assert "drops" not in text
    lines = past.headline(rows).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        *("| **HA-Progress c = 2**", "| HA-Asyn c = 2", "| FedAvg, waits, 3 ep.")
    ]
