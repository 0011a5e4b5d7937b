"""The filter of one log-factor, and the estimate of one learner."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_mel.learning import Estimate, Learning, LogFilter, Observation
from flwr_mel.orchestrator.state import State
from tests.learning.tools import COSTS, DEFAULT, settled


@pytest.mark.parametrize("outlier", [-20.0, -2.0, 2.0, 20.0, 1e300, math.inf, -math.inf])
def test_a_single_outlier_has_a_bounded_effect_that_passes(outlier):
    x = settled()
    before, margin = x.mean, x.margin(0.95)
    x.observe(outlier, 0.02, 40)
    assert 0 < (x.mean - before) * math.copysign(1, outlier) < 0.06
    assert x.margin(0.95) < 1.2 * margin
    for _ in range(8):
        x.observe(before, 0.02, 40)
    assert x.mean == pytest.approx(before, abs=0.02)


@pytest.mark.parametrize("step", [math.log(2), math.log(0.5), math.log(5), -math.log(5), 0.4, -0.4])
def test_a_step_is_followed_at_the_second_observation(step):
    rng = np.random.default_rng(1)
    x = settled(seed=2)
    seen = []
    for _ in range(4):
        x.observe(step + rng.normal(0, 0.05), 0.02, 40)
        seen.append(x.mean)
    assert abs(seen[0]) < 0.1
    assert seen[1:] == pytest.approx([step] * 3, abs=0.12)


def test_alternating_surprises_are_noise_and_widen_the_margin():
    x = settled()
    margin = x.margin(0.95)
    for n in range(20):
        x.observe(1.0 if n % 2 else -1.0, 0.02, 40)
    assert abs(x.mean) < 0.3
    assert x.margin(0.95) > 2 * margin


@pytest.mark.parametrize("sd", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_quantiles_hold_on_stationary_noise(sd, level):
    rng = np.random.default_rng(3)
    missed = reports = 0
    for _ in range(40):
        x, mean = LogFilter(0.04, 0.01), rng.normal(0, 0.2)
        for t in range(150):
            value = mean + rng.normal(0, sd)
            if t >= 20:
                missed += value > x.mean + x.margin(level)
                reports += 1
            x.observe(value, 0.02, 40)
    promised = 1 - level
    # Never far more than promised, and not by planning for the worst either.
    assert missed / reports < 1.25 * promised + 4 * math.sqrt(promised / reports)
    assert missed / reports > 0.25 * promised


def test_late_learners_count_as_at_least_the_deadline():
    x = settled()
    x.observe_at_least(-1.0, 0.02)  # no news: it is always above that
    assert x.mean == pytest.approx(settled().mean, abs=1e-6)
    means = []
    for _ in range(4):
        x.observe_at_least(math.log(2), 0.02)
        means.append(x.mean)
    assert means[0] < 0.1 < means[1]
    assert means[-1] > 0.6


ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(ANY, st.booleans()), max_size=30))
@settings(max_examples=200, deadline=None)
def test_no_observation_breaks_the_filter(values):
    x = LogFilter(0.04, 0.01)
    for value, late in values:
        if late:
            x.observe_at_least(value, 0.02)
        else:
            x.observe(value, 0.02, 40)
        assert all(math.isfinite(n) for n in (x.mean, x.variance, x.noise, x.margin(0.9999)))
        assert x.variance > 0
        assert LogFilter.from_dict(json.loads(json.dumps(x.as_dict()))) == x


def estimate(*, declared=True):
    return Estimate.start(COSTS, declared=declared, assumed=not declared, learning=DEFAULT)


SECONDS = st.one_of(st.none(), st.floats(0, 1e308), st.sampled_from([0.0, 5e-324, 1e300]))


@given(
    st.lists(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS, st.integers(1, 2**20)), max_size=20), st.booleans()
)
@settings(max_examples=200, deadline=None)
def test_nothing_a_learner_reports_breaks_its_estimate(seen, declared):
    x = estimate(declared=declared)
    for train, joules, trip, late, n in seen:
        x.observe(COSTS, Observation(n, n, train, joules, trip, late, 1.0), DEFAULT, 0.95)
        if n % 3 == 0:
            x.rest()
        assert all(0 < f < math.inf for f in x.factors(0.9999))
        again = Estimate.from_dict(json.loads(json.dumps(x.as_dict())))
        assert again == x
        assert again.factors(0.95) == x.factors(0.95)


@pytest.mark.parametrize("claim", [0.0, 1e-300])
def test_claims_alone_make_nobody_faster_than_a_bounded_factor(claim):
    x = estimate()
    for _ in range(200):
        x.observe(COSTS, Observation(50, 100, train_s=claim), DEFAULT, 0.95)
    assert 1 / 8 <= x.factors(0.95)[0] < 1 / 6
    # The server's clock says that it took what it declared: then so it is, whatever it claims.
    x = estimate()
    for _ in range(200):
        x.observe(COSTS, Observation(50, 100, train_s=claim, round_trip_s=5.2), DEFAULT, 0.95)
    assert x.factors(0.95)[0] > 1 / 8
    compute, link, _ = x.factors(0.95)
    assert compute * 5.0 + link * 0.2 > 5.2


def test_round_trips_that_agree_make_it_as_fast_as_it_is():
    x = estimate()
    for _ in range(20):
        x.observe(COSTS, Observation(50, 100, train_s=0.1, round_trip_s=0.12), DEFAULT, 0.95)
    assert x.factors(0.5)[0] == pytest.approx(0.1 / 5.0, rel=0.05)
    assert x.factors(0.5)[1] == pytest.approx(0.02 / 0.2, rel=0.05)


def test_training_cannot_take_longer_than_the_round_trip():
    x = estimate()
    for _ in range(50):
        x.observe(COSTS, Observation(50, 100, train_s=1e300, round_trip_s=5.2), DEFAULT, 0.95)
    assert x.factors(0.5)[0] == pytest.approx(5.2 / 5.0, rel=0.05)


def test_how_far_a_report_is_late_tells_how_much_more_is_needed():
    """Twice as long as planned, and a little longer, are not the same surprise."""
    little, much = estimate(), estimate()
    for x, took_s in ((little, 10.2), (much, 20.0)):
        late = Observation(50, 100, train_s=took_s - 0.2, round_trip_s=took_s, planned_s=10.0)
        x.observe(COSTS, late, DEFAULT, 0.95)
    assert 1.0 < little.safety < 1.2 < much.safety < 2.0
    kept = Observation(50, 100, train_s=4.8, round_trip_s=5.0, planned_s=10.0)
    for _ in range(19):
        much.observe(COSTS, kept, DEFAULT, 0.95)
    assert much.safety == pytest.approx(1.0)  # one of twenty may be late


def test_estimates_of_old_checkpoints_have_no_step():
    data = estimate().as_dict()
    del data["step"]
    assert Estimate.from_dict(data) == estimate()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.pop("link"),
        lambda d: d.update(more=1),
        lambda d: d.update(told=[1, 0, 1]),
        lambda d: d.update(safety=99.0),
        lambda d: d.update(step=2.0),
        lambda d: d.update(share=-0.1),
        lambda d: d.update(share=1.5),
        lambda d: d.update(idle=0.5),
        lambda d: d.update(base=[1, 2, 3]),
        lambda d: d.update(base=[-1.0, 0, 0, 0, 0, 0]),
        lambda d: d.update(base=[1e10, 0, 0, 0, 0, 0]),
        lambda d: d["compute"].update(mean=math.nan),
        lambda d: d["compute"].update(variance=-1.0),
        lambda d: d["compute"].update(noise="small"),
        lambda d: d["compute"].update(run=0.5),
        lambda d: d.update(compute=None),
    ],
)
def test_garbage_is_refused(spoil):
    data = estimate().as_dict()
    spoil(data)
    with pytest.raises(ValueError, match="must be"):
        Estimate.from_dict(data)
    with pytest.raises(ValueError, match="must be"):
        State.restored({"estimates": {"a": data}})


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"on_time": 1.0}, "on_time must be a share"),
        ({"on_time": 0.4}, "on_time must be a share"),
        ({"of": "round"}, "of must be one of 'learner', 'cycle'"),
        ({"noise": 0.0}, "noise must be"),
        ({"drift": 9.0}, "drift must be at most 5"),
        ({"memory": 2}, "memory must be"),
    ],
)
def test_settings_are_checked(bad, text):
    with pytest.raises(ValueError, match=text):
        Learning(**bad)


def test_whole_cycles_need_more_of_each_learner():
    assert Learning(on_time=0.9).level(20) == 0.9
    assert Learning(on_time=0.9, of="cycle").level(20) ** 20 == pytest.approx(0.9)
