"""Schemes, solvers, hand-outs and inverse questions that are refused."""

import numpy as np
import pytest

from flwr_mel import (
    AllocationProblem,
    Coefficients,
    Handout,
    Infeasible,
    Reason,
    Status,
    allocate,
    fastest,
    greenest,
    scheme,
)
from flwr_mel.allocation.handout import hand_out
from flwr_mel.solvers import EqualBatches, Exact, SuggestImprove
from tests.inputs.tools import NAN, NOT_COUNTS, NOT_NUMBERS, coefficients, complaint, names, problem


@pytest.mark.parametrize("bad", ["", "HA", "ha_asyn", "sync", None, 5, [], True, b"ha-sync", NAN])
def test_scheme_names(bad):
    text = complaint(scheme, bad)
    names(text, "scheme", bad)
    assert "ha-asyn, ha-sync, hu-asyn, hu-sync" in text


@pytest.mark.parametrize("name", ["ha-asyn", "hu-asyn", "ha-sync", "hu-sync"])
def test_scheme_staleness(name):
    for bad in [*NOT_COUNTS, *(x for x in NOT_NUMBERS if x is not None), "", [], False]:
        names(complaint(scheme, name, bad), "staleness", bad)
    if name.endswith("sync"):
        assert complaint(scheme, name, 1) == f"staleness must be 0 for the synchronous scheme {name}, got 1"
        assert scheme(name, 0).staleness == scheme(name).staleness == 0
    else:
        assert scheme(name, 3).staleness == 3
        assert scheme(name).staleness == 1


def test_scheme_solvers():
    assert "which has equal batches" in complaint(scheme, "hu-sync", solver=Exact())
    assert "heterogeneity-aware" in complaint(scheme, "ha-asyn", solver=EqualBatches())
    assert scheme("ha-asyn", solver=Exact(handout="even")).solver == Exact(handout="even")


@pytest.mark.parametrize("bad", ["", "Even", "most", None, 5, True, ["even"], NAN])
@pytest.mark.parametrize(
    ("build", "field"),
    [
        (Exact, "handout"),
        (Exact, "exclude"),
        (SuggestImprove, "suggest"),
        (SuggestImprove, "handout"),
    ],
)
def test_solver_options(build, field, bad):
    text = complaint(build, **{field: bad})
    names(text, field, bad)
    assert "one of '" in text


def test_handout():
    text = complaint(Handout, "Even")
    assert text == "handout must be one of 'proportional', 'even', 'strongest-first', got 'Even'"


@pytest.mark.parametrize("rule", Handout)
def test_hand_out_refuses_what_does_not_fit(rule):
    ones = np.ones(2, dtype=np.int64)
    for total, caps, least in [(11, [5, 5], 1), (1, [5, 5], 1), (4, [5, 1], 2), (-1, [5, 5], 0)]:
        names(complaint(hand_out, rule, total, np.array(caps), least, ones), "total", total)


@pytest.mark.parametrize("question", [fastest, greenest])
def test_fixed_epochs(question):
    for bad in [0, *NOT_COUNTS, *NOT_NUMBERS]:
        names(complaint(question, problem(), [1, bad]), "epochs", bad)
        if bad is None or np.isscalar(bad):
            names(complaint(question, problem(), bad), "epochs", bad)
    names(complaint(question, problem(), np.array([1, 0])), "epochs", 0)
    for bad in [[1], np.ones(3, dtype=int)]:
        assert "one value per learner (2)" in complaint(question, problem(), bad)
    assert "one-dimensional" in complaint(question, problem(), np.ones((2, 1), dtype=int))
    assert "2**53" in complaint(question, problem(total_samples=2**40), 2**40)


def test_epochs_and_samples_of_any_size():
    costs = Coefficients([1e-9, 1e-9], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0])
    wide = AllocationProblem(costs, 1000.0, total_samples=2, staleness=2**40)
    assert allocate(wide, Exact()).status is Status.OPTIMAL
    deep = AllocationProblem(costs, 9000.0, total_samples=10**12, staleness=10**6)
    assert allocate(deep, Exact()).status.ok


def test_overflow_sized_numbers_that_are_legal():
    """Costs near the end of float64 exclude a learner or everybody; no warning, no wrong answer."""
    costs = coefficients(c2=[1e-3, 1e308], c1=[0, 1e308], g2=[1e-3, 1e308])
    solution = allocate(problem(coefficients=costs), Exact())
    assert solution.excluded == {1: Reason.MIN_BATCH_TIME}
    slow = AllocationProblem(coefficients(c2=[1e300, 1e300]), 1.7e308, total_samples=2**40, staleness=2)
    for solver in (Exact(), EqualBatches()):
        assert allocate(slow, solver, throw=False).diagnosis.cycle_time_s is None
    with pytest.raises(Infeasible, match="no cycle time is long enough"):
        fastest(problem(coefficients=coefficients(c2=[1e308, 1e308])), 5)
    many = AllocationProblem(coefficients(), 1e12, total_samples=2**40, min_samples=2**39, max_samples=2**40)
    assert allocate(many, Exact()).samples.tolist() == [2**39, 2**39]
    no_energy = coefficients(g2=[0, 0])
    assert fastest(AllocationProblem(no_energy, 10.0, total_samples=2), 2**40).samples.tolist() == [1, 1]
