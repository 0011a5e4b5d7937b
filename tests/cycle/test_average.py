"""Weights, FedNova's normalisation, and the average itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_mel.cycle.average import Work, blend, capped, weighted_average
from flwr_mel.cycle.options import Average
from tests.search import examples

works = st.lists(st.builds(Work, st.integers(1, 50), st.integers(1, 5000), st.integers(1, 9000)), min_size=1)


def test_the_papers_weights_are_the_samples():
    found = blend(Average.SAMPLES, [Work(3, 10), Work(1, 30)])
    assert found.weights == (10, 30)
    assert found.factors == (1.0, 1.0)
    assert found.shares == (0.25, 0.75)  # 10 times 3 x 10 steps against 30 times 1 x 30


@examples(50)
@given(works)
def test_fednova(found):
    """Sum of p_k (tau_eff / s_k) x_k; data count for p_k, and equal steps change nothing."""
    for average in (Average.NOVA, Average.NOVA_HELD):
        mix = blend(average, found)
        weights = [w.held if average is Average.NOVA_HELD else w.samples for w in found]
        assert mix.weights == tuple(weights)
        assert mix.shares == pytest.approx([w / sum(weights) for w in weights])
        steps = np.array([w.steps for w in found])
        effective = np.array(mix.factors) * steps
        assert effective == pytest.approx(np.full(len(found), np.average(steps, weights=weights)))


def test_equal_work_is_a_plain_average_to_the_bit():
    assert blend(Average.NOVA, [Work(3, 7), Work(3, 7), Work(3, 7)]).factors == (1.0, 1.0, 1.0)


def test_a_client_that_never_said_what_it_holds_counts_for_its_samples():
    assert blend(Average.NOVA_HELD, [Work(1, 10), Work(1, 10, 90)]).weights == (10, 90)


def test_a_false_claim_of_work_moves_no_other_client():
    """FedNova multiplies all changes by the mean number of steps."""
    liar, honest = Work(1e10, 100, claimed=True), [Work(2, 100, claimed=True)] * 3
    factors = blend(Average.NOVA, [liar, *honest]).factors
    assert factors[1:] == (1.0,) * 3
    assert factors[0] == pytest.approx(2e-10)
    assert blend(Average.NOVA, [Work(4, 100), Work(2, 100)]).factors == (0.75, 1.5)


@examples(75)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_no_weight_is_more_than_its_share(weights, share):
    new = capped(weights, share)
    assert all(1 <= b <= a for a, b in zip(weights, new, strict=True))
    allowed = max(share, 1 / len(weights))
    assert max(new) <= allowed * sum(new) + 1
    small = [a for a, b in zip(weights, new, strict=True) if a == b]
    assert all(a <= max(new) for a in small)


def test_a_share_that_nobody_exceeds_changes_nothing():
    assert capped([3, 4, 5], 0.5) == [3, 4, 5]
    assert capped([100, 1, 1], 0.01) == [1, 1, 1]
    assert capped([1000, 10, 10, 10], 0.5) == [30, 10, 10, 10]


def test_the_average():
    a = [np.array([1.0, 2.0], np.float32), np.array(3, np.int64)]
    b = [np.array([3.0, 6.0], np.float32), np.array(4, np.int64)]
    mean = weighted_average([a, b], [3, 1])
    assert mean[0].tolist() == [1.5, 3.0]
    assert mean[0].dtype == np.float32
    assert (mean[1].shape, mean[1].dtype, int(mean[1])) == ((), np.int64, 3)
    half = np.array([0, 0x3F80], np.uint16).view("V2")  # bfloat16: 0 and 1
    assert weighted_average([[half], [half[::-1]]], [1, 3])[0].tobytes() == b"\x40\x3f\x80\x3e"
    assert weighted_average([[np.array([1j])], [np.array([3.0 + 0j])]], [1, 1])[0][0] == 1.5 + 0.5j
