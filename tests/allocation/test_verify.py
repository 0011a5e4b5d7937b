"""The last gate sees every broken limit, whoever found the allocation."""

import numpy as np
import pytest

from flwr_mel.allocation import AllocationProblem, allocate
from flwr_mel.allocation.allocate import violations
from flwr_mel.costs import Coefficients
from flwr_mel.solvers import Exact

COSTS = Coefficients(*(np.full(3, value) for value in (1e-2, 1e-2, 0.1, 1e-3, 0.0, 0.1)))
PROBLEM = AllocationProblem(
    COSTS, 4.0, 0.6, total_samples=120, staleness=1, min_samples=10, max_samples=60, max_epochs=6
)


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_what_the_solver_gives_passes():
    found = allocate(PROBLEM, Exact())
    assert violations(PROBLEM, found.epochs, found.samples) == []
    assert found.staleness == np.ptp(found.epochs) <= PROBLEM.staleness


@pytest.mark.parametrize(
    ("epochs", "samples", "words"),
    [
        ((2, 2, 2), (40, 40), "samples is not one integer per learner"),
        ((2.0, 2.0, 2.0), (40, 40, 40), "epochs is not one integer per learner"),
        ((0, 0, 0), (0, 0, 0), "no learner takes part"),
        ((2, 2, 0), (40, 40, 40), "epochs and samples are positive together is broken by learners [2]"),
        ((2, 2, 2), (60, 55, 5), "d_k >= min_samples is broken by learners [2]"),
        ((2, 2, 2), (61, 29, 30), "d_k <= max_samples is broken by learners [0]"),
        ((7, 6, 6), (40, 40, 40), "tau_k <= max_epochs is broken by learners [0]"),
        ((6, 6, 6), (60, 50, 10), "t_k <= cycle_time_s is broken by learners [0]"),
        ((9, 9, 9), (60, 50, 10), "e_k <= energy_limit_j is broken by learners [0]"),
        ((4, 3, 2), (40, 40, 40), "staleness is 2, above 1"),
        ((2, 2, 2), (40, 40, 39), "sum d_k is 119, not 120"),
        ((2, 2, 2), (40, 40, 41), "sum d_k is 121, above 120"),
    ],
)
def test_what_is_broken_is_named(epochs, samples, words):
    broken = violations(PROBLEM, np.array(epochs), np.array(samples))
    assert words in broken, broken


def test_equal_batches_may_leave_samples_unused_but_not_use_more():
    assert violations(PROBLEM, ints(2, 2, 2), ints(40, 40, 39), all_samples=False) == []
    assert violations(PROBLEM, ints(2, 2, 2), ints(40, 40, 41), all_samples=False) == [
        "sum d_k is 121, above 120"
    ]
