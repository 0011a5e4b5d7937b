"""Recommendations: regimes that follow from the fleet, candidates that are what they say, c worth a try."""

import json

import click
import pytest
from mel_simulation.cli.trials import scaled

from flwr_mel import Infeasible, Rate, allocate, best_round
from flwr_mel.solvers import Exact
from flwr_mel.tools.fleetfile import read_fleet
from flwr_mel.tools.recommend import WORTH, Level, paper_rule, recommend, regimes_of, worth_trying
from flwr_mel.tools.recommend_command import judge
from tests.tools.commands import ask, process, refused, run
from tests.zoo import paper_problem, problem_of

LIMITS = ("--cycle-time", "10", "--samples", "60000", "--min-samples", "100")


def plain(energy_j=None, time_s=10.0, g2=0.0, **changes):
    """Six equal learners without overhead: 1,000 samples per second and epoch."""
    limits = {"energy_limit_j": energy_j, "total_samples": 12_000, "min_samples": 10, **changes}
    return problem_of([0.001] * 6, time_s, g2=[g2] * 6, **limits)


@pytest.fixture(scope="module")
def answer():
    return recommend(paper_problem(0, 10, 10, 3))


def test_the_limit_that_binds():
    found = regimes_of(plain())
    assert found.relaxed_epochs == pytest.approx(5)
    assert found.time.doubled == pytest.approx(2)
    assert (found.time.level, found.energy.level) == (Level.LOW, Level.HIGH)
    found = regimes_of(plain(energy_j=10.0, time_s=1000.0, g2=0.001))
    assert found.energy.doubled == pytest.approx(2)
    assert (found.time.level, found.energy.level) == (Level.HIGH, Level.LOW)
    found = regimes_of(plain(max_samples=2000, max_epochs=3))  # the learners' own data
    assert found.time.level is found.energy.level is Level.HIGH


def test_the_papers_rule():
    scarce, medium, plenty = plain(time_s=4.0), plain(time_s=10.0), plain(time_s=20.0)
    assert paper_rule(regimes_of(scarce), 5).staleness == (1, 2)
    assert paper_rule(regimes_of(plenty), 5).staleness == (3, 4, 5)
    assert paper_rule(regimes_of(medium), 5).staleness == (3, 4, 5)  # time low, energy abundant
    assert paper_rule(regimes_of(paper_problem(0, 30, 10, 0)), 5).scheme == "ha-sync"
    assert paper_rule(regimes_of(paper_problem(0, 10, 10, 0)), 1).staleness == (1,)


def test_candidates_are_what_they_say(answer):
    problem = paper_problem(0, 10, 10, 0)
    for c in answer.candidates:
        if c.status != "infeasible":
            again = allocate(problem.replace(staleness=c.staleness), Exact(handout=c.handout))
            squares = float((again.epochs * again.samples**2).sum())
            assert c.mean_epochs == again.mean_epochs
            assert c.progress == pytest.approx(squares / again.samples.sum())
            assert c.energy_j == pytest.approx(float(again.energy_j.sum()))


def test_ranking_base_and_best(answer):
    progress = [c.progress for c in answer.candidates]
    assert progress == sorted(progress, reverse=True)
    base = next(c for c in answer.candidates if c.name == "HA-Sync")
    assert base.gain == 0
    for c in answer.candidates:
        assert c.gain == pytest.approx(c.progress / base.progress - 1)
    assert answer.best.progress * (1 + WORTH) >= progress[0]
    close = [c for c in answer.candidates if c.progress * (1 + WORTH) >= progress[0]]
    assert answer.best.staleness == min(c.staleness for c in close)


def test_which_c_to_try(answer):
    rule = next(c for c in answer.candidates if c.name == "HA-Sync")
    tries = worth_trying(rule, answer.candidates)
    assert tries.staleness[:2] == (0, 1)  # rounding down costs 38 %
    flat = recommend(plain(), staleness_up_to=2)
    assert worth_trying(flat.best, flat.candidates).staleness == (0,)
    assert "no larger c" in flat.cross_validate.reason


def test_federated_data_leave_the_strongest_first_rule_out(answer):
    federated = recommend(paper_problem(0, 10, 10, 0, pl=False), federated=True)
    assert {c.handout for c in federated.candidates} == {"proportional"}
    assert {c.handout for c in answer.candidates} == {"proportional", "strongest-first"}


def test_short_rounds_keep_the_mean_power(answer):
    problem = paper_problem(0, 10, 10, 0)
    c, limits = problem.coefficients, problem.energy_limit_j
    for short, f in zip(answer.short, (0.0, 0.25), strict=True):
        want = best_round(c, limits, objective=Rate(frugality=f, reference_s=10.0))
        assert (short.frugality, short.cycle_time_s) == (f, want.cycle_time_s)
        assert (short.samples, short.participants) == (want.solution.samples.sum(), 20)
    quick, frugal = answer.short
    assert quick.cycle_time_s < 2
    assert frugal.energy_j / frugal.cycle_time_s < quick.energy_j / quick.cycle_time_s / 2


def test_errors():
    with pytest.raises(Infeasible, match="can process"):
        recommend(paper_problem(0, 10, 10, 0).replace(total_samples=10**6))
    with pytest.raises(ValueError, match="problem must be an AllocationProblem, got 'fleet"):
        recommend("fleet.toml")


def test_command_line(paper):
    out = run("recommend", paper, *LIMITS).stdout
    for word in (
        "HA-Sync",
        "HA-Asyn c=2",
        "c to try",
        "the paper",
        "--cycle-time best --energy-per 10",
        "next",
    ):
        assert word in out
    assert "strongest-first" not in run("recommend", paper, *LIMITS, "--mode", "fl").stdout
    body = ask("recommend", paper, *LIMITS)
    mine = recommend(read_fleet(paper).problem(cycle_time_s=10.0, total_samples=60_000, min_samples=100))
    assert body["best"]["name"] == mine.best.name
    assert len(body["candidates"]) == len(mine.candidates) == 12
    assert body["cross_validation"] is None


def test_command_line_exit_codes(paper):
    limits = ("--cycle-time", "10", "--samples")
    assert "can process" in run("recommend", paper, *limits, "900000", code=3).stderr
    assert ask("recommend", paper, *limits, "900000", code=3)["status"] == "infeasible"
    assert "The smallest batches of 20 learners" in run("recommend", paper, *limits, "5", code=3).stderr
    assert "--staleness-up-to" in refused("recommend", paper, *LIMITS, "--staleness-up-to", "-1")
    for option in (("--cycles", 4), ("--seeds", 2), ("--data-dir", ".")):
        told = refused("recommend", paper, *LIMITS, *option)
        assert f"{option[0]} must be left out without --cross-validate" in told


def rows(accuracy):
    return [
        {"config": {"staleness": c}, "trouble": "", "accuracy": [0.1, a]}
        for c, values in accuracy.items()
        for a in values
    ]


def test_the_trials_pick_the_best_or_the_smallest_within_the_spread():
    clear = judge(rows({0: [0.80, 0.81], 1: [0.90, 0.91]}))
    assert (clear.staleness, clear.trials[1][0]) == (1, pytest.approx(0.905))
    assert judge(rows({0: [0.88, 0.91], 2: [0.90, 0.91]})).staleness == 0
    assert judge(rows({0: [0.9], 2: [0.8]})).staleness == 0
    with pytest.raises(click.exceptions.Exit):
        judge([{"config": {"staleness": 1}, "trouble": "nothing fits", "accuracy": []}])


def test_a_smaller_dataset_is_costed_as_the_large_one():
    problem = paper_problem(0, 10, 10, 2)
    small = scaled([f"l{k}" for k in range(20)], problem, 15.0).problem(
        cycle_time_s=10.0, total_samples=4000, staleness=2, min_samples=7
    )
    large = allocate(problem, Exact())
    assert abs(allocate(small, Exact()).mean_epochs - large.mean_epochs) < 0.2


@pytest.mark.slow
def test_cross_validation_for_real(paper, monkeypatch):
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "1")
    extra = ("--cross-validate", "--cycles", "2", "--seeds", "1", "--staleness-up-to", "1", "--json")
    # In a process of its own: Ray leaves files open in the one that starts it.
    done = process("recommend", paper, *LIMITS, *extra)
    assert done.returncode == 0, done.stderr
    trial = json.loads(done.stdout)["cross_validation"]
    assert str(trial["staleness"]) in trial["trials"]
    assert all(0.5 < mean < 1 for mean, _ in trial["trials"].values())
