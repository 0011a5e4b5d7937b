"""The round time where none is given."""

import numpy as np
import pytest

from flwr_mel.costs import Coefficients
from flwr_mel.cycle.round_time import Pace, round_time


def costs(c2, c0=0.0, c1=0.0):
    c2 = np.asarray(c2, dtype=float)
    zero = np.zeros(len(c2))
    return Coefficients(c2, zero + c1, zero + c0, zero, zero, zero)


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_equally_fast_clients_keep_their_round():
    same = costs([1e-3] * 3, 0.1)
    found = round_time(same, ints(3, 3, 3), ints(500, 500, 500), min_samples=32, max_epochs=15)
    assert found == pytest.approx(1.6)
    assert (same.time_s(ints(3, 3, 3), ints(500, 500, 500)) <= found).all()


def test_fast_clients_take_over_the_work_of_slow_ones():
    found = round_time(costs([1e-3, 1e-2]), ints(1, 1), ints(500, 500), min_samples=32, max_epochs=5)
    # 1,000 samples are passed: the fast client does one epoch, the slow one its 50 samples, then two epochs.
    assert found == pytest.approx(1.0)


def test_every_client_has_time_for_its_smallest_task():
    found = round_time(costs([1e-3, 1.0]), ints(1, 1), ints(500, 500), min_samples=32, max_epochs=5)
    assert found == pytest.approx(32.0)
    few = round_time(costs([1e-3, 1.0]), ints(1, 1), ints(500, 4), min_samples=32, max_epochs=5)
    assert few == pytest.approx(4.0)


def test_clients_that_use_all_their_samples_need_time_for_them():
    found = round_time(
        costs([1e-3, 1e-2]), ints(1, 1), ints(500, 500), min_samples=32, max_epochs=5, epochs_only=True
    )
    assert found == pytest.approx(5.0)


def test_own_epochs_beyond_the_limit_are_not_asked_for():
    found = round_time(costs([1e-3] * 2), ints(5, 5), ints(500, 500), min_samples=32, max_epochs=1)
    assert found == pytest.approx(0.5)


def test_pace_ignores_noise_once_it_is_steady_and_follows_a_change():
    pace, times = Pace(), []
    for now in (1.0, 1.02, 0.98, 1.01, 0.95, 0.9, 1.0, 0.93):
        time_s, pace = pace.next(now)
        times.append(time_s)
    assert len(set(times[3:])) == 1
    time_s, pace = pace.next(0.5)
    assert time_s == 0.5
    time_s, pace = pace.next(2.0)
    assert time_s == 2.0


def test_pace_of_other_clients_does_not_count():
    pace = Pace()
    for _ in range(5):
        fast, pace = pace.next(0.4)
        slow, pace = pace.next(1.9)
        assert (fast, slow) == (0.4, 1.9)


def test_pace_goes_through_json_and_refuses_garbage():
    _, pace = Pace().next(1.5)
    assert Pace.from_dict(pace.as_dict()) == pace
    for garbage in (None, {}, {"computed": [1], "used": "x"}, {"computed": [0.0], "used": []}):
        with pytest.raises(ValueError, match="pace"):
            Pace.from_dict(garbage)
    with pytest.raises(ValueError, match="now_s"):
        Pace().next(float("nan"))
