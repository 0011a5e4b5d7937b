"""`flwr-mel profile`, its file, and the client that reads it."""

import shlex
import tomllib
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from flwr_mel.tools.profile_command import _counter, _energy, _remarks
from flwr_mel.tools.profiling import ComputeCosts, Run
from tests.tools.commands import ask, process, refused, run

TRAIN = ("--train", "my_app:train", "--samples", 100)


def read_profile(path):
    """Return what a written profile declares."""
    return {key: x for key, x in tomllib.loads(Path(path).read_text()).items() if key != "measured"}


def test_from_the_function_to_flowers_option(app):
    options = ("--train", "my_app:train", "--samples", 50, "--budget", 600)
    energy = ("--watts", 5)
    link = ("--transfer", 0.5)
    done = process("profile", *options, *energy, *link, "--out", "p.toml", cwd=app)
    assert done.returncode == 0, done.stderr
    words, document = read_profile(app / "p.toml"), tomllib.loads((app / "p.toml").read_text())
    assert set(document) == {*words, "measured"}
    assert words["mel-c2"] > 0
    assert words["mel-g2"] == pytest.approx(5 * words["mel-c2"])
    assert words["mel-c0"] >= 0.5  # at least the model both ways
    assert document["measured"]["runs"] == 75
    assert document["measured"]["energy"] == "declared, 5 W while training"
    assert "hello from the function" not in done.stdout
    for word in ("Profile of this device", "seconds per sample and epoch", "declared", "fit"):
        assert word in done.stdout
    option = shlex.split(done.stdout.splitlines()[-1])
    assert option[0] == "--node-config"
    assert parse_config_args(option[1:]) == {"mel-profile": str(app / "p.toml")}
    whole = parse_config_args([str(app / "p.toml")])  # Flower takes the file itself, too
    assert {key: x for key, x in whole.items() if key.startswith("mel-")} == words


def test_json_and_the_usual_file(app, no_zeus, monkeypatch):
    monkeypatch.setattr("flwr_mel.tools.profile_command.measure_compute", lambda *_, **__: costs())
    got = ask("profile", *TRAIN)
    assert got["file"] == str(app / "profile.toml")
    assert read_profile("profile.toml") == got["profile"]
    assert "--out must be a new file" in refused("profile", *TRAIN)
    got = ask("profile", *TRAIN, "--out", "o'neil's profile.toml")
    assert parse_config_args(shlex.split(got["option"])[1:]) == {"mel-profile": got["file"]}


# Energy


def costs(c2=1e-3, c1=0.0, c0=0.0, joules=lambda e, d: None, error=0.01):
    points = [(1, 100), (1, 400), (4, 100), (2, 200), (4, 400)] * 2
    runs = [Run(e, d, c2 * e * d + c1 * d + c0, joules(e, d)) for e, d in points]
    return ComputeCosts(c2, c1, c0, error, 400, 4, tuple(runs))


@pytest.fixture
def powercap(tmp_path, monkeypatch):
    """Zeus itself on a directory like the kernel's, with a counter that we move."""
    rapl = pytest.importorskip("zeus.device.cpu.rapl")
    import zeus.device.cpu

    zone = tmp_path / "intel-rapl" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "energy_uj").write_text("5000000\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    monkeypatch.setattr(rapl, "RAPL_DIR", str(zone.parent))
    monkeypatch.setattr(zeus.device.cpu, "_cpus", None, raising=False)
    rapl.rapl_is_available.cache_clear()
    yield zone / "energy_uj"
    rapl.rapl_is_available.cache_clear()


def test_the_processors_counters_through_zeus(powercap):
    counter, source = _counter()
    assert source == "counters of 1 processors and 0 GPUs"
    before = counter()
    powercap.write_text("17000000\n")
    assert counter() - before == pytest.approx(12.0)


def test_energy_is_declared_or_counted_or_nothing():
    counted = costs(joules=lambda e, d: 3e-3 * e * d + 2.0)
    got, source = _energy(counted, None, "counters of it")
    assert got == pytest.approx((3e-3, 0.0, 2.0), abs=1e-9)
    assert source == "counters of it"
    # What the user states counts more than any counter, also one that does not work.
    for compute in (counted, costs(joules=lambda e, d: 0.0), costs()):
        got, source = _energy(compute, 5.0, "counters of it")
        assert got == pytest.approx((5e-3, 0.0, 0.0))
        assert source == "declared, 5 W while training"
    assert _energy(costs(joules=lambda e, d: 0.0), None, "a meter") == (
        (0.0, 0.0, 0.0),
        "not measured, a meter did not rise",
    )


def test_without_a_meter_there_is_a_profile_and_a_note(app, no_zeus, monkeypatch):
    assert _energy(costs(), None, _counter()[1])[0] == (0.0, 0.0, 0.0)
    monkeypatch.setattr("flwr_mel.tools.profile_command.measure_compute", lambda *_, **__: costs())
    told = run("profile", *TRAIN).stderr
    assert "energy counts as 0 and energy limits have no effect: not measured without zeus" in told
    assert "Declare it with --watts" in told


def test_remarks():
    fine = costs()
    assert not [text for text in _remarks(fine, 400, 30.0) if "OMP" not in text]
    told = " ".join(_remarks(costs(c2=1.0, error=0.2), 500, 30.0))
    assert "500 samples do not fit into --budget: measured with up to 400" in told
    assert "the runs took 5800 s instead of 30: the device became slower, measure again" in told
    assert "runs differ from the fit by 20%" in told


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--train", "my_app:fails", "--samples", 100),
            "got RuntimeError from train(samples=6, epochs=1): out of",
        ),
        (("--train", "my_app:nothing", "--samples", 100), "--train must be slow enough"),
        (("--train", "my_app:train", "--samples", 3), "--samples must be an integer from 8"),
        ((*TRAIN, "--transfer", -1), "--transfer must be a finite number >= 0"),
        ((*TRAIN, "--out", "my_app.py"), "--out must be a file name that ends in .toml"),
        ((*TRAIN, "--out", "there.toml"), "--out must be a new file"),
        ((*TRAIN, "--out", "no/p.toml"), "--out must be in a directory that can be written to"),
        ((*TRAIN, "--out", 'a"b.toml'), "--out must be a path without double quotes"),
        (("--samples", 100), "Missing option '--train'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(app, args, message):
    (app / "there.toml").write_text("mine")
    assert message in refused("profile", *args)
    assert (app / "there.toml").read_text() == "mine"
