"""Bisection against a look at every candidate."""

import numpy as np

from flwr_mel.allocation.bisection import largest_real


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
