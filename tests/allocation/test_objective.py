"""Value, bound and gap are those of the objective that an allocation was made for."""

from dataclasses import dataclass

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Coefficients, allocate
from flwr_mel.allocation import BrokenAllocation, Proposal, Status
from flwr_mel.allocation.objectives import EPOCHS, Goal
from flwr_mel.solvers import EqualBatches, Exact, SuggestImprove
from tests.zoo import paper_problem

PROBLEM = paper_problem(0, 20, 20, 2)


@pytest.mark.parametrize("solver", [Exact(), EqualBatches(), SuggestImprove()])
def test_solvers_of_the_epochs_tell_mean_epochs(solver):
    found = allocate(PROBLEM, solver)
    assert found.objective == EPOCHS
    assert found.value == found.mean_epochs <= found.bound
    assert found.gap == found.bound / found.value - 1


def test_an_infeasible_answer_has_no_value():
    nothing = allocate(PROBLEM.replace(total_samples=10**7), Exact(), throw=False)
    assert (nothing.value, nothing.bound, nothing.gap) == (0, 0, float("inf"))
    assert (nothing.progress, nothing.bias) == (0, 0)


@dataclass(frozen=True)
class Joules:
    """A further objective, as another project would write one: the energy of all learners."""

    def measure(self, problem, epochs, samples):
        return float(problem.coefficients.energy_j(epochs, samples).sum()), 1

    def __str__(self):
        return "joules"


@dataclass(frozen=True)
class Burning:
    share: float
    objective: Goal = Joules()

    def solve(self, problem):
        found = EqualBatches().solve(problem)
        joules, _ = self.objective.measure(problem, found.epochs, found.samples)
        bound = self.share * joules
        return Proposal(
            found.epochs, found.samples, bound, Status.FEASIBLE, found.excluded, objective=self.objective
        )


def test_an_objective_of_another_project_is_measured_and_its_bound_verified():
    found = allocate(PROBLEM, Burning(1.25))
    assert str(found.objective) == "joules"
    assert found.value == pytest.approx(found.energy_j.sum())
    assert found.bound == 1.25 * found.value
    assert found.gap == pytest.approx(0.25)
    with pytest.raises(BrokenAllocation, match=r"joules counts .*, above its bound"):
        allocate(PROBLEM, Burning(0.99))


def test_progress_and_bias_of_a_plan():
    zero = [0.0, 0.0]
    costs = Coefficients([1e-3, 1e-3], zero, zero, zero, zero, zero)
    even = allocate(AllocationProblem(costs, 1.0, total_samples=1000), Exact())
    assert even.bias == pytest.approx(0.0)
    problem = AllocationProblem(costs, 1.0, total_samples=1000, max_samples=[900, 100], staleness=3)
    uneven = allocate(problem, Exact())
    p, squares = uneven.samples / 1000, uneven.epochs * uneven.samples**2
    assert uneven.progress == pytest.approx(squares.sum() / 1000)
    w = squares / squares.sum()
    assert not np.allclose(p, w)
    assert uneven.bias == pytest.approx(float(((p - w) ** 2 / w).sum()))
