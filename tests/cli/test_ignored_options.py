"""No option is silently ignored."""

import pytest

from flwr_mel.records import CycleRecord, JsonlWriter
from tests.cli.tools import LIMITS, refused, run

TRAIN = ("profile", "--train", "app.py:train", "--samples", 100)


@pytest.mark.parametrize(
    "option", [("--learners", 5), ("--seed", 0), ("--energy", 10), ("--energy-spread", 1), ("--cycle", 1)]
)
def test_a_fleet_file_has_its_own_learners(paper, option):
    assert f"{option[0]} must be left out with a fleet file" in refused("fleet", paper, *option)


@pytest.mark.parametrize(
    "option", [("--cycles", 4), ("--seeds", 2), ("--dataset", "mnist"), ("--data-dir", ".")]
)
def test_options_of_the_trials_need_trials(paper, option):
    assert f"{option[0]} must be left out without --cross-validate" in refused(
        "recommend", paper, *LIMITS, *option
    )


@pytest.mark.parametrize("option", ["--json", "--csv", "--compare"])
def test_all_rows_are_asked_for_where_some_would_be_left_out(paper, option):
    told = refused("plan", paper, *LIMITS, option, "--all")
    assert told.startswith(f"error: --all must be left out with {option}, which ")
    told = refused("recommend", paper, *LIMITS, "--json", "--all")
    assert told == "error: --all must be left out with --json, which has every candidate\n"


def test_the_fastest_cycle_has_no_cycle_time(paper):
    told = refused("plan", paper, *LIMITS, "--fastest", 2)
    assert "--cycle-time must be left out with --fastest, which looks for it" in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--link-ca", "ca.pem"), "--link-ca must be left out without --link"),
        (("--link-seconds", 2), "--link-seconds must be left out without --link"),
        (("--tx-watts", 2), "--tx-watts must be left out without --link"),
        (("--link", "x:1", "--tx-watts", 2), "--tx-watts must be left out without --model-bytes"),
        (("--force",), "--force must be left out without --out"),
        (("--meter", "none", "--watts", 3), "--watts must be left out with --meter none"),
        (("--meter", "rapl", "--watts", 3), "--watts must be left out with --meter rapl"),
        (("--meter", "declared", "--battery-wh", 3), "--battery-wh must be left out with --meter declared"),
    ],
)
def test_what_a_profile_would_not_use(options, words):
    assert words in refused(*TRAIN, *options)


@pytest.fixture
def a_run(tmp_path):
    write = JsonlWriter(tmp_path / "records.jsonl")
    for cycle in (1, 2):
        metrics = {"accuracy": 0.5, "loss": 1.0} if cycle == 2 else {}
        write(CycleRecord(cycle=cycle, cycle_time_s=10.0, metrics=metrics))
    return tmp_path


def test_an_unknown_metric_is_told(a_run):
    told = run("watch", a_run, "--once", "--metric", "acuracy", code=2).stderr
    assert told == "error: --metric must be one that the run has, got 'acuracy'. It has: accuracy, loss.\n"


def test_a_metric_that_does_not_come_is_told_when_the_run_ends(a_run):
    JsonlWriter(a_run / "records.jsonl")(CycleRecord(cycle=3, cycle_time_s=10.0, stopped="enough"))
    result = run("watch", a_run, "--metric", "f1", code=2)
    assert "error: --metric must be one that the run has, got 'f1'" in result.stderr


def test_lines_write_the_metric_that_was_asked_for(a_run):
    assert "accuracy 50.00 %, 0 epochs" in run("watch", a_run, "--once", "--metric", "accuracy").stdout
    assert "loss" in run("watch", a_run, "--once").stdout


@pytest.mark.parametrize("option", [("--metric", "loss"), ("-v",)])
def test_json_has_everything(a_run, option):
    assert "must be left out with --json" in refused("watch", a_run, "--once", "--json", *option)
