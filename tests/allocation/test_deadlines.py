"""A deadline per learner: what it means, and that one per learner that is the same is a cycle time."""

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Infeasible, allocate, fastest, greenest
from flwr_mel.allocation.allocate import violations
from flwr_mel.solvers import EqualBatches, Exact, SuggestImprove
from tests.zoo import paper_problem, problem_of

SOLVERS = (
    Exact(),
    Exact(exclude="optimal"),
    EqualBatches(),
    SuggestImprove(suggest="bisection"),
    SuggestImprove(suggest="sdp"),
)


def pair(deadlines: object, **changes: object) -> AllocationProblem:
    return problem_of([1e-3, 1e-3], deadlines, **{"total_samples": 1500, **changes})


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_the_same_deadline_for_all_is_a_cycle_time(solver):
    one = paper_problem(0, 20, 20, 2, learners=8).replace(total_samples=24_000)
    each = one.replace(cycle_time_s=[20.0] * 8)
    assert each.cycle_time_s == 20.0
    assert not each.own_deadlines
    mine, theirs = allocate(one, solver), allocate(each, solver)
    assert mine.epochs.tolist() == theirs.epochs.tolist()
    assert mine.samples.tolist() == theirs.samples.tolist()


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_everybody_keeps_its_own_deadline(solver):
    rng = np.random.default_rng(1)
    solved = 0
    for trial in range(6):
        problem = paper_problem(trial, 20, 20, 2, learners=8).replace(total_samples=24_000)
        problem = problem.replace(cycle_time_s=20 * rng.choice([0.6, 1.0, 2.0], 8))
        found = allocate(problem, solver, throw=False)
        if found.status.ok:
            solved += 1
            assert violations(problem, found.epochs, found.samples, all_samples=False) == []
            assert (found.time_s <= problem.deadline_s).all()
    assert solved >= 4


def test_fields():
    problem = pair([1.0, 2.0])
    assert problem.cycle_time_s == 2.0
    assert problem.deadline_s.tolist() == [1.0, 2.0]
    assert problem.replace(staleness=1).deadline_s.tolist() == [1.0, 2.0]
    assert problem.replace(cycle_time_s=3.0).deadline_s.tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match=r"cycle_time_s must be one value per learner \(2\), got '3 values'"):
        pair([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"cycle_time_s\[1\] must be a finite number > 0, got 0"):
        pair([1.0, 0.0])


def test_inverse_questions_keep_deadlines_that_differ():
    assert fastest(pair(9.0), 1).samples.tolist() == [750, 750]
    plan = fastest(pair([0.5, 9.0]), 1)
    assert plan.samples.tolist() == [500, 1000]
    assert plan.cycle_time_s == 1.0
    assert greenest(pair([0.5, 1.2]), 1).samples.tolist() == [500, 1000]
    for question in (fastest, greenest):
        with pytest.raises(
            Infeasible, match=r"process 1,400 of 1,500.*smallest cycle time that works is 0\.75 s"
        ):
            question(pair([0.5, 0.9]), 1)
    with pytest.raises(Infeasible, match=r"1,400 of 1,500.*smallest cycle time that works is 0\.75 s"):
        allocate(pair([0.5, 0.9]), Exact())
