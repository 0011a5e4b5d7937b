"""`flwr-mel simulate`: what cannot work is refused before anything starts."""

import os

import numpy as np
import pytest
from mel_simulation.sweep.cells import profiles
from typer.testing import CliRunner

from flwr_mel.paper import paper_fleet
from flwr_mel.tools.cli import app
from flwr_mel.tools.fleetfile import Fleet, write_fleet
from tests.simulation.tools import cli, finished
from tests.tools.commands import process

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning"),
    pytest.mark.usefixtures("no_engine"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--scheme", "hu-sync"], 3, "5 of 20 learners cannot do one epoch"),
        (["--cycle-time", "0.5"], 3, "The smallest --cycle-time that works"),
        (["--energy", "1", "--energy-spread", "0.1"], 3, "The largest --samples that fits:"),
        (["--samples", "5000"], 2, "samples must be at most the 4000 training samples, got 5000"),
        (["--min-samples", "500"], 3, "lower --min-samples"),
        (["--learners", "0"], 2, "--learners must be an integer from 1"),
        (["--cycles", "x"], 2, "--cycles"),
        (["--fleet", "nosuch.toml"], 4, "No such file"),
        (["--no-such-option"], 2, "No such option"),
    ],
)
def test_what_cannot_work_fails_before_anything_starts(arguments, code, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in cli(*arguments, code=code)
    assert not (tmp_path / "runs").exists()


def test_run_directories_that_will_not_do(tmp_path):
    (tmp_path / "file").write_text("")
    assert "A file exists where a directory is needed" in cli("--run-dir", tmp_path / "file", code=4)
    run = finished(tmp_path / "old")
    before = {p.name: p.read_bytes() for p in run.path.rglob("*.*")}
    assert "which holds a run" in cli("--run-dir", run.path, code=2)
    assert "has no config.json" in cli("--run-dir", tmp_path / "empty", "--resume", code=2)
    other = ("--run-dir", run.path, "--resume", "--seed", 1)
    assert "--seed must be 0 as in the run so far" in cli(*other, code=2)
    assert before == {p.name: p.read_bytes() for p in run.path.rglob("*.*")}
    for file in run.checkpoints.glob("round-*"):
        file.unlink()
    assert "must be a whole run with its checkpoints" in cli("--run-dir", run.path, "--resume", code=2)
    assert len(run.records()) == 3


def test_options_that_would_do_nothing_are_refused(tmp_path):
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(write_fleet(Fleet(paper_fleet(np.random.default_rng(5), 6))))
    assert "--learners must be 6, as many as" in cli("--fleet", fleet, "--learners", 7, code=2)
    assert "--energy must be left out with a fleet" in cli("--fleet", fleet, "--energy", 20, code=2)


def test_choices_are_offered_for_completion():
    env = {
        "_FLWR_MEL_COMPLETE": "complete_bash",
        "COMP_WORDS": "flwr-mel simulate --scheme ha",
        "COMP_CWORD": "3",
    }
    said = CliRunner().invoke(app, [], env=env, prog_name="flwr-mel").output.split()
    assert said == ["ha-asyn", "ha-sync"]
    env |= {"COMP_WORDS": "flwr-mel sweep ", "COMP_CWORD": "2"}
    assert "headline" in CliRunner().invoke(app, [], env=env, prog_name="flwr-mel").output.split()


def test_help_of_sweep_names_the_profiles():
    said = CliRunner().invoke(app, ["sweep", "--help"]).output
    for name in ("quick", "headline", "paper", "rate"):
        assert f"{name}: " in said
    for path in profiles().values():
        assert path.read_text().splitlines()[0].endswith("."), path  # the first line is all that is shown


@pytest.mark.parametrize("command", ["sweep", "arena"])
@pytest.mark.parametrize("content", [None, "dear diary\n", '{"cycle": 1}\n'])
def test_results_that_are_none(command, content, tmp_path):
    file = tmp_path / "notes.txt"
    if content is not None:
        file.write_text(content)
    given = [command, "quick", "--from", str(file), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2
    assert f"--from must be a file like {'results' if command == 'sweep' else 'arena'}.jsonl" in done.output


@pytest.mark.parametrize(("command", "code"), [("sweep", 4), ("arena", 4)])
def test_bad_input_leaves_stdout_empty(command, code):
    done = CliRunner().invoke(app, [command, "nope"])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (code, "", 1)


def test_commands_whose_packages_are_broken_are_named_and_leave_the_others_alone(tmp_path):
    blocked = tmp_path / "mel_simulation"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("raise ImportError(\"No module named 'torch'\")")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for name in ("simulate", "sweep"):
        done = process(name, "--seed", "1", env=env)
        assert done.returncode == 4, done.stderr
        assert f"{name} needs more packages (No module named 'torch')" in done.stderr
        assert done.stderr.endswith("pip install . ./simulation\n")
    done = process("--help", env=env)
    assert done.returncode == 0
    assert "Not available" in done.stdout
