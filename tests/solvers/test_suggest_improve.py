"""The paper's solver: always feasible, its bounds true, its SDP what the theory says."""

import subprocess
import sys

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Coefficients, Infeasible, Status, allocate
from flwr_mel.allocation.allocate import violations
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import screen
from flwr_mel.solvers import Exact, SuggestImprove, sdp
from flwr_mel.solvers.sdp import Boxes, suggest_sdp
from flwr_mel.solvers.suggest_improve import Suggest
from tests import zoo

MODES = tuple(Suggest)


def paper_problem(time_s=10.0, energy_j=10.0, staleness=2, seed=0, learners=20, ship_data=True, **fields):
    return zoo.paper_problem(seed, time_s, energy_j, staleness, learners, pl=ship_data).replace(**fields)


def random_problem(seed):
    """A small problem of any kind: PL or FL, energy binding or absent, own data short or not."""
    rng = np.random.default_rng(seed)
    kind, staleness = zoo.KINDS[seed % len(zoo.KINDS)], int(rng.choice([0, 1, 2, 5, 30]))
    problem = zoo.random_problem(rng, int(rng.integers(1, 10)), kind, staleness)
    return problem.replace(max_epochs=[None, 1, 3, 12][rng.integers(4)])


def able(problem):
    capacities = Capacities.of(problem)
    return capacities.take(screen(capacities)[0])


def feasible_problems(seeds):
    problems = [random_problem(seed) for seed in seeds]
    return [p for p in problems if allocate(p, Exact(), throw=False).status.ok]


@pytest.mark.parametrize("mode", MODES)
def test_random_problems_are_solved_within_all_limits_and_bounds(mode):
    problems = feasible_problems(range(0, 120, 2 if mode is Suggest.BISECTION else 4))
    assert len(problems) > 20
    for problem in problems:
        solution = allocate(problem, SuggestImprove(suggest=mode))
        best = allocate(problem, Exact())
        assert violations(problem, solution.epochs, solution.samples) == []
        assert solution.mean_epochs <= best.mean_epochs + 1e-12
        assert best.mean_epochs <= solution.bound + 1e-12
        assert solution.excluded == best.excluded
        assert (solution.status is Status.OPTIMAL) == (solution.bound == solution.mean_epochs)
        stats = solution.stats
        assert stats["epochs_repaired"] == solution.mean_epochs
        assert stats["epochs_floored"] <= stats["epochs_improved"] + 1e-9
        assert stats["epochs_suggested"] <= stats["epochs_improved"] + 1e-6
        if mode is Suggest.SDP:
            assert stats["sdp_bound"] >= stats["relaxed_optimum"]


@pytest.mark.parametrize("mode", MODES)
def test_without_staleness_the_result_is_the_synchronous_optimum(mode):
    for problem in [p.replace(staleness=0) for p in feasible_problems(range(200, 220))]:
        ours, best = allocate(problem, SuggestImprove(suggest=mode)), allocate(problem, Exact())
        assert ours.mean_epochs == best.mean_epochs
        assert ours.status is Status.OPTIMAL


@pytest.mark.parametrize("mode", MODES)
def test_gap_is_small_on_the_papers_grid(mode):
    gaps, lost = [], []
    for time_s, energy_j in ((5, 10), (10, 10), (20, 20), (40, 30)):
        for staleness in (1, 2, 5):
            problem = paper_problem(time_s, energy_j, staleness, seed=1)
            ours, best = allocate(problem, SuggestImprove(suggest=mode)), allocate(problem, Exact())
            gaps.append(1 - ours.mean_epochs / best.mean_epochs)
            lost.append(1 - ours.stats["epochs_floored"] / best.mean_epochs)
    assert max(gaps) < 0.04
    assert np.mean(gaps) < 0.005
    # The repair is what makes the difference.
    assert np.mean(lost) > 0.03


def dense_bound(capacities, demand):
    """The same SDP without decomposition or elimination: one (K+2) x (K+2) lifted matrix."""
    cp = pytest.importorskip("cvxpy")
    box, c, learners = Boxes.of(capacities, demand), capacities.coefficients, len(capacities)
    x = cp.Variable((learners + 2, learners + 2), PSD=True)
    scale = np.concatenate([[1.0, box.tau_hi], box.d_hi])
    lifted = cp.multiply(np.outer(scale, scale), x)
    tau, d, product, square = lifted[0, 1], lifted[0, 2:], lifted[1, 2:], cp.diag(lifted)[2:]
    time_left, energy_left = capacities.cycle_time_s - c.c0, capacities.energy_limit_j - c.g0
    hi, lo = box.d_hi, box.d_lo
    constraints = [
        x[0, 0] == 1,
        cp.multiply(c.c2 / time_left, product) + cp.multiply(c.c1 / time_left, d) <= 1,
        cp.multiply(c.g2 / energy_left, product) + cp.multiply(c.g1 / energy_left, d) <= 1,
        cp.sum(d) / demand == 1,
        cp.sum(product) / demand == tau,
        lifted[1, 1] <= (box.tau_lo + box.tau_hi) * tau - box.tau_lo * box.tau_hi,
        cp.multiply(1 / hi**2, square) <= cp.multiply((lo + hi) / hi**2, d) - lo / hi,
    ]
    problem = cp.Problem(cp.Maximize(x[0, 1]), constraints)
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    return box.tau_hi * problem.value


@pytest.mark.parametrize("learners", [3, 5, 9])
def test_blocks_of_three_lose_nothing_against_the_dense_sdp(learners):
    for seed, energy_j in ((0, 10.0), (1, 20.0)):
        problem = paper_problem(10, energy_j, seed=seed, learners=learners)
        mine, d = able(problem), problem.total_samples
        split, best = suggest_sdp(mine, d), relaxed_synchronous(mine, d)
        assert split.status == "optimal"
        assert split.bound == pytest.approx(dense_bound(mine, d), rel=1e-4)
        # Not by both being trivial: a real relaxation, above the optimum and below the box.
        assert best < split.bound < Boxes.of(mine, d).tau_hi


def printed_limits(capacities, demand):
    """The quadratic and linear coefficients of time and energy, in d_k / d, right-hand side 1."""
    c = capacities.coefficients
    time_left, energy_left = capacities.cycle_time_s - c.c0, capacities.energy_limit_j - c.g0
    return [
        (c.c2 * demand / time_left, c.c1 * demand / time_left),
        (c.g2 * demand / energy_left, c.g1 * demand / energy_left),
    ]


def test_the_lifted_problem_as_printed_is_unbounded():
    """Without the boxes any tau is feasible: the dual Eq_10_theoremSDP then has no solution."""
    problem = paper_problem(learners=3)
    mine, d = able(problem), problem.total_samples
    share = mine.relaxed(1.0) / mine.relaxed(1.0).sum()
    assert (share >= mine.least / d).all()
    for tau in (10.0, 1e3, 1e6):
        # The products tau d_k are 0 and the diagonal, on which nothing is asked, pays for it.
        x = np.diag([1.0, 4 * tau**2, 2.0, 2.0, 2.0])
        x[0, 1:] = x[1:, 0] = np.concatenate([[tau], share])
        scale = np.array([1.0, 1 / tau, 1.0, 1.0, 1.0])
        assert np.linalg.eigvalsh(x * np.outer(scale, scale)).min() > 0
        for two, one in printed_limits(mine, d):
            assert (two * x[1, 2:] + one * x[0, 2:] <= 1).all()
        # Our boxes and product constraint rule the point out.
        box = Boxes.of(mine, d)
        assert x[1, 1] > (box.tau_lo + box.tau_hi) * tau - box.tau_lo * box.tau_hi
        assert x[1, 2:].sum() != tau


@pytest.mark.parametrize("mode", MODES)
def test_infeasible_problems_say_what_exact_says(mode):
    for problem in (paper_problem(0.5), paper_problem(energy_j=3.0, total_samples=600_000)):
        with pytest.raises(Infeasible) as theirs:
            allocate(problem, Exact())
        with pytest.raises(Infeasible) as ours:
            allocate(problem, SuggestImprove(suggest=mode))
        assert str(ours.value) == str(theirs.value)


def test_energy_that_costs_nothing_and_large_staleness():
    ones = np.ones(3)
    free = Coefficients([1e-3, 2e-3, 4e-3], 0 * ones, 0 * ones, 0 * ones, 0 * ones, ones)
    problem = AllocationProblem(free, 10.0, 1.0, total_samples=3000, staleness=300, min_samples=1)
    for mode in MODES:
        solution = allocate(problem, SuggestImprove(suggest=mode))
        assert solution.mean_epochs <= allocate(problem, Exact()).mean_epochs <= solution.bound


def test_an_sdp_that_is_not_solved_says_what_to_do(monkeypatch):
    monkeypatch.setattr(sdp, "_OPTIONS", {"max_iter": 1})
    with pytest.raises(RuntimeError, match=r"suggest='bisection'"):
        allocate(paper_problem(), SuggestImprove(suggest="sdp"))


def test_missing_cvxpy_is_named_and_bisection_needs_none():
    script = """
import sys
sys.modules["cvxpy"] = None
import numpy as np
from flwr_mel import AllocationProblem, Coefficients, allocate
from flwr_mel.solvers import SuggestImprove
one = np.ones(2)
problem = AllocationProblem(Coefficients(one, one, one, one, one, one), 100.0, total_samples=20, staleness=1)
print(allocate(problem, SuggestImprove(suggest="bisection")).status)
try:
    allocate(problem, SuggestImprove())
except ImportError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second = run.stdout.strip().splitlines()
    assert first in {"optimal", "feasible"}
    assert "in a clone of flwr_mel: pip install '.[paper]'" in second
