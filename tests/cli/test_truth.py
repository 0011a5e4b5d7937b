"""What `flwr-mel plan` prints of an objective is about that objective, and limits are named truly."""

import csv
import io
import json
import warnings
from dataclasses import replace

import pytest

from flwr_mel.fleets import read_fleet
from flwr_mel.solvers import Exact

with warnings.catch_warnings():
    # typer uses names that newer releases of click announce to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from flwr_mel.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")
LIMITS = ("--cycle-time", "10", "--samples", "60000", "--energy", "10")


def run(*args) -> str:
    result = CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "120", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "fleet.toml"
    path.write_text(run("fleet", "--paper"))
    return path


def facts(text: str) -> dict[str, str]:
    """The footer's names and values."""
    rows = [line.split("  ", 1) for line in text.splitlines() if "  " in line]
    return {name.strip(): " ".join(value.split()) for name, value in rows}


def test_the_progress_objective_shows_s_with_its_own_bound(fleet):
    args = ("plan", fleet, *LIMITS, "--staleness", 2, "--objective", "progress")
    got = json.loads(run(*args, "--json"))
    assert got["objective"] == "progress"
    squares = sum(row["epochs"] * row["samples"] ** 2 for row in got["learners"])
    assert got["value"] == got["progress"] == squares / 60_000
    assert got["bound"] >= got["value"] > 1000
    assert got["gap"] == got["bound"] / got["value"] - 1
    assert got["mean_epochs"] == sum(row["epochs"] for row in got["learners"]) / 20
    said = facts(run(*args))
    assert said["progress S"].startswith(f"{got['value']:,.0f}")
    assert said["bound"].startswith(f"{got['bound']:,.0f}, no gap. Optimal")
    assert said["mean epochs"].startswith(f"{got['mean_epochs']:.4g}")


def test_the_epochs_objective_shows_no_other(fleet):
    args = ("plan", fleet, *LIMITS, "--staleness", 2)
    got, text = json.loads(run(*args, "--json")), run(*args)
    assert (got["objective"], got["value"]) == ("epochs", got["mean_epochs"])
    assert "progress" not in text
    assert facts(text)["bound"].startswith(f"{got['bound']:.4g}")


def test_schemes_are_compared_by_the_objective_that_was_asked_for(fleet):
    args = ("plan", fleet, "--cycle-time", 20, "--samples", 60000, "--compare", "--objective", "progress")
    got = json.loads(run(*args, "--json"))
    assert got["objective"] == "progress"
    best = max(s["progress"] for s in got["schemes"])
    assert best <= got["bound"] < 1.1 * best
    text = run(*args)
    assert "progress S" in text
    assert "mean epochs" not in text
    assert f"{got['schemes'][0]['progress']:,.0f}" in text
    rows = list(csv.DictReader(io.StringIO(run(*args, "--csv"))))
    assert [row["objective"] for row in rows] == ["progress", "progress", "epochs", "epochs"]


@pytest.mark.parametrize(
    ("options", "want"),
    [
        (("--cycle-time", 1000, "--energy", 5000, "--max-epochs", 2), {"max_epochs"}),
        (
            ("--cycle-time", 20, "--energy", 5000, "--staleness", 0, "--solver", "equal"),
            {"time", "staleness"},
        ),
        (("--cycle-time", 100000, "--energy", 10), {"energy"}),
    ],
)
def test_plan_names_the_cap_that_binds(fleet, options, want):
    got = json.loads(run("plan", fleet, "--samples", 60000, *options, "--json"))
    assert {row["limit"] for row in got["learners"]} == want
    text = run("plan", fleet, "--samples", 60000, *options)
    assert all(word in text for word in want)


def test_records_and_plans_name_the_same_limits(fleet, tmp_path):
    from flwr_mel.clientapp import describe
    from flwr_mel.orchestrator import Orchestrator, Settings

    ours = read_fleet(fleet)
    settings = Settings(
        cycle_time_s=20.0,
        total_samples=60_000,
        staleness=2,
        workload=replace(ours.job(), ship_data=False),
        solver=Exact(),
        max_epochs=2,
    )
    brain = Orchestrator(settings)
    nodes = [f"{k:02}" for k in range(20)]
    for node, device in zip(nodes, ours.learners, strict=True):
        brain.hear(node, describe(device))
    brain.plan(1, nodes)
    args = (
        "plan",
        fleet,
        "--cycle-time",
        20,
        "--samples",
        60000,
        "--staleness",
        2,
        "--max-epochs",
        2,
        "--mode",
        "fl",
    )
    rows = json.loads(run(*args, "--json"))["learners"]
    assert brain.record is not None
    got = {r.learner: r.limited_by for r in brain.record.learners}
    assert got == {row["name"]: row["limit"] for row in rows}
    assert set(got.values()) >= {"max_epochs"}
