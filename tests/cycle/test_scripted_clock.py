"""Rounds on a scripted clock: what the estimator and the derived round time do for whole fleets."""

import itertools

import numpy as np
import pytest

from flwr_mel.cycle.options import Estimation
from flwr_mel.cycle.state import State
from tests.cycle.scripted import fleet_of, run_rounds, unwrapped
from tests.cycle.tools import LOST


def changes(logs):
    """Return by which factor each client's work changed from round to round, after the first two rounds."""
    works = np.array([log.work for log in logs[2:]], dtype=float)
    return np.maximum(works[1:] / works[:-1], works[:-1] / works[1:])


@pytest.mark.parametrize(
    ("epochs", "fixed", "seeds"),
    [(1, 0.0, 6), (3, 0.1, 6)]
    + [pytest.param(e, f, 12, marks=pytest.mark.slow) for e in (1, 3, 5) for f in (0.0, 0.1)],
)
def test_equal_clients_with_noise_lose_nothing(epochs, fixed, seeds):
    """Noise alone once gave one of four equal clients 32 samples and another 528."""
    work = seconds = 0.0
    fleet = fleet_of([1, 1, 1, 1], epochs=epochs, fixed=fixed, noise=0.2)
    for seed in range(seeds):
        logs = run_rounds(fleet, 35, seed=seed)
        for log in logs[10:]:
            work, seconds = work + log.work.sum(), seconds + log.actual_s
            assert log.work.max() <= 2 * log.work.min()
        assert changes(logs).max() <= 2
    assert work / seconds >= 0.97 * unwrapped(fleet, 3000)


def test_fixed_cost_is_separated_only_after_the_work_has_clearly_varied():
    equal = fleet_of([1, 1, 1], fixed=0.3)
    for log in run_rounds(equal, 10):
        assert [x.estimate.mean[2] for x in log.state.learners.values()] == pytest.approx([0, 0, 0], abs=1e-6)
    unequal = fleet_of([1, 1, 10], fixed=0.05)
    slow = run_rounds(unequal, 10)[-1].state.of("1002").estimate
    assert slow.mean[2] == pytest.approx(0.5, rel=0.15)
    assert slow.mean[0] == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("fixed", [0.0, 0.05, 0.2])
def test_actual_and_planned_round_time_agree_from_round_three_on(noise, epochs, fixed):
    logs = run_rounds(fleet_of([1, 1, 3, 10], epochs=epochs, fixed=fixed, noise=noise), 15)
    ratios = np.array([log.actual_s / log.planned_s for log in logs[2:]])
    assert np.abs(ratios - 1).max() <= 0.15
    assert changes(logs).max() <= 2


def random_fleet(seed):
    rng = np.random.default_rng([9, seed])
    clients = int(rng.integers(2, 13))
    return fleet_of(
        np.exp(rng.uniform(0, np.log(10), clients)),
        epochs=int(rng.integers(1, 6)),
        held=rng.integers(100, 3000, clients),
        fixed=float(rng.choice([0, 0.05, 0.5])),
        noise=float(rng.choice([0, 0.05, 0.1])),
        c1=float(rng.choice([0, 1e-4])),
    )


@pytest.mark.parametrize("fleets", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_the_round_time_settles_for_random_fleets(fleets):
    for seed in range(fleets):
        times = [log.planned_s for log in run_rounds(random_fleet(seed), 12, seed=seed)][6:]
        assert max(times) < 1.25 * min(times), f"fleet {seed}"


def test_the_round_time_is_at_most_the_estimated_time_of_the_own_round():
    """Remembered values made it longer where all clients are about equally fast."""
    for seed in range(10):
        logs = run_rounds(fleet_of([1, 1, 1, 1.1], epochs=2, noise=0.1), 12, seed=seed)
        for before, log in itertools.pairwise(logs):
            longest = max(x.own_s for x in before.state.learners.values())
            assert log.planned_s <= longest * (1 + 1e-9)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("declares", [True, False])
def test_one_missed_reply_costs_two_rounds_and_at_most_two_smaller_tasks(given, declares):
    """It cost 28 of 30 rounds."""
    fleet = fleet_of([1, 1, 1, 2], epochs=2, script={(6, 3): LOST})
    keywords = {"cycle_time_s": 3.0} if given else {}
    logs = run_rounds(fleet, 20, slack=0.25, declares=declares, **keywords)
    works = [int(log.work[3]) for log in logs]
    usual = works[4]
    assert works[6:8] == [0, 0]
    assert 0.3 * usual <= works[8] < 0.9 * usual
    assert all(work >= 0.9 * usual for work in works[10:])


def test_a_client_that_hangs_is_asked_ever_less_often_and_comes_back():
    fleet = fleet_of([1, 1, 1, 1], script={(i, 3): LOST for i in range(3, 40)})
    logs = run_rounds(fleet, 58, slack=0.25, cycle_time_s=0.7, declares=True)
    asked = [i for i, log in enumerate(logs, 1) if log.work[3] > 0]
    # Pauses of 2, 4, 8, 16 and 16 rounds, then it is back.
    assert asked == [1, 2, 3, 6, 11, 20, 37, *range(54, 59)]
    assert logs[-1].work[3] == logs[1].work[3]


def test_missed_replies_after_a_resume_cost_at_most_three_rounds():
    """The old server process may still hold the nodes, so that all replies of one round are lost."""
    fleet = fleet_of([1, 1, 3], script={(7, k): LOST for k in range(3)})
    before = run_rounds(fleet, 6, slack=0.25)
    resumed = State.from_dict(before[-1].state.as_dict())
    after = run_rounds(fleet, 8, slack=0.25, state=resumed)
    assert (after[4].work >= 0.9 * before[-1].work).all()


@pytest.mark.parametrize("factor", [3.0, 20.0])
def test_a_very_late_first_answer_costs_at_most_three_rounds(factor):
    """Libraries and data are loaded in it. It cost 5 of 8 rounds."""
    fleet = fleet_of([1, 1, 1, 1], script={(1, 3): factor})
    logs = run_rounds(fleet, 10)
    assert all(log.work[3] > 0 for log in logs)
    assert sum(log.work[3] < 0.9 * log.work[0] for log in logs[1:]) <= 3
    assert logs[-1].planned_s == pytest.approx(logs[-1].actual_s, rel=0.15)


def test_available_time_is_used():
    """A plan that needed 5 of 60 s dropped two thirds of the data."""
    fleet = fleet_of([1, 1, 1], held=4000, noise=0.1)
    for log in run_rounds(fleet, 12, cycle_time_s=60.0, max_epochs=1)[1:]:
        assert log.samples.sum() == 12_000
    for log in run_rounds(fleet, 12, max_epochs=1)[1:]:
        assert log.samples.sum() >= 0.9 * 12_000


def test_the_round_time_does_not_depend_on_who_is_sampled():
    """It is that of the whole fleet: fast clients alone do more work in it."""
    fleet = fleet_of([1, 1, 1, 1, 6, 6, 6, 6], noise=0.05)

    def half(number, rng):
        if number <= 2:  # all are measured
            return range(4 * (number - 1), 4 * number)
        return sorted(rng.choice(8, 4, replace=False)) if number % 3 else range(4)

    logs = run_rounds(fleet, 40, participation=half)
    fast = [log for log in logs[6:] if not log.work[4:].any()]
    assert len(fast) >= 10
    own_s = 1e-3 * 500 + 0.05
    times = [log.planned_s for log in logs[6:]]
    assert max(times) <= 1.15 * min(times)
    assert own_s < min(times) < max(times) < 6 * own_s
    for log in logs[6:]:
        assert log.actual_s <= 1.3 * log.planned_s
    # On average, rounds do the work of the project's own.
    assert np.mean([log.work.sum() for log in logs[6:]]) >= 0.9 * 4 * 500


def test_the_promised_share_is_in_time():
    fleet = fleet_of([1, 1, 2, 4], noise=0.1, held=2000)
    options = Estimation(on_time=0.95)
    late = tasks = 0
    for seed in range(5):
        logs = run_rounds(
            fleet, 60, seed=seed, cycle_time_s=5.0, slack=0.5, declares=True, estimation=options
        )
        late += sum(log.actual_s > 5.0 for log in logs[5:])
        tasks += sum(int((log.work > 0).sum()) for log in logs[5:])
    assert late / tasks <= 0.05
