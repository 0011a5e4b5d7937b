"""Value, bound and gap are those of the objective that was asked for, whichever it is."""

from dataclasses import dataclass

import pytest

from flwr_mel import allocate
from flwr_mel.allocation import BrokenAllocation, Proposal, Status
from flwr_mel.allocation.objectives import Goal, Objective, in_words
from flwr_mel.solvers import EqualBatches, Exact, SuggestImprove
from tests.zoo import paper_problem

PROBLEM = paper_problem(0, 10, 10, 2)
PROGRESS = Exact(objective="progress")


@pytest.mark.parametrize("solver", [Exact(), EqualBatches(), SuggestImprove()])
def test_solvers_of_the_epochs_tell_mean_epochs(solver):
    found = allocate(paper_problem(0, 20, 20, 2), solver)
    assert found.objective is Objective.EPOCHS
    assert found.value == found.mean_epochs <= found.bound
    assert found.gap == found.bound / found.value - 1


def test_the_progress_objective_tells_progress_and_nothing_of_the_epochs_bound():
    found, epochs = allocate(PROBLEM, PROGRESS), allocate(PROBLEM, Exact())
    assert found.objective is Objective.PROGRESS
    assert found.value == found.progress > epochs.progress
    # The bound of the epochs is about 3: far below S.
    assert found.bound >= found.value > 1000
    assert found.progress_bound == found.bound
    assert found.status is Status.OPTIMAL
    assert found.gap == 0 == found.bound / found.value - 1
    assert found.mean_epochs == found.epochs.sum() / 20 < epochs.mean_epochs


def test_an_infeasible_answer_names_the_objective_too():
    nothing = allocate(PROBLEM.replace(total_samples=10**7), PROGRESS, throw=False)
    assert nothing.objective is Objective.PROGRESS
    assert (nothing.value, nothing.bound, nothing.gap) == (0, 0, float("inf"))


@dataclass(frozen=True)
class Joules:
    """A further objective, as somebody else would write one: the energy of all, minimised."""

    minimised = True

    def measure(self, problem, epochs, samples):
        return float(problem.coefficients.energy_j(epochs, samples).sum()), 1

    def __str__(self):
        return "joules"


@dataclass(frozen=True)
class Thrifty:
    share: float
    objective: Goal = Joules()

    def solve(self, problem):
        found = EqualBatches().solve(problem)
        joules, _ = self.objective.measure(problem, found.epochs, found.samples)
        bound = self.share * joules
        return Proposal(
            found.epochs, found.samples, bound, Status.FEASIBLE, found.excluded, objective=self.objective
        )


def test_an_objective_of_somebody_else_is_measured_and_its_bound_verified():
    problem = paper_problem(0, 20, 20, 2)
    found = allocate(problem, Thrifty(0.8))
    assert str(found.objective) == in_words(found.objective) == "joules"
    assert found.value == pytest.approx(found.energy_j.sum())
    assert found.bound == 0.8 * found.value
    assert found.gap == pytest.approx(0.25)
    with pytest.raises(BrokenAllocation, match=r"joules counts .*, below its bound"):
        allocate(problem, Thrifty(1.01))


def test_objectives_are_called_by_words():
    assert [in_words(o) for o in Objective] == ["mean epochs", "progress S"]
