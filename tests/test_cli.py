"""The command line: exit codes, stdout against stderr, and answers equal to the library's."""

import csv
import io
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import flwr_mel
from flwr_mel import Workload, allocate, paper_fleet
from flwr_mel.learners import Fleet, Measured, read_fleet, write_fleet, write_fleet_csv
from flwr_mel.solvers import Exact

with warnings.catch_warnings():
    # typer uses names that newer releases of click announce to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from flwr_mel.cli import app
    from flwr_mel.cli.answers import round_up
    from flwr_mel.cli.tables import bar

pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")

LIMITS = ("--cycle-time", "10", "--samples", "60000")


def run(*args: object, code: int = 0, **kwargs):
    result = CliRunner().invoke(app, [str(a) for a in args], **kwargs)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def ask(*args: object, code: int = 0) -> dict:
    """Run with --json; stdout must be JSON and nothing else, without NaN or Infinity."""

    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(run(*args, "--json", code=code).stdout, parse_constant=refuse)


@pytest.fixture
def paper(tmp_path) -> Path:
    path = tmp_path / "fleet.toml"
    path.write_text(run("fleet", "--paper", "--seed", 0).stdout)
    return path


@pytest.fixture
def straggling(tmp_path) -> Path:
    fast = [Measured(1e-4, 0, 1, 0, 0, 0, name=f"fast-{k}") for k in range(4)]
    path = tmp_path / "straggling.toml"
    path.write_text(write_fleet([*fast, Measured(4.0, 0, 1, 0, 0, 0, name="slow [red]")]))
    return path


# Real processes


def process(*args: object, program=("-m", "flwr_mel.cli"), **kwargs):
    command = [sys.executable, *program] if program else [str(Path(sys.executable).with_name("flwr-mel"))]
    return shell([*command, *map(str, args)], **kwargs)


def shell(command, **kwargs):
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, **kwargs)


def test_the_installed_program_writes_a_fleet_and_plans_it(tmp_path):
    fleet = process("fleet", "--paper", "--seed", 0, program=())
    assert (fleet.returncode, fleet.stderr) == (0, "")
    (tmp_path / "fleet.toml").write_text(fleet.stdout)
    plan = process("plan", "fleet.toml", *LIMITS, "--staleness", 2, program=(), cwd=tmp_path)
    assert (plan.returncode, plan.stderr) == (0, "")
    assert "\x1b" not in plan.stdout
    assert max(map(len, plan.stdout.splitlines())) <= 100
    for word in ("laptop-00", "microcontroller-19", "Optimal", "tau*/floor", "2.756 / 2 = 1.38"):
        assert word in plan.stdout
    assert process("plan", "-", *LIMITS, input=fleet.stdout).returncode == 0


def test_exit_codes_and_streams_of_real_processes(tmp_path):
    (tmp_path / "fleet.csv").write_text(write_fleet_csv(paper_fleet(np.random.default_rng(0))))
    bad = process("plan", "fleet.csv", "--cycle-time", -1, "--samples", 60000, cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.count("\n") == 1
    short = process("plan", "fleet.csv", "--cycle-time", 3, "--samples", 60000, cwd=tmp_path)
    assert (short.returncode, short.stdout) == (3, "")
    assert "smallest --cycle-time" in short.stderr


def test_a_reader_that_leaves_early_is_no_error(paper):
    program = f"'{sys.executable}' -m flwr_mel.cli plan '{paper}' --cycle-time 10 --samples 60000"
    done = shell(["sh", "-c", f"{program} --json | head -c 1"])
    assert (done.stdout, done.stderr) == ("{", "")


# Plans


def test_json_has_the_exact_solution_and_keeps_every_limit(paper):
    got = ask("plan", paper, *LIMITS, "--staleness", 2, "--min-samples", 100)
    problem = read_fleet(paper).problem(cycle_time_s=10, total_samples=60_000, staleness=2, min_samples=100)
    want = allocate(problem, Exact())
    assert [row["epochs"] for row in got["learners"]] == want.epochs.tolist()
    assert (got["status"], got["objective"], got["bound"]) == ("optimal", want.mean_epochs, want.bound)
    assert sum(row["samples"] for row in got["learners"]) == 60_000
    for row in got["learners"]:
        assert row["time_s"] <= 10
        assert row["energy_j"] <= row["energy_limit_j"]
        assert row["limit"] in ("time", "energy", "data")
    assert got["relaxed_synchronous"]["ratio"] == pytest.approx(1.378, abs=1e-3)


def test_a_csv_fleet_has_the_plan_of_the_toml_fleet(paper, tmp_path):
    (tmp_path / "fleet.csv").write_text(run("fleet", paper, "--csv").stdout)
    plans = [ask("plan", path, *LIMITS) for path in (paper, tmp_path / "fleet.csv")]
    assert plans[0]["learners"] == plans[1]["learners"]


def test_csv_output_has_the_rows_of_the_json_output(paper):
    rows = list(csv.DictReader(io.StringIO(run("plan", paper, *LIMITS, "--csv").stdout)))
    learners = ask("plan", paper, *LIMITS)["learners"]
    assert [(r["name"], int(r["epochs"]), float(r["time_s"])) for r in rows] == [
        (r["name"], r["epochs"], r["time_s"]) for r in learners
    ]


def test_energy_mode_and_layers_replace_the_files(paper):
    got = ask("plan", paper, *LIMITS, "--energy", 20, "--mode", "fl", "--layers", "784,100,10")
    assert got["mode"] == "fl"
    assert {row["energy_limit_j"] for row in got["learners"]} == {20.0}
    problem = read_fleet(paper).problem(
        cycle_time_s=10,
        total_samples=60_000,
        staleness=1,
        energy_limit_j=20,
        workload=Workload.mlp([784, 100, 10], ship_data=False),
    )
    assert got["objective"] == allocate(problem, Exact()).mean_epochs


def test_measured_costs_do_not_follow_the_mode_and_the_plan_says_so(straggling):
    result = run("plan", straggling, "--cycle-time", 10, "--samples", 6000, "--mode", "fl", "--json")
    assert "were measured" in result.stderr
    json.loads(result.stdout)


@pytest.mark.parametrize("solver", ["exact", "suggest-improve", "equal"])
def test_every_solver_plans(paper, solver):
    got = ask("plan", paper, *LIMITS, "--solver", solver)
    assert got["solver"] == solver
    assert got["status"] == ("partial" if solver == "equal" else got["status"])
    assert 0 < got["objective"] <= got["bound"]


def test_left_out_learners_are_listed_with_their_reason(paper):
    result = run("plan", paper, *LIMITS, "--min-samples", 2800, "--staleness", 2)
    text = " ".join(result.stdout.split())
    assert "Left out, 3: laptop-00, laptop-12, laptop-16" in text
    assert "does not fit into the energy limit" in text


def test_stragglers_are_pointed_out_and_left_out_on_demand(straggling):
    args = ("plan", straggling, "--cycle-time", 10, "--samples", 6000)
    text = " ".join(run(*args).stdout.split())
    assert "Stragglers: Without slow [red] the others could do 226 more epochs: 240 in sum" in text
    hint = ask(*args)["stragglers"]
    assert hint == {"names": ["slow [red]"], "sum_epochs": 240, "gain": 226}
    better = ask(*args, "--exclude", "optimal")
    assert better["sum_epochs"] == 240
    assert better["learners"][-1]["left_out"] == "without it the others can do more epochs in sum"
    assert better["stragglers"] is None


def test_compare_shows_four_schemes_and_the_bound(paper):
    text = run("plan", paper, *LIMITS, "--staleness", 2, "--compare").stdout
    for word in ("HA-Asyn c=2", "HA-Sync", "HU-Asyn c=2", "HU-Sync", "bound", "tau*/floor"):
        assert word in text
    got = ask("plan", paper, *LIMITS, "--staleness", 2, "--compare")
    schemes = {s["scheme"]: s for s in got["schemes"]}
    assert list(schemes) == ["ha-asyn", "ha-sync", "hu-asyn", "hu-sync"]
    assert schemes["hu-sync"]["status"] == "infeasible"
    assert "laptop-00" in schemes["hu-sync"]["diagnosis"]["text"]
    assert all(s["objective"] <= got["bound"] for s in schemes.values())
    rows = list(csv.DictReader(io.StringIO(run("plan", paper, *LIMITS, "--compare", "--csv").stdout)))
    assert len(rows) == 4


def test_compare_goes_on_while_one_scheme_has_an_answer(paper):
    args = ("plan", paper, "--cycle-time", 3, "--samples", 60000, "--compare")
    got = ask(*args)
    assert got["bound"] is None
    assert [s["status"] for s in got["schemes"]] == ["infeasible", "infeasible", "partial", "infeasible"]
    assert "smallest --cycle-time that works" in " ".join(run(*args).stdout.split())
    run("plan", paper, "--cycle-time", 0.01, "--samples", 60000, "--compare", code=3)


def test_the_inverse_questions_agree_with_the_library(paper):
    problem = read_fleet(paper).problem(cycle_time_s=30, total_samples=60_000)
    fast = ask("plan", paper, "--samples", 60000, "--fastest", 3)
    assert fast["makespan_s"] == flwr_mel.fastest(problem, 3).cycle_time_s
    green = ask("plan", paper, "--samples", 60000, "--cycle-time", 30, "--greenest", 3)
    want = flwr_mel.greenest(problem, 3)
    assert green["total_energy_j"] == want.total_energy_j
    assert [row["samples"] for row in green["learners"]] == want.samples.tolist()
    text = run("plan", paper, "--samples", 60000, "--fastest", 3).stdout
    assert "Shortest cycle for 3 epochs" in text
    run("plan", paper, "--samples", 60000, "--fastest", 300, code=3)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_tables_fit_their_width(paper, width):
    for args in ((), ("--compare",), ("--min-samples", 2800)):
        lines = run("plan", paper, *LIMITS, *args, env={"COLUMNS": str(width)}).stdout.splitlines()
        assert max(map(len, lines)) <= width
    if width >= 80:
        assert "microcontroller-03" in "\n".join(lines)


def test_large_fleets_are_shown_by_their_ends(tmp_path):
    path = tmp_path / "large.csv"
    path.write_text(run("fleet", "--paper", "--learners", 1000, "--csv").stdout)
    args = ("plan", path, "--cycle-time", 10, "--samples", 3_000_000)
    text = run(*args).stdout
    assert "980 more" in text
    assert "laptop-500" not in text
    assert "laptop-500" in run(*args, "--all").stdout
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
    assert run(*args, "--csv", code=3).stdout == ""


def test_rounding_up_never_goes_below():
    for x in np.random.default_rng(0).lognormal(0, 20, 2000):
        assert x <= float(round_up(float(x))) <= x * (1 + 1e-5)


# Bad input

BAD = {
    "--cycle-time": ("--cycle-time", "-1"),
    "--cycle-time must be a finite number": ("--cycle-time", "nan"),
    "--energy must be a finite number > 0": ("--energy", "0"),
    "'1.5' is not a valid integer": ("--staleness", "1.5"),
    "--staleness must be an integer from 0": ("--staleness", "-1"),
    "--samples must be at least": ("--samples", "3"),
    "--samples must be an integer from 1 to 2**40": ("--samples", "9" * 30),
    "--min-samples must be an integer from 1": ("--min-samples", "0"),
    "--max-epochs must be an integer from 1": ("--max-epochs", "0"),
    "'magic' is not one of 'exact', 'suggest-improve', 'equal'": ("--solver", "magic"),
    "'xl' is not one of 'pl', 'fl'": ("--mode", "xl"),
    "--layers must be layer sizes": ("--layers", "784,x"),
    "--layers[1] must be an integer from 1": ("--layers", "784,0"),
    "--json and --csv exclude each other": ("--json", "--csv"),
    "--greenest and --compare exclude each other": ("--compare", "--greenest", "3"),
    "--fastest and --greenest exclude each other": ("--fastest", "3", "--greenest", "3"),
    "--staleness must be left out with --fastest": ("--fastest", "3", "--staleness", "1"),
    "--greenest must be an integer from 1": ("--greenest", "0"),
    "--exclude optimal must go with --solver exact": ("--solver", "equal", "--exclude", "optimal"),
    "--handout must be left out with --solver equal": ("--solver", "equal", "--handout", "even"),
    "No such option '--sampels'": ("--sampels", "3"),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_options_are_one_line_and_exit_code_2(paper, message):
    result = run("plan", paper, *LIMITS, *BAD[message], code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr.replace("“", "'").replace("”", "'")


def test_missing_parts_are_named(paper):
    assert "--samples" in run("plan", paper, "--cycle-time", 3, code=2).stderr
    assert "--cycle-time must be given" in run("plan", paper, "--samples", 30, code=2).stderr
    assert "FLEET" in run("plan", code=2).stderr
    assert "No such command" in run("fly", code=2).stderr
    assert "either --paper or a fleet file" in run("fleet", code=2).stderr
    assert "--learners must be" in run("fleet", "--paper", "--learners", 0, code=2).stderr
    assert "--spread must be" in run("fleet", "--paper", "--spread", 20, code=2).stderr
    assert "--energy must be" in run("fleet", "--paper", "--energy", -1, code=2).stderr


def test_broken_files_are_one_line_with_line_and_field(tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text('[[device]]\nname = "pi-2"\ncpu_hz = -1.4e9\nrate_bps = 1e6\ntx_power_w = 0.2\n')
    for command in (("plan", path, *LIMITS), ("fleet", path)):
        result = run(*command, code=2)
        assert 'broken.toml, line 3, device "pi-2": cpu_hz must be a finite number > 0' in result.stderr
        assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert "no such file" in run("plan", tmp_path / "none.toml", *LIMITS, code=2).stderr


def test_a_bug_is_reported_without_a_traceback(paper, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("oh\nno")

    monkeypatch.setattr("flwr_mel.cli.replies.allocate", broken)
    result = run("plan", paper, *LIMITS, code=1)
    assert "internal error, RuntimeError: oh no." in result.stderr


# The rest


def test_help_teaches():
    top = run("--help").stdout
    assert run().stdout.strip() == top.strip()
    for word in ("plan", "fleet", "Exit codes", "flwr-mel fleet --paper --seed 0 > fleet.toml"):
        assert word in top
    for command in ("plan", "fleet"):
        assert f"flwr-mel {command}" in run(command, "--help").stdout.split("Examples:")[1]
    assert run("--version").stdout == f"flwr-mel {flwr_mel.__version__}\n"


def test_the_papers_fleet_is_reproducible_and_complete():
    one, two = (run("fleet", "--paper", "--seed", 3).stdout for _ in range(2))
    assert one == two != run("fleet", "--paper", "--seed", 4).stdout
    assert one.count("[[device]]") == 20


def test_csv_output_tells_what_csv_cannot_hold(tmp_path):
    path = tmp_path / "fl.toml"
    path.write_text(write_fleet(Fleet(paper_fleet(np.random.default_rng(0)), Workload.mlp([9, 2]))))
    assert "CSV holds no workload" in run("fleet", path, "--csv").stderr


@pytest.mark.parametrize("ascii_only", [False, True])
def test_bars_have_their_width_and_only_full_ones_look_full(ascii_only):
    for width in (4, 8, 16):
        for share in (0, 1e-9, 0.2, 0.5, 0.999, 1.0):
            drawn = bar(share, width, ascii_only=ascii_only)
            assert len(drawn) == width
            assert (drawn in ("█" * width, "#" * width)) == (share == 1.0)
