"""Bisection against a look at every candidate."""

import numpy as np
import pytest

from flwr_mel.allocation.bisection import largest, largest_each, largest_real, least


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-3, 4), (1, 17)])
def test_integers_are_found_one_by_one(low, high):
    for edge in range(low, high + 1):
        assert largest(low, high, lambda n, edge=edge: n <= edge) == edge
        assert least(low, high, lambda n, edge=edge: n >= edge) == edge
    edges = np.arange(low, high + 1)
    ends = np.full(len(edges), low), np.full(len(edges), high)
    np.testing.assert_array_equal(largest_each(*ends, lambda n: n <= edges), edges)


def test_reals_are_closed_in_on_from_below():
    edges = np.array([0.0, 1e-9, 0.3, np.pi, 10.0])
    found = largest_real(np.zeros(5), np.full(5, 10.0), lambda x: x <= edges)
    assert (found <= edges).all()
    np.testing.assert_allclose(found, edges, rtol=4e-16, atol=1e-29)
    few = largest_real(np.zeros(5), np.full(5, 10.0), lambda x: x <= edges, halvings=4)
    assert (few <= edges).all()
    np.testing.assert_allclose(few, edges, atol=10 / 2**4)
    rough = float(largest_real(1.0, 8.0, lambda x: x <= 5.0, tolerance=0.1))
    assert 4.5 < rough <= 5.0
    assert largest_real(3.0, 3.0, lambda _: False) == 3.0
