"""The commands as real processes, their help, `flwr-mel fleet`, and bars."""

import numpy as np
import pytest

import flwr_mel
from flwr_mel import Workload, paper_fleet
from flwr_mel.cli.drawing import bar
from flwr_mel.fleets import Fleet, write_fleet, write_fleet_csv
from tests.cli.tools import LIMITS, process, run


def test_the_installed_program_writes_a_fleet_and_plans_it(tmp_path):
    fleet = process("fleet", "--paper", "--seed", 0, installed=True)
    assert (fleet.returncode, fleet.stderr) == (0, "")
    (tmp_path / "fleet.toml").write_text(fleet.stdout)
    plan = process("plan", "fleet.toml", *LIMITS, "--staleness", 2, installed=True, cwd=tmp_path)
    assert (plan.returncode, plan.stderr) == (0, "")
    assert "\x1b" not in plan.stdout
    assert max(map(len, plan.stdout.splitlines())) <= 100
    for word in ("laptop-00", "microcontroller-19", "Optimal", "tau*/floor", "2.906 / 2 = 1.45"):
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
