"""The round time where none is given."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_mel.costs import Coefficients
from flwr_mel.cycle.round_time import Fleet, expected_longest
from tests.search import examples


def fleet(c2, own, held, *, c0=0.0, confirmed=True, **more):
    c2 = np.asarray(c2, dtype=float)
    zero = np.zeros(len(c2))
    costs = Coefficients(c2, zero, zero + c0, zero, zero, zero)
    known = np.broadcast_to(np.asarray(confirmed), len(c2))
    own, held = (np.broadcast_to(np.array(x, dtype=np.int64), len(c2)) for x in (own, held))
    return Fleet(costs, own, held, known, **({"min_samples": 32, "max_epochs": 5} | more))


def test_equally_fast_clients_keep_their_round():
    same = fleet([1e-3] * 3, 3, 500, c0=0.1, max_epochs=15)
    assert same.round_s(3) == pytest.approx(1.6)
    assert same.round_s(3) == same.baseline_s(3)


def test_fast_clients_take_over_the_work_of_slow_ones():
    found = fleet([1e-3, 1e-2], 1, 500).round_s(2)
    # 1,000 samples are passed: the fast client does one epoch, the slow one its 50 samples, then two epochs.
    assert found == pytest.approx(1.0)


def test_every_client_has_time_for_its_smallest_task():
    assert fleet([1e-3, 1.0], 1, 500).round_s(2) == pytest.approx(32.0)
    assert fleet([1e-3, 1.0], 1, [500, 4]).round_s(2) == pytest.approx(4.0)


def test_clients_that_use_all_their_samples_need_time_for_them():
    assert fleet([1e-3, 1e-2], 1, 500, whole=True).round_s(2) == pytest.approx(5.0)


def test_own_epochs_beyond_the_limit_are_not_asked_for():
    assert fleet([1e-3] * 2, 5, 500, max_epochs=1).round_s(2) == pytest.approx(0.5)


def test_no_round_is_longer_than_the_projects_own_with_as_many_clients():
    """One slow client of ten is in every tenth round with one client, and in all rounds with all ten."""
    some = fleet([1e-3] * 9 + [1e-2], 1, 500, min_samples=500)
    assert some.baseline_s(1) == pytest.approx(0.9 * 0.5 + 0.1 * 5.0)
    assert some.round_s(1) == some.baseline_s(1)
    assert some.round_s(10) == some.baseline_s(10) == pytest.approx(5.0)


def test_a_declaration_that_no_task_confirmed_stretches_no_round():
    """Above the own work of the other clients."""
    believed = fleet([1e-3, 1e-3, 1e3], 1, 500)
    doubted = fleet([1e-3, 1e-3, 1e3], 1, 500, confirmed=[True, True, False])
    assert believed.round_s(3) == pytest.approx(32e3)
    assert doubted.round_s(3) == pytest.approx(1.0, rel=0.5)
    # Without any task, declarations are all that is known.
    unknown = fleet([1e-3, 1e-3, 1e3], 1, 500, confirmed=False)
    assert unknown.round_s(3) == believed.round_s(3)


@pytest.mark.parametrize(
    ("c2", "time_s", "epochs"),
    [
        ([1e-3, 1e-3], 1.0, 2),  # both do their own two epochs
        ([1e-3, 2e-3], 1.5, 3),  # the fast one does three, the slow one the other
        ([1e-3, 1e-2], 9.0, 3),
        ([1e-3, 1e-2], 0.9, 1),  # one epoch of the fast one is all that fits
        ([1e-3, 1e-3], 0.1, 1),  # nothing fits: an epoch is the least
    ],
)
def test_the_fewest_epochs_for_the_own_work(c2, time_s, epochs):
    some = fleet(c2, 2, 500, whole=True)
    assert some.epochs_for_own_work(time_s) == epochs
    # As a search would find it.
    fits = np.clip(np.floor(time_s / (np.array(c2) * 500)), 0, 5)
    enough = [m for m in range(1, 6) if np.minimum(fits, m).sum() >= 4]
    assert epochs == (enough[0] if enough else max(int(fits.max()), 1))


@examples(60)
@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=9), st.integers(1, 12))
def test_the_expected_longest_of_some_times(times, clients):
    """Against all samples without replacement."""
    found = expected_longest(np.array(times), clients)
    samples = combinations(times, min(clients, len(times)))
    assert found == pytest.approx(np.mean([max(sample) for sample in samples]))


def test_the_expected_longest_of_very_many():
    """Binomial coefficients overflow; of 10,000 equally spaced times, the mean is known."""
    times = np.arange(1, 10_001, dtype=float)
    assert expected_longest(times, 100) == pytest.approx(100 * 10_001 / 101)
    assert expected_longest(times, 10_000) == 10_000.0
