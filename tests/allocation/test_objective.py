"""Value, bound and gap are those of the objective that an allocation was made for."""

from dataclasses import dataclass

import pytest

from flwr_mel import allocate
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
    assert nothing.progress == 0


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


def test_the_progress_of_a_plan():
    found = allocate(PROBLEM, Exact())
    assert found.progress == pytest.approx((found.epochs * found.samples**2).sum() / found.samples.sum())
