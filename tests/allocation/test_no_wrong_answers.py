"""A search for wrong answers: every objective on small random problems against `tests.allocation.by_sample`.

Seconds in `make test`; 20,000 problems per objective in `make test-slow`. The inverse questions are also
asked for the awkward fleets of `tests.allocation.oracle`.
"""

import numpy as np
import pytest

from flwr_mel import Infeasible, Status, allocate, fastest, greenest
from flwr_mel.solvers import EqualBatches, Exact, knapsack
from tests.allocation import by_sample, oracle
from tests.zoo import problem_of

TRIALS = [30, pytest.param(20_000, marks=pytest.mark.slow)]
EXCLUDE = {False: "infeasible", True: "optimal"}
leave_out_or_not = pytest.mark.parametrize("leave_out", [False, True])
trials = pytest.mark.parametrize("trials", TRIALS)


def problems(trials, *seed):
    rng = np.random.default_rng(seed)
    return ((rng, by_sample.draw(rng)) for _ in range(trials))


INVERSE = [
    ("integers", 30),
    *((kind, 8) for kind in oracle.KINDS),
    pytest.param("integers", 20_000, marks=pytest.mark.slow),
    *(pytest.param(kind, 200, marks=pytest.mark.slow) for kind in oracle.KINDS),
]
kinds = pytest.mark.parametrize(("kind", "trials"), INVERSE)


def questions(kind, trials, *seed):
    """Yield problems and epochs of their learners."""
    for rng, problem in problems(trials, *seed, len(kind)):
        asked = problem if kind == "integers" else oracle.random_problem(rng, kind, samples=64)
        yield asked, rng.integers(1, 4, len(asked))


def solve(problem, leave_out):
    return allocate(problem, Exact(exclude=EXCLUDE[leave_out]), throw=False)


@leave_out_or_not
@trials
def test_epochs(trials, leave_out):
    for _, problem in problems(trials, 1, leave_out):
        best = by_sample.best(problem, lambda k, tau, n: tau, leave_out=leave_out)
        found = solve(problem, leave_out)
        assert found.status is (Status.OPTIMAL if np.isfinite(best) else Status.INFEASIBLE)
        assert found.epochs.sum() == max(best, 0)


def least_energy(problem, tau, time_s):
    """The least energy at given epochs, which count as one."""
    c, one = problem.coefficients, problem.replace(staleness=0, max_epochs=1)
    caps = by_sample.fixed(problem, tau, time_s)

    def gain(k, _, n):
        return -(c.g2[k] * (tau[k] * n) + c.g1[k] * n + c.g0[k])

    if not caps.all():
        return np.inf
    return -by_sample.best(one, gain, leave_out=False, caps=caps)


@kinds
def test_greenest(kind, trials):
    answered = 0
    for problem, tau in questions(kind, trials, 4):
        least = least_energy(problem, tau, problem.deadline_s)
        if np.isfinite(least):
            answered += 1
            plan = greenest(problem, tau)
            assert plan.samples.sum() == problem.total_samples
            assert plan.total_energy_j == pytest.approx(least, rel=1e-12, abs=1e-15)
        else:
            with pytest.raises(Infeasible) as why:
                greenest(problem, tau)
            check_remedies(problem, tau, why.value.diagnosis)
    assert answered


def check_remedies(problem, tau, diagnosis):
    """The cycle time that is named is the smallest that works, and the samples the most that fit."""

    def works(time_s, samples=problem.total_samples):
        return np.isfinite(least_energy(problem.replace(total_samples=samples), tau, time_s))

    if diagnosis.cycle_time_s is None:
        assert not works(1e6)
    else:
        assert works(diagnosis.cycle_time_s)
        assert not works(np.nextafter(diagnosis.cycle_time_s, 0))
    for samples in range(problem.min_samples, problem.total_samples):
        assert not works(problem.deadline_s, samples) or samples <= diagnosis.carried
    assert not diagnosis.carried or works(problem.deadline_s, diagnosis.carried)


@kinds
def test_fastest(kind, trials):
    answered = 0
    for problem, tau in questions(kind, trials, 5):
        # Deadlines that differ hold; one that is common to all is what is asked for.
        deadlines = problem.deadline_s if problem.own_deadlines else np.inf

        def least(time_s, problem=problem, tau=tau, deadlines=deadlines):
            return least_energy(problem, tau, np.minimum(deadlines, time_s))

        if np.isfinite(least(1e6)):
            answered += 1
            plan = fastest(problem, tau)
            assert plan.samples.sum() == problem.total_samples
            assert not np.isfinite(least(np.nextafter(plan.cycle_time_s, 0)))
            # Of the hand-outs that are as fast it is one with the least energy.
            assert plan.total_energy_j == pytest.approx(least(plan.cycle_time_s), rel=1e-12, abs=1e-15)
        else:
            with pytest.raises(Infeasible):
                fastest(problem, tau)
    assert answered


@leave_out_or_not
@trials
def test_remedies(trials, leave_out):
    """What a diagnosis says would help does help, and nothing less does."""
    for _, problem in problems(trials, 6, leave_out):
        found = solve(problem, leave_out)
        if found.status.ok:
            continue

        def works(leave_out=leave_out, problem=problem, **changes):
            changed = problem.replace(**changes)
            return np.isfinite(by_sample.best(changed, lambda k, tau, n: tau, leave_out=leave_out))

        time_s, carried = found.diagnosis.cycle_time_s, found.diagnosis.carried
        assert works(cycle_time_s=time_s or 1e6) == (time_s is not None)
        assert time_s is None or not works(cycle_time_s=float(np.nextafter(time_s, 0)))
        fits = [n for n in range(problem.min_samples, problem.total_samples) if works(total_samples=n)]
        assert carried == max(fits, default=0)


@trials
def test_equal_batches(trials):
    for _, problem in problems(trials, 7):
        share = np.full(len(problem), problem.total_samples // len(problem))
        share[: problem.total_samples % len(problem)] += 1

        def own(time_s, problem=problem, share=share):
            most = np.zeros(len(problem), dtype=int)
            for tau in range(problem.max_epochs, 0, -1):
                fits = by_sample.fixed(problem, np.full(len(problem), tau), time_s)[0] >= share
                most = np.maximum(most, tau * fits)
            return np.minimum(most, most.min() + problem.staleness)

        if share[-1] < problem.min_samples:
            continue
        found = allocate(problem, EqualBatches(), throw=False)
        assert found.epochs.tolist() == own(problem.cycle_time_s).tolist()
        if not found.status.ok:
            time_s = found.diagnosis.cycle_time_s
            assert own(time_s or 1e6).any() == (time_s is not None)
            assert time_s is None or not own(float(np.nextafter(time_s, 0))).any()


def test_epochs_of_fleets_too_large_for_the_exact_answer(monkeypatch):
    monkeypatch.setattr(knapsack, "_MOST_STEPS", 0)
    solved = 0
    for _, problem in problems(60, 9):
        best = by_sample.best(problem, lambda k, tau, n: tau, leave_out=True)
        found = solve(problem, True)
        assert found.status.ok == np.isfinite(best)
        if found.status.ok:
            solved += 1
            assert found.epochs.sum() <= best <= round(found.bound * len(problem))
            assert found.status is not Status.OPTIMAL or found.epochs.sum() == best
    assert solved > 10


def test_learners_may_be_left_out_for_their_least_batches():
    problem = problem_of([0.1, 0.1], 0.55, c0=[0.0, 0.1], total_samples=8, min_samples=5)
    with pytest.raises(Infeasible, match="he smallest batches of 2 learners need 10"):
        fastest(problem, 1)
    longer = problem.replace(cycle_time_s=2.0)
    assert allocate(longer, Exact(exclude="optimal")).samples.sum() == 8
    with pytest.raises(Infeasible, match='Exact\\(exclude="optimal"\\)'):
        allocate(longer, Exact())


def test_the_smallest_cycle_time_where_learners_may_be_left_out():
    problem = problem_of([0.1, 10.0], 0.5, total_samples=10, max_epochs=1)
    with pytest.raises(Infeasible) as why:
        allocate(problem, Exact(exclude="optimal"))
    assert why.value.diagnosis.cycle_time_s == 1.0
