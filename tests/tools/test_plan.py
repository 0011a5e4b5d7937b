"""`flwr-mel plan`: answers equal to the library's, tables that fit, what the diagnosis offers."""

import json
import re

import pytest

import flwr_mel
from flwr_mel import Workload, allocate
from flwr_mel.paper import PAPER_LAYERS
from flwr_mel.solvers import Exact
from flwr_mel.tools.fleetfile import read_fleet
from tests.tools.commands import LIMITS, ask, refused, run


def test_json_has_the_exact_solution_and_keeps_every_limit(paper):
    got = ask("plan", paper, *LIMITS, "--staleness", 2, "--min-samples", 100)
    problem = read_fleet(paper).problem(cycle_time_s=10, total_samples=60_000, staleness=2, min_samples=100)
    want = allocate(problem, Exact())
    assert [row["epochs"] for row in got["learners"]] == want.epochs.tolist()
    assert (got["status"], got["value"], got["bound"]) == ("optimal", want.mean_epochs, want.bound)
    assert sum(row["samples"] for row in got["learners"]) == 60_000
    for row in got["learners"]:
        assert row["time_s"] <= 10
        assert row["energy_j"] <= row["energy_limit_j"]
        assert row["limit"] in ("time", "energy", "data")


def test_energy_and_mode_replace_the_files(paper):
    got = ask("plan", paper, *LIMITS, "--energy", 20, "--mode", "fl")
    assert got["mode"] == "fl"
    assert {row["energy_limit_j"] for row in got["learners"]} == {20.0}
    problem = read_fleet(paper).problem(
        cycle_time_s=10,
        total_samples=60_000,
        staleness=2,
        min_samples=100,
        energy_limit_j=20,
        workload=Workload.mlp(PAPER_LAYERS, ship_data=False),
    )
    assert got["value"] == allocate(problem, Exact()).mean_epochs


def test_measured_costs_do_not_follow_the_mode_and_the_plan_says_so(straggling):
    result = run("plan", straggling, "--cycle-time", 10, "--samples", 6000, "--mode", "fl", "--json")
    assert "the costs of 5 learners were measured" in result.stderr
    json.loads(result.stdout)


def test_skipped_learners_are_listed_with_their_reason(paper):
    result = run("plan", paper, *LIMITS, "--min-samples", 2800, "--staleness", 2)
    text = " ".join(result.stdout.split())
    assert "Skipped, 5: laptop-00, laptop-04, laptop-08, laptop-12, laptop-16" in text
    assert "does not fit into the energy limit" in text


def test_stragglers_are_left_out_on_demand(straggling):
    args = ("plan", straggling, "--cycle-time", 10, "--samples", 6000, "--staleness", 1, "--min-samples", 1)
    assert sum(row["epochs"] for row in ask(*args)["learners"]) == 240 - 226
    better = ask(*args, "--exclude", "optimal")
    assert sum(row["epochs"] for row in better["learners"]) == 240
    assert better["learners"][-1]["skipped"] == "without it the others can do more epochs in total"


def test_compare_shows_four_schemes_and_the_bound(paper):
    text = run("plan", paper, *LIMITS, "--staleness", 2, "--compare").stdout
    for word in ("ha-asyn", "ha-sync", "hu-asyn", "hu-sync", "bound"):
        assert word in text
    got = ask("plan", paper, *LIMITS, "--staleness", 2, "--compare")
    schemes = {s["scheme"]: s for s in got["schemes"]}
    assert list(schemes) == ["ha-asyn", "ha-sync", "hu-asyn", "hu-sync"]
    assert schemes["hu-sync"]["status"] == "infeasible"
    assert "laptop-00" in schemes["hu-sync"]["diagnosis"]
    assert all(s["value"] <= got["bound"] for s in schemes.values())


def test_compare_fits_into_60_columns_and_samples_may_have_commas(paper):
    limits = ("--cycle-time", 10, "--samples", "60,000", "--compare")
    text = run("plan", paper, *limits, env={"COLUMNS": "60"}).stdout
    head = next(line for line in text.splitlines() if "ha-asyn" in line)
    assert head.split() == ["ha-asyn", "ha-sync", "hu-asyn", "hu-sync"]
    assert "\u2026" not in text
    assert max(map(len, text.splitlines())) <= 60
    assert "'6x' is not a valid integer" in refused("plan", paper, "--cycle-time", 10, "--samples", "6x")


def test_compare_goes_on_while_one_scheme_has_an_answer(paper):
    args = ("plan", paper, "--cycle-time", 3, "--samples", 60000, "--compare")
    got = ask(*args)
    assert got["bound"] is None
    assert [s["status"] for s in got["schemes"]] == ["infeasible", "infeasible", "partial", "infeasible"]
    assert "smallest --cycle-time that works" in " ".join(run(*args).stdout.split())
    run("plan", paper, "--cycle-time", 0.01, "--samples", 60000, "--compare", code=3)


def test_the_inverse_questions_agree_with_the_library(paper):
    problem = read_fleet(paper).problem(cycle_time_s=30, total_samples=60_000, min_samples=100)
    fast = ask("plan", paper, "--samples", 60000, "--fastest", 3)
    assert fast["makespan_s"] == flwr_mel.fastest(problem, 3).cycle_time_s
    green = ask("plan", paper, "--samples", 60000, "--cycle-time", 30, "--greenest", 3)
    want = flwr_mel.greenest(problem, 3)
    assert green["total_energy_j"] == want.total_energy_j
    assert [row["samples"] for row in green["learners"]] == want.samples.tolist()
    text = run("plan", paper, "--samples", 60000, "--fastest", 3).stdout
    assert "Shortest cycle with 3 epochs" in text
    run("plan", paper, "--samples", 60000, "--fastest", 300, code=3)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_fit_their_width(paper, width):
    for args in ((), ("--compare",), ("--min-samples", 2800)):
        lines = run("plan", paper, *LIMITS, *args, env={"COLUMNS": str(width)}).stdout.splitlines()
        assert max(map(len, lines)) <= width
    if width >= 80:
        assert "microcontroller-03" in "\n".join(lines)


def test_large_fleets_are_shown_by_their_ends(tmp_path):
    path = tmp_path / "large.toml"
    path.write_text(run("fleet", "--paper", "--learners", 1000).stdout)
    args = ("plan", path, "--cycle-time", 10, "--samples", 3_000_000)
    text = run(*args).stdout
    assert "980 more" in text
    assert "laptop-500" not in text
    assert len(ask(*args)["learners"]) == 1000


# Infeasible


def test_what_the_diagnosis_offers_works(paper):
    args = ("plan", paper, "--cycle-time", 3, "--samples", 60000)
    text = run(*args, code=3).stderr
    time_s = re.search(r"smallest --cycle-time that works: (\S+) s", text)[1]
    samples = re.search(r"largest --samples that fits: (\d+)\.", text)[1]
    run("plan", paper, "--cycle-time", time_s, "--samples", 60000)
    run("plan", paper, "--cycle-time", 3, "--samples", samples)
    run("plan", paper, "--cycle-time", 3, "--samples", int(samples) + 1, code=3)
    got = ask(*args, code=3)
    assert got["status"] == "infeasible"
    assert got["diagnosis"]["largest_total_samples"] == int(samples)
    assert got["diagnosis"]["smallest_cycle_time_s"] <= float(time_s)


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        (("--cycle-time", 1000, "--energy", 5000, "--max-epochs", 2), {"max_epochs"}),
        (
            ("--cycle-time", 20, "--energy", 5000, "--staleness", 0, "--handout", "even"),
            {"time", "staleness"},
        ),
        (("--cycle-time", 100000, "--energy", 10), {"energy"}),
    ],
)
def test_the_cap_that_binds_is_named(paper, options, limits):
    args = ("plan", paper, "--samples", 60000, *options)
    assert {row["limit"] for row in ask(*args)["learners"]} == limits
    assert all(word in run(*args).stdout for word in limits)


def test_the_best_cycle_time_is_that_of_the_library(paper):
    problem = read_fleet(paper).problem(cycle_time_s=1.0, total_samples=100)
    for f, least in ((0.0, 16), (0.25, 40)):
        args = ("--frugality", f, "--min-samples", least) if f else ()
        got = ask("plan", paper, "--cycle-time", "best", *args)
        want = flwr_mel.best_round(
            problem.coefficients,
            problem.energy_limit_j,
            min_samples=least,
            objective=flwr_mel.Rate(frugality=f),
        )
        assert got["cycle_time_s"] == got["problem"]["cycle_time_s"] == want.cycle_time_s
        assert [row["samples"] for row in got["learners"]] == want.solution.samples.tolist()
        assert (got["value"], got["bound"]) == (want.solution.value, want.solution.bound)
        assert got["value"] <= got["bound"] <= got["value"] * (1 + 2 * got["resolution"])
        assert got["frugality"] == f
    power = ask("plan", paper, "--cycle-time", "best", "--energy-per", 10)
    assert all(
        row["energy_j"] <= limit * power["cycle_time_s"] / 10
        for row, limit in zip(power["learners"], problem.energy_limit_j, strict=True)
    )


def test_the_best_cycle_time_as_a_table(paper):
    args = ("plan", paper, "--cycle-time", "best")
    text = run(*args).stdout
    for words in ("cycle time  0.817", "The search ends at 0.1%", "task size", "FedAdam"):
        assert words in text
    assert max(map(len, run(*args, env={"COLUMNS": "80"}).stdout.splitlines())) <= 80
    assert "No --cycle-time is long enough" in run(*args, "--energy", 0.001, code=3).stderr


BAD = {
    "--cycle-time must be a finite number > 0, got -1": ("--cycle-time", "-1"),
    "--cycle-time must be seconds or best, got 'soon'": ("--cycle-time", "soon"),
    "--cycle-time must be seconds with --compare, got 'best'": ("--cycle-time", "best", "--compare"),
    "--samples must be left out with --cycle-time best": ("--cycle-time", "best"),
    "--frugality must be left out without --cycle-time best": ("--frugality", "0.25"),
    "--samples must be at least --min-samples = 5": ("--samples", "3", "--min-samples", "5"),
    "'xl' is not one of 'pl', 'fl'": ("--mode", "xl"),
    "--greenest and --compare exclude each other": ("--compare", "--greenest", "3"),
    "--fastest and --greenest exclude each other": ("--fastest", "3", "--greenest", "3"),
    "--cycle-time must be left out with --fastest": ("--fastest", "3"),
    "--staleness must be left out with --greenest": ("--greenest", "3", "--staleness", "1"),
    "--exclude must be left out with --compare": ("--compare", "--exclude", "optimal"),
    "No such option '--sampels'": ("--sampels", "3"),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_options_are_one_line_and_exit_code_2(paper, message):
    told = refused("plan", paper, *LIMITS, *BAD[message])
    assert message in told.replace("\u201c", "'").replace("\u201d", "'")


def test_missing_parts_are_named(paper):
    assert "--samples must be given" in refused("plan", paper, "--cycle-time", 3)
    best = ("plan", paper, "--cycle-time", "best")
    assert "--frugality must be from 0 (time only) to below 1" in refused(*best, "--frugality", 1)
    assert "--staleness must be left out with --cycle-time best" in refused(*best, "--staleness", 1)
    assert "--cycle-time must be given" in refused("plan", paper, "--samples", 30)
    assert "FLEET" in refused("plan")
