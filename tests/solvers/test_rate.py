"""The round with the fastest learning, against all allocations of small fleets."""

import itertools

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Coefficients, Infeasible, Workload, paper_fleet
from flwr_mel.solvers.rate import RESOLUTION, Rate, _Search, best_round


def small(seed):
    """Return a random problem of at most three learners with at most six samples each."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 4))
    zero = np.zeros(k)
    # Energy per sample, per report, both or none; and learners without any.
    joules = rng.uniform(0, [[0.2], [0.3]], (2, k)) * rng.choice([1.0, 1.0, 0.0], (2, 1))
    joules *= rng.random(k) < rng.choice([1.0, 0.6])
    costs = Coefficients(rng.uniform(0.01, 0.3, k), zero, rng.uniform(0, 1, k), joules[0], zero, joules[1])
    held = rng.integers(1, 7, k)
    rate = Rate(
        noise=float(rng.uniform(2, 20)),
        frugality=float(rng.choice([0, 0.25, 0.6])),
        most=5,
        cover=float(rng.choice([1.0, 0.5])),
        reference_s=None if rng.random() < 0.5 else 2.0,
    )
    limit = None if rng.random() < 0.5 else rng.uniform(0.3, 3, k)
    time_s = None if rng.random() < 0.7 else float(rng.uniform(0.1, 5))
    return costs, limit, held, int(rng.integers(1, 4)), rate, time_s


def allocations(costs, limit, held, least, rate, given_s):
    """Yield samples and cycle time of every allocation; a learner whose least task fits takes part."""
    k, ones = len(costs), np.ones(len(costs), dtype=int)
    top = np.minimum(held, rate.most)
    lowest = np.minimum(top, least)
    least_s, least_j = costs.time_s(ones, lowest), costs.energy_j(ones, lowest)
    able = np.ones(k, bool) if limit is None or rate.reference_s else least_j <= limit
    asked = min(rate.cover, held[able].sum() / held.sum())
    for choice in itertools.product(*[[0, *range(lowest[i], top[i] + 1)] for i in range(k)]):
        d = np.array(choice)
        if not d.any() or held[d > 0].sum() / held.sum() < asked - 1e-9:
            continue
        epochs = (d > 0).astype(int)
        time_s, energy_j = float(costs.time_s(epochs, d).max()), costs.energy_j(epochs, d)
        fits = np.ones(k, bool)
        if limit is not None and rate.reference_s is None:
            if (energy_j > limit).any():
                continue
            fits = least_j <= limit
        elif limit is not None:
            time_s = max(time_s, float((energy_j / limit * rate.reference_s).max()))
        if given_s is not None:
            if time_s > given_s:
                continue
            time_s = given_s
        if limit is not None and rate.reference_s:
            fits = least_j <= limit * time_s / rate.reference_s * (1 + 1e-9)
        if not (fits & (least_s <= time_s) & (d == 0)).any():
            yield d, time_s


def worth(costs, held, rate, d, time_s):
    """The value by its definition: E counts at least one sample's energy, where it costs least."""
    joules = costs.energy_j((d > 0).astype(int), d).sum()
    one = costs.energy_j(np.ones(len(held), dtype=int), np.ones(len(held), dtype=int))
    energy_j = max(joules, one[one > 0].min()) if one.any() else 1.0
    samples, share = d.sum(), held[d > 0].sum() / held.sum()
    cost = time_s ** (1 - rate.frugality) * energy_j**rate.frugality
    return samples / (samples + rate.noise) * share**0.5 / cost


@pytest.mark.parametrize(("first", "last"), [(0, 400), pytest.param(400, 20_400, marks=pytest.mark.slow)])
def test_it_is_the_best_of_all_allocations(first, last):
    solved, given = 0, 0
    for seed in range(first, last):
        *problem, rate, time_s = small(seed)
        costs, limit, held, least = problem
        try:
            best = best_round(
                costs, limit, max_samples=held, min_samples=least, objective=rate, cycle_time_s=time_s
            )
        except Infeasible:
            assert not [*allocations(*problem, rate, None)], seed
            continue
        # A T that is too short for the cover is replaced by the shortest one.
        assert time_s is None or best.cycle_time_s >= time_s
        given_s = None if time_s is None else best.cycle_time_s
        every = [worth(costs, held, rate, *found) for found in allocations(*problem, rate, given_s)]
        solved, given = solved + 1, given + (given_s is not None)
        found = worth(costs, held, rate, best.solution.samples, best.cycle_time_s)
        assert best.solution.value == pytest.approx(found, rel=1e-12)
        assert found >= max(every) * (1 - 1.001 * RESOLUTION), seed
        assert best.solution.bound >= max(every) * (1 - 1e-9), seed
        assert best.solution.gap <= (RESOLUTION if given_s is None else 1e-9) * 1.001, seed
    assert solved > 0.6 * (last - first)
    assert given > 0.1 * (last - first)


@pytest.mark.parametrize("frugality", [0.0, 0.25])
def test_no_cycle_time_of_a_fine_grid_is_better(frugality):
    rng = np.random.default_rng(3)
    for k in (2, 3, 5, 8):
        costs = Coefficients(*(rng.uniform(0.1, 1.0, k) * scale for scale in (0.01, 0.01, 1, 0.02, 0.01, 1)))
        held, goal = rng.integers(10, 400, k), Rate(frugality=frugality)
        best = best_round(costs, max_samples=held, objective=goal)
        found = worth(costs, held, goal, best.solution.samples, best.cycle_time_s)
        for time_s in np.geomspace(best.cycle_time_s / 3, 3 * best.cycle_time_s, 150):
            other = best_round(costs, max_samples=held, objective=goal, cycle_time_s=float(time_s))
            value = worth(costs, held, goal, other.solution.samples, other.cycle_time_s)
            assert value <= found * (1 + 1.001 * RESOLUTION)
            assert value <= best.solution.bound * (1 + 1e-9)


def test_no_number_of_samples_is_better_at_a_given_time():
    """All D one by one, also in the relaxed question that bounds a cell of cycle times."""
    rng = np.random.default_rng(0)
    for _ in range(400):
        k = int(rng.integers(1, 6))
        zero = np.zeros(k)
        costs = Coefficients(
            rng.choice([0.01, 0.1, 1.0], k),
            zero,
            zero + rng.choice([0.0, 0.1]),
            rng.choice([0.01, 0.1, 1.0, 3.0], k),
            zero,
            rng.choice([0.0, 0.0, 1.0, 10.0], k),
        )
        goal = Rate(
            rng.choice([2.0, 20.0, 100.0]), rng.choice([0.1, 0.25, 0.5, 0.7]), int(rng.choice([8, 256]))
        )
        held = rng.integers(1, 300, k)
        base = AllocationProblem(costs, 1e9, total_samples=k, max_samples=held, max_epochs=1)
        search = _Search(base, goal, int(rng.integers(1, 17)))
        sure_s, time_s = np.sort(rng.uniform(search.low, search.high, 2))
        sure_s = time_s if rng.random() < 0.5 else sure_s
        sure = search.needed <= sure_s
        part = sure | (search.needed < time_s)
        floor = np.where(sure, search.least, 0)
        room = np.floor((time_s - costs.c0) / costs.c2 * (1 + 1e-12)).astype(int)
        extra = np.where(part, np.maximum(np.minimum(room, search.top) - floor, 0), 0)
        joules = np.cumsum([search.least_j[sure].sum(), *np.sort(np.repeat(search.price, extra))])
        samples = floor.sum() + np.arange(len(joules))
        some = joules > 0
        values = samples[some] / (samples[some] + goal.noise) / joules[some] ** goal.frugality
        want = values.max() * np.sqrt(held[part].sum() / held.sum())
        assert search._best_at(float(time_s), float(sure_s))[0] == pytest.approx(want, rel=1e-9)


def paper():
    fleet = paper_fleet(np.random.default_rng(0))
    costs = Coefficients.from_devices(fleet, Workload.mlp((784, 300, 124, 60, 10)))
    return costs, [device.energy_limit_j for device in fleet]


def test_every_learner_of_the_papers_fleet_takes_part_within_its_power():
    costs, limits = paper()
    for frugality in (0.0, 0.25):
        best = best_round(costs, limits, objective=Rate(frugality=frugality, reference_s=10.0))
        assert (best.solution.samples >= 16).all()
        assert (best.solution.samples <= 256).all()
        assert (best.solution.time_s <= best.cycle_time_s).all()
        power = best.solution.energy_j / best.cycle_time_s
        assert (power <= np.array(limits) / 10 * (1 + 1e-9)).all()
        assert best.solution.gap <= RESOLUTION


def test_learners_are_left_out_only_where_cover_allows_it():
    costs = Coefficients([1e-3, 1e-3, 1.0], [0.0] * 3, [0.1] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3)
    everyone = best_round(costs, max_samples=[100, 100, 20])
    assert (everyone.solution.samples >= 16).all()
    some = best_round(costs, max_samples=[100, 100, 20], objective=Rate(cover=0.9))
    assert some.solution.samples.tolist() == [100, 100, 0]
    assert some.cycle_time_s < 1 < everyone.cycle_time_s


def test_a_given_time_is_used_unless_it_is_too_short_for_the_least_tasks():
    costs, _ = paper()
    free = best_round(costs)
    longer = best_round(costs, cycle_time_s=2 * free.cycle_time_s)
    assert free.cycle_time_s < longer.cycle_time_s <= 2 * free.cycle_time_s
    assert (best_round(costs, cycle_time_s=1e-6).solution.samples >= 16).all()


def test_no_learner_can_take_part():
    costs = Coefficients([0.1], [0.0], [0.0], [1.0], [0.0], [5.0])
    with pytest.raises(Infeasible, match="No learner can do one epoch"):
        best_round(costs, 4.0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"noise": 0}, "noise must be"),
        ({"frugality": 1}, "frugality must be from 0"),
        ({"cover": 0}, "cover must be"),
        ({"most": 0}, "most must be"),
        ({"reference_s": -1}, "reference_s must be"),
    ],
)
def test_bad_values_are_named(change, text):
    with pytest.raises(ValueError, match=text):
        Rate(**change)
