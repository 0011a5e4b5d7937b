"""From an accuracy or a budget to a plan: what is promised follows from S, and budgets are kept."""

import pytest

from flwr_mel import allocate
from flwr_mel.aim import SHIPPED, aim
from flwr_mel.recommend import recommend
from flwr_mel.solvers import Exact
from tests.cli.tools import ask, refused
from tests.zoo import paper_problem

PROBLEM = paper_problem(0, 40, 10, 0)


@pytest.fixture(scope="module")
def soonest():
    return aim(PROBLEM, accuracy=0.95, staleness_up_to=2)


def test_the_soonest_way_to_an_accuracy(soonest):
    best = soonest.best
    assert best.objective == "soonest"
    assert best.time_s == min(way.time_s for way in soonest.ways)
    assert best.cycles == -(-SHIPPED[0.95][1] // best.progress)
    assert best.cycles_range[0] <= best.cycles <= best.cycles_range[1]
    assert "MNIST" in soonest.evidence
    # The plan that it names is a plan.
    problem = PROBLEM.replace(cycle_time_s=best.cycle_time_s, staleness=best.staleness)
    again = allocate(problem, Exact(objective=best.objective))
    assert again.progress == pytest.approx(best.progress, rel=0.03)


def test_a_time_budget_leaves_room_to_save_energy(soonest):
    relaxed = aim(PROBLEM, accuracy=0.95, time_budget_s=3 * soonest.best.time_s, staleness_up_to=2)
    assert relaxed.best.within
    assert relaxed.best.total_energy_j < soonest.best.total_energy_j / 2
    tight = aim(PROBLEM, accuracy=0.95, time_budget_s=soonest.best.time_s / 2, staleness_up_to=2)
    assert not tight.best.within
    assert "Nothing keeps the budgets" in tight.text


def test_budgets_alone_are_filled_with_progress():
    found = aim(PROBLEM, time_budget_s=300.0, energy_budget_j=100.0, staleness_up_to=2)
    for way in found.ways:
        assert way.time_s <= 300
        assert way.total_energy_j <= 100
    done = [way.cycles * way.progress for way in found.ways]
    assert done[0] == max(done)
    assert found.accuracy is not None
    assert found.average == "data"


def test_own_evidence_and_bad_questions():
    own = aim(PROBLEM, accuracy=0.5, evidence={0.5: (1e5, 2e5, 3e5)}, staleness_up_to=0)
    assert own.best.cycles == -(-200_000 // own.best.progress)
    assert own.evidence == "what was given"
    with pytest.raises(ValueError, match=r"accuracy must be at most 0\.97, as far as the evidence goes"):
        aim(PROBLEM, accuracy=0.99, staleness_up_to=0)
    with pytest.raises(ValueError, match="accuracy must be given unless"):
        aim(PROBLEM)
    with pytest.raises(ValueError, match="energy_budget_j must be a finite number > 0"):
        aim(PROBLEM, energy_budget_j=-1)


def test_recommend_takes_what_is_wanted(paper):
    answer = recommend(PROBLEM, staleness_up_to=0, time_budget_s=200.0)
    assert answer.aim is not None
    assert answer.as_dict()["aim"]["best"]["within"] is True
    assert recommend(PROBLEM, staleness_up_to=0).aim is None
    got = ask(
        "recommend",
        paper,
        "--cycle-time",
        40,
        "--samples",
        60_000,
        "--accuracy",
        0.95,
        "--staleness-up-to",
        0,
    )
    assert got["aim"]["accuracy"] == 0.95
    assert "--accuracy must be" in refused(
        "recommend", paper, "--cycle-time", 40, "--samples", 60_000, "--accuracy", 0, "--staleness-up-to", 0
    )
