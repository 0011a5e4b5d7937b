"""`limiting` names what keeps a learner from more: lifting that, and nothing else, gives it more."""

import numpy as np
import pytest

from flwr_mel import AllocationProblem, allocate
from flwr_mel.allocation.limiting import Limit, limiting
from flwr_mel.solvers import EqualBatches, Exact
from tests.zoo import paper_problem, problem_of


def same(learners: int, **limits) -> AllocationProblem:
    """Equal learners: 0.1 s and 0.1 J per sample and epoch."""
    ones, time_s = [0.1] * learners, limits.pop("cycle_time_s", 1e6)
    return problem_of(ones, time_s, g2=ones, total_samples=10 * learners, **limits)


def named(problem: AllocationProblem, solver) -> list[Limit]:
    found = allocate(problem, solver)
    return limiting(problem, found.epochs, found.samples)


@pytest.mark.parametrize("solver", [Exact(), EqualBatches()])
@pytest.mark.parametrize(
    ("limits", "want"),
    [
        ({"cycle_time_s": 10.0}, Limit.TIME),
        ({"energy_limit_j": [10.0, 10.0]}, Limit.ENERGY),
        ({"max_epochs": 3}, Limit.MAX_EPOCHS),
        ({"max_epochs": 3, "energy_limit_j": [10.0, 10.0]}, Limit.MAX_EPOCHS),
        ({"cycle_time_s": 10.5, "max_samples": [10, 10]}, Limit.DATA),
    ],
)
def test_one_limit_that_binds_everybody(solver, limits, want):
    # The smallest batch leaves ten samples for each, whatever is maximised.
    assert named(same(2, min_samples=10, **limits), solver) == [want, want]


def test_the_staleness_cap_is_named_where_one_more_epoch_would_fit():
    # The second learner is ten times as fast; with c = 1 it may do one epoch more than the first.
    limits = {"energy_limit_j": [None, 1e3], "min_samples": 20, "max_samples": [20, 20]}
    problem = problem_of([0.1, 0.01], 4.0, g2=[0.1] * 2, total_samples=40, staleness=1, **limits)
    assert allocate(problem, Exact()).epochs.tolist() == [2, 3]
    # Time is used up by the first, which also has all samples it holds; the cap alone stops the second.
    assert named(problem, Exact())[1] is Limit.STALENESS
    assert named(problem.replace(max_epochs=3), Exact())[1] is Limit.MAX_EPOCHS
    assert named(problem.replace(staleness=100), Exact())[1] is not Limit.STALENESS


def test_who_is_left_out_has_no_limit_and_caps_the_others_of_equal_batches():
    # The first cannot do one epoch on its batch: its 0 epochs count as the least.
    problem = problem_of([10.0, 0.01], 50.0, g2=[0.1] * 2, total_samples=20, staleness=2)
    assert allocate(problem, EqualBatches()).epochs.tolist() == [0, 2]
    assert named(problem, EqualBatches()) == [Limit.NONE, Limit.STALENESS]
    assert limiting(problem, np.zeros(2, dtype=int), np.zeros(2, dtype=int)) == [Limit.NONE] * 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("solver", [Exact(), EqualBatches()])
def test_a_cap_is_named_exactly_where_lifting_it_alone_would_help(seed, solver):
    for time_s, energy, c, most in ((10, 20, 1, None), (20, 10, 0, 3), (30, 20, 3, 6), (20, 20, 2, None)):
        problem = paper_problem(seed, time_s, energy, c).replace(max_epochs=most)
        found = allocate(problem, solver, throw=False)
        if not found.status.ok:
            continue
        cost = problem.coefficients
        more = np.where(found.epochs > 0, found.epochs + 1, 0)
        fits = (cost.time_s(more, found.samples) <= problem.cycle_time_s) & (
            cost.energy_j(more, found.samples) <= problem.energy_limit_j
        )
        for k, limit in enumerate(limiting(problem, found.epochs, found.samples)):
            if not found.epochs[k]:
                assert limit is Limit.NONE
            elif limit in (Limit.STALENESS, Limit.MAX_EPOCHS):
                assert fits[k]
                assert (limit is Limit.MAX_EPOCHS) == (found.epochs[k] == problem.max_epochs)
            else:
                # Optimal allocations raise whom they may: nothing but time, energy and data is in the way.
                assert not fits[k]
