"""Bad input: one line, exit code 2, nothing on stdout."""

import pytest

from tests.cli.tools import LIMITS, refused, run

BAD = {
    "--cycle-time": ("--cycle-time", "-1"),
    "--cycle-time must be a finite number": ("--cycle-time", "nan"),
    "--energy must be a finite number > 0": ("--energy", "0"),
    "'1.5' is not a valid integer": ("--staleness", "1.5"),
    "--staleness must be an integer from 0": ("--staleness", "-1"),
    "--samples must be at least --min-samples": ("--samples", "3", "--min-samples", "5"),
    "--samples must be an integer from 1 to 2**40": ("--samples", "9" * 30),
    "--min-samples must be an integer from 1": ("--min-samples", "-1"),
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
    told = refused("plan", paper, *LIMITS, *BAD[message])
    assert message in told.replace("“", "'").replace("”", "'")


def test_missing_parts_are_named(paper):
    assert "--samples" in run("plan", paper, "--cycle-time", 3, code=2).stderr
    assert "--cycle-time must be given" in run("plan", paper, "--samples", 30, code=2).stderr
    assert "FLEET" in run("plan", code=2).stderr
    assert "No such command" in run("fly", code=2).stderr
    assert "either --paper or a fleet file" in run("fleet", code=2).stderr
    assert "--learners must be" in run("fleet", "--paper", "--learners", 0, code=2).stderr
    assert "--energy-spread must be" in run("fleet", "--paper", "--spread", 20, code=2).stderr
    assert "--energy must be" in run("fleet", "--paper", "--energy", -1, code=2).stderr


def test_broken_files_are_one_line_with_line_and_field(tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text('[[device]]\nname = "pi-2"\ncpu_hz = -1.4e9\nrate_bps = 1e6\ntx_power_w = 0.2\n')
    for command in (("plan", path, *LIMITS), ("fleet", path)):
        result = run(*command, code=2)
        assert 'broken.toml, line 3, device "pi-2": cpu_hz must be a finite number > 0' in result.stderr
        assert (result.stdout, result.stderr.count("\n")) == ("", 1)


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_a_bug_is_reported_without_a_traceback(paper, monkeypatch, kind):
    def broken(*args, **kwargs):
        raise kind("oh\nno")

    monkeypatch.setattr("flwr_mel.cli.plan.printing.allocate", broken)
    result = run("plan", paper, *LIMITS, code=1)
    assert f"internal error, {kind.__name__}: oh no." in result.stderr


def test_a_drawn_fleet_has_as_many_learners_as_a_file_may_have():
    draw = ("fleet", "--paper", "--learners")
    assert f"error: --learners must be at most 1,000,000, got {10**8}" in refused(*draw, 10**8)
    assert "error: --learners must be an integer from 1" in refused(*draw, 0)


def test_an_unknown_sweep_is_told_with_those_that_there_are():
    told = refused("sweep", "headlin", code=4)
    assert "headlin: the sweep must be a TOML file that can be read, got none: No such file" in told
    assert "Profiles: headline, objectives, paper" in told
