"""Timing: what a function was made to cost must come out, on a clock of our own."""

import sys

import pytest

from flwr_mel import InputError
from flwr_mel.tools.profiling import fit, load_function, measure_compute

C2, C1, C0 = 4e-4, 1e-4, 0.02


class Clock:
    """Seconds that pass only when told to: nothing measured with it depends on this machine."""

    now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


# The fit


@pytest.mark.parametrize("true", [(1e-4, 2e-5, 0.3), (3.0, 0.0, 0.0), (1e-9, 0.0, 5e-6), (1e-3, 0.5, 0.0)])
def test_the_fit_finds_what_was_put_in(true):
    points = [(e, d) for e in (1, 2, 4) for d in (50, 100, 200)] * 3
    seconds = [true[0] * e * d + true[1] * d + true[2] for e, d in points]
    assert fit(points, seconds) == pytest.approx(true, rel=1e-6, abs=1e-9 * max(seconds))
    seconds[4] *= 30  # one run was disturbed
    assert fit(points, seconds) == pytest.approx(true, rel=1e-6, abs=1e-9 * max(seconds))


def test_the_fit_has_no_negative_coefficients():
    points = [(1, 10), (1, 100), (4, 10), (4, 100)] * 2
    assert min(fit(points, [1e-3 * e * d - 2e-3 * d + 1e-3 for e, d in points])) >= 0


# Timing


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def train(clock):
    """A function whose cost is known to the last bit."""
    return lambda samples, epochs: clock.sleep(C2 * samples * epochs + C1 * samples + C0)


def test_a_known_cost_is_measured(train, clock):
    got = measure_compute(train, samples=160, budget_s=8, repeats=5, clock=clock)
    assert (got.c2, got.c1, got.c0) == pytest.approx((C2, C1, C0))
    assert len(got.runs) == 25
    assert got.error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("budget_s", "samples"), [(3.0, 4000), (30.0, 40_000)])
def test_the_budget_is_kept_by_fewer_samples(train, clock, budget_s, samples):
    got = measure_compute(train, samples=samples, budget_s=budget_s, repeats=5, clock=clock)
    assert clock() <= budget_s
    assert 8 <= got.samples < samples / 2
    assert len(got.runs) >= 10
    assert got.c2 == pytest.approx(C2)


@pytest.mark.parametrize("after", [3, 5, 7, 12])
@pytest.mark.parametrize("slower", [2.0, 10.0])
def test_a_device_that_becomes_slower_is_measured_all_the_same(clock, after, slower):
    """The first round of runs is finished, then no run begins that would end after the budget."""
    calls = []

    def train(samples, epochs):
        calls.append(samples)
        busy = slower if len(calls) > after else 1.0
        clock.sleep(busy * (C2 * samples * epochs + C1 * samples + C0))

    got = measure_compute(train, samples=20_000, budget_s=30.0, clock=clock)
    assert 0.9 * C2 <= got.c2 <= 1.1 * slower * C2
    first = sum(run.seconds for run in got.runs[:5])
    # Only what the run lost during which the other work began cannot be foreseen.
    lost = max(run.seconds for run in got.runs) * (1 - 1 / slower)
    assert clock() <= max(30.0, first + 0.1 * first) + lost
    if after == 3:  # slow from the first run on
        assert got.c2 == pytest.approx(slower * C2)


def test_progress_and_counter(train, clock):
    told, joules = [], iter(range(1000))
    got = measure_compute(
        train,
        samples=40,
        repeats=2,
        counter_j=lambda: float(next(joules)),
        on_run=lambda *news: told.append(news),
        clock=clock,
    )
    assert told == [(done, 10) for done in range(1, 11)]
    assert {run.joules for run in got.runs} == {1.0}


@pytest.mark.parametrize(
    ("seconds", "settings", "message"),
    [
        (lambda d, e: 0.0, {}, "train must be slow enough to be timed.*Raise samples, e.g. to"),
        (lambda d, e: 0.02 * e, {}, "takes longer for more samples.*Does it use samples?"),
        (lambda d, e: 0.001 * d, {}, "takes longer for more epochs.*Does it use epochs?"),
        (lambda d, e: 0.3, {"budget_s": 0.5}, "budget_s must be"),
        (lambda d, e: d * e, {"samples": 7}, "samples must be an integer from 8"),
        (lambda d, e: d * e, {"epochs": 1}, "epochs must be an integer from 2"),
        (lambda d, e: d * e, {"repeats": 0}, "repeats must be an integer from 1"),
        (lambda d, e: d * e, {"budget_s": 0}, "budget_s must be a finite number > 0"),
    ],
)
def test_functions_that_cannot_be_measured(clock, seconds, settings, message):
    def train(samples, epochs):
        clock.sleep(seconds(samples, epochs))

    with pytest.raises(InputError, match=message):
        measure_compute(train, clock=clock, **{"samples": 100, "budget_s": 5, "repeats": 3, **settings})


def leaves(samples, epochs):
    sys.exit(3)


def test_functions_that_raise():
    with pytest.raises(InputError, match=r"got SystemExit from .*\(samples=6, epochs=1\): 3"):
        measure_compute(leaves, samples=100)


# Finding the function


def test_functions_are_found(app, capsys):
    load_function("my_app:train")(samples=1, epochs=1)
    assert capsys.readouterr().out == "hello from the function\n"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("my_app", "train must be module:function, got 'my_app'"),
        ("my_app:a.b", "module:function"),
        ("my_app.py:train", "For train in app.py, write app:train"),
        ("../my_app:train", "module:function"),
        ("missing:train", "can be imported, got ModuleNotFoundError from missing"),
        ("bad:train", "got ModuleNotFoundError from bad: .*nowhere_to_be_found"),
        ("my_app:tarin", "It has: fails, nothing, swapped, train"),
        ("my_app:number", "train must be a function of my_app, got 'number'"),
        ("my_app:swapped", r"got 'train\(n, tau\)'. Missing a required argument"),
    ],
)
def test_functions_that_cannot_be_loaded(app, where, message):
    with pytest.raises(InputError, match=message):
        load_function(where)
