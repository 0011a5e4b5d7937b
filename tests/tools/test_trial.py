"""`flwr-mel try`: fleets and their prices; a small app on Flower's engine, twice; what cannot work."""

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from mel_simulation.scenario.phones import phone_fleet

from flwr_mel import Workload
from flwr_mel.devices import Device, Measured
from flwr_mel.paper import PaperFleet
from flwr_mel.tools.fleetfile import Fleet, Relative, read_fleet, write_fleet
from flwr_mel.tools.report import load_run
from flwr_mel.tools.trial.fleets import BUILT_IN, Reference, devices_of
from tests.tools.commands import command, process, refused, shell
from tests.waiting import PATIENCE_S, wait_for

TINY = Path(__file__).parent / "tiny"
REFERENCE = Reference(2e-3, 1000)
FLEET = """
[[device]]
name = "fast"
slowness = 1
power_w = 10
[[device]]
name = "slow"
slowness = 8
rate_bps = 1e6
tx_power_w = 0.5
energy_limit_j = 40
"""


@pytest.fixture
def fleet(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FLEET)
    return path


def test_prices_follow_from_the_reference(fleet):
    fast, slow = devices_of(str(fleet), 2, REFERENCE)
    assert (fast.name, fast.c2, fast.c0, fast.g2, fast.g0) == ("fast", 2e-3, 0.0, 2e-2, 0.0)
    # Down and up take 8 ms each, and sending costs energy.
    assert (slow.c2, slow.c0, slow.g2, slow.g0) == (0.016, 0.016, 0.0, pytest.approx(0.004))
    assert slow.energy_limit_j == 40
    # A device by data sheet is as much slower as its clock says; with a workload, the file has its costs.
    device = Device(1.2e9, 1e6, 0.5, name="sheet")
    sheet = REFERENCE.price(device, Fleet([device]))
    assert (sheet.c2, sheet.c0) == (pytest.approx(5 * 2e-3), 0.016)
    assert sheet.g2 == pytest.approx(1e-28 * 1.2e9**3 * 5 * 2e-3)
    work = Workload(model_parameters=1000, operations_per_sample=2.4e6, features=4)
    assert REFERENCE.price(device, Fleet([device], work)).c2 == pytest.approx(2e-3)
    measured = Measured(1.0, 2.0, 3.0, 0.0, 0.0, 0.0)
    assert REFERENCE.price(measured, Fleet([measured])) is measured


def test_a_fleet_is_spread_by_its_shares(tmp_path):
    names = [device.name for device in devices_of("1-2-5-10", 10, REFERENCE)]
    assert names == [
        "1x-01", "2x-01", "5x-01", "10x-01", "1x-02", "2x-02", "5x-02", "10x-02", "1x-03", "2x-03"
    ]  # fmt: skip
    devices = [Relative(1.0, name="a"), Relative(2.0, name="b")]
    path = tmp_path / "fleet.toml"
    path.write_text(write_fleet(Fleet(devices, shares=[0.75, 0.25])))
    assert read_fleet(path) == Fleet(devices, shares=[0.75, 0.25])
    names = [device.name for device in devices_of(str(path), 8, REFERENCE)]
    assert [name[0] for name in names].count("a") == 6
    assert names[:4] == ["a-01", "a-02", "b-01", "a-03"]
    assert len({device.name for device in devices_of("phones", 100, REFERENCE)}) == 100


def test_the_built_in_fleets_are_what_they_say():
    folder = Path(devices_of.__code__.co_filename).parent
    assert {file.stem for file in folder.glob("*.toml")} == set(BUILT_IN)
    assert read_fleet(folder / "paper.toml").learners == tuple(PaperFleet(0, 20, 0.0, 0.0).devices())
    for mine, drawn in zip(read_fleet(folder / "phones.toml").learners, phone_fleet(0, 40), strict=True):
        assert mine.name == drawn.name
        assert mine.cpu_hz == pytest.approx(drawn.cpu_hz, rel=1e-3)
        assert mine.rate_bps == pytest.approx(drawn.rate_bps, rel=1e-3)
        assert mine.joules_per_operation == drawn.joules_per_operation


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("slowness = 0", "slowness must be a finite number > 0"),
        ("slowness = 1\ncpu_hz = 1e9", "cpu_hz must be left out, beside slowness a key"),
        ("slowness = 1\nrate_bps = -1", "rate_bps must be a finite number > 0"),
        (
            "slowness = 1\nshare = 1\n[[device]]\nslowness = 2",
            "share must be given for all devices or for none",
        ),
        ("slowness = 1\nshare = 1\ncount = 2", "share must be left out beside count"),
        ("power_w = 3", "cpu_hz must be given"),
    ],
)
def test_bad_fleets_are_told_before_anything_runs(tmp_path, text, says):
    path = tmp_path / "fleet.toml"
    path.write_text(f"[[device]]\n{text}\n")
    assert says in refused("try", TINY, "--fleet", path, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_commands_say_whose_fleet_it_is(fleet):
    said = refused("plan", fleet, "--cycle-time", 10, "--samples", 100)
    assert "slowness must be left out, its costs depend on an app" in said
    assert "flwr-mel try" in said


def test_apps_that_cannot_be_tried(tmp_path):
    options = ("--fleet", "paper", "--out", tmp_path / "out")
    assert "No such file" in refused("try", tmp_path, *options, code=4)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert "has no 'tool'" in refused("try", tmp_path, *options)
    text = (TINY / "pyproject.toml").read_text().replace("num-server-rounds", "rounds")
    (tmp_path / "pyproject.toml").write_text(text)
    assert "has no 'num-server-rounds'" in refused("try", tmp_path, *options)
    (tmp_path / "bad.json").write_text('{"seconds_per_sample": -1, "model_bytes": 1}')
    told = refused("try", TINY, *options, "--reference", tmp_path / "bad.json")
    assert "seconds_per_sample must be a finite number > 0" in told
    assert "'--clients': 0 is not in the range" in refused("try", TINY, *options, "--clients", "0")
    assert not (tmp_path / "out").exists()


@pytest.mark.engine
def test_the_same_command_gives_the_same_bytes(tmp_path, fleet):
    words = ("try", TINY, "--fleet", fleet, "--clients", 8, "--rounds", 3, "--out", tmp_path / "out")
    first = process(*words)
    assert first.returncode == 0, first
    files = sorted(tmp_path.glob("out/*/records.jsonl"))
    before = {file: file.read_bytes() for file in files if file.parent.name != "reference"}
    assert {file.parent.name for file in before} == {"as-it-is", "planned"}
    # One worker instead of all: clients are computed one after the other.
    again = shell(["taskset", "-c", "0", *command(*words)])
    assert again.stdout == first.stdout
    assert {file: file.read_bytes() for file in before} == before
    own, planned = (load_run(tmp_path / "out" / name) for name in ("as-it-is", "planned"))
    measured = json.loads((tmp_path / "out" / "reference.json").read_text())
    # Half of the clients do two epochs on 120 samples; the slow ones take eight times as long, and send.
    slowest = 8 * 240 * measured["seconds_per_sample"] + 16 * measured["model_bytes"] / 1e6
    assert own.records[0].waited_s == pytest.approx(slowest)
    assert {row.learner[:4] for record in own.records for row in record.asked} == {"fast", "slow"}
    assert all(len(record.asked) == 4 for record in own.records)
    assert own.observed
    assert len(own.records) == 3
    assert planned.records[-2].clock_s < own.records[-1].clock_s  # it does not go on after that
    assert own.energy_known
    assert re.search(r"time to \d\d\.\d%", first.stdout)
    assert "idle time" in first.stdout
    assert (tmp_path / "out" / "report.html").exists()
    assert "measuring" in first.stderr
    assert "measuring" not in again.stderr


@pytest.mark.engine
def test_a_failing_app_ends_with_its_error(tmp_path):
    app = shutil.copytree(TINY, tmp_path / "app")
    server = app / "tinyapp" / "server.py"
    server.write_text(
        server.read_text().replace("strategy =", "raise ValueError('no data today')\n    strategy =")
    )
    done = process("try", app, "--fleet", "paper", "--out", tmp_path / "out", "--clients", 4)
    assert done.returncode == 5, done
    assert "the run failed: no data today. Its log: " in done.stderr
    assert done.stdout == ""


@pytest.mark.engine
def test_ctrl_c_ends_everything_it_started(tmp_path):
    (tmp_path / "reference.json").write_text('{"seconds_per_sample": 0.001, "model_bytes": 100}')
    words = command(
        "try", TINY, "--fleet", "paper", "--clients", 4, "--rounds", 1000, "--out", tmp_path / "out"
    )
    words += ["--reference", str(tmp_path / "reference.json")]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "as it is, round 1:" in running.stderr.readline()
        started = psutil.Process(running.pid).children(recursive=True)
        assert started
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    assert running.returncode == 130
    assert said.endswith("error: interrupted\n")
    wait_for(lambda: not [p for p in started if p.is_running() and p.status() != psutil.STATUS_ZOMBIE])
