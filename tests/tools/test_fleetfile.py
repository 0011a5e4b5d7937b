"""Fleets in files: what can be read, what comes back, and how broken files are reported."""

import numpy as np
import pytest

from flwr_mel import Coefficients, Device, InputError, Workload, paper_fleet
from flwr_mel.devices import Measured
from flwr_mel.paper import PAPER_LAYERS, PaperFleet
from flwr_mel.tools.fleetfile import Fleet, parse_fleet, read_fleet, write_fleet
from tests.tools.commands import refused, run

DEVICE = "[[device]]\nname = 'a'\ncpu_hz = 1e9\nrate_bps = 1e6\ntx_power_w = 0.2\n"
MEASURED = "[[device]]\nname = 'm'\nc2 = 1e-4\nc1 = 0\nc0 = 1\ng2 = 0\ng1 = 0\ng0 = 0\n"


def toml(text: str) -> Fleet:
    return parse_fleet(text.encode(), "fleet.toml")


@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_reads_back_to_the_last_bit(seed, tmp_path):
    devices = paper_fleet(np.random.default_rng(seed), 30, energy_j=None if seed == 0 else 20.0)
    measured = Measured(1 / 3e4, 0.1, 1e-30, 1 / 7, 0, 123456789.125, 7.5, 400, 'quo"te, \\ ü')
    fleet = Fleet([*devices, measured], Workload.mlp(PAPER_LAYERS, ship_data=seed % 2 == 0))
    (tmp_path / "f.toml").write_text(write_fleet(fleet), encoding="utf-8")
    assert read_fleet(tmp_path / "f.toml") == fleet


def test_any_workload_survives():
    job = Workload(10, 1e3 / 7, 5, parameters_per_sample=2, data_compression=0.25)
    assert toml(write_fleet(Fleet([Device(1e9, 1e6, 0.1)], job))).workload == job


def test_count_repeats_a_device_under_names_of_its_own():
    assert toml(DEVICE + "count = 3\n" + MEASURED).names == ["a-1", "a-2", "a-3", "m"]
    assert toml("[[device]]\ncpu_hz=1e9\nrate_bps=1e6\ntx_power_w=0\n").names == ["device-1"]


def test_a_mix_has_the_coefficients_of_its_parts():
    fleet = toml(MEASURED + "energy_limit_j = 3\n" + DEVICE + "max_samples = 70\n")
    job = Workload.mlp([10, 5, 2])
    got = fleet.coefficients(job)
    derived = Coefficients.from_devices([fleet.learners[1]], job)
    assert got.c2.tolist() == [1e-4, derived.c2[0]]
    assert got.g0.tolist() == [0, derived.g0[0]]
    problem = fleet.problem(cycle_time_s=10, total_samples=100, staleness=2, workload=job)
    assert problem.energy_limit_j.tolist() == [3, np.inf]
    assert problem.max_samples[1] == 70
    assert fleet.problem(cycle_time_s=1, total_samples=9, energy_limit_j=5).energy_limit_j.tolist() == [5, 5]


BROKEN_TOML = {
    "a value": (MEASURED + "\n# x\n" + DEVICE.replace("1e9", "'fast'"), "cpu_hz", ["'fast'", '"a"']),
    "missing": (
        "\n[[device]]\nrate_bps = 1\ntx_power_w = 1\n",
        "cpu_hz",
        ['device "device-1"', "given", "nothing"],
    ),
    "unknown key": (DEVICE + "enrgy_limit_j = 3\n", "enrgy_limit_j", ['"energy_limit_j"']),
    "unknown table": (DEVICE + "[wrkload]\nx = 1\n", "wrkload", ['"workload"']),
    "one bracket": (DEVICE.replace("[[device]]", "[device]"), "device", ["[[device]]"]),
    "no device": ("[workload]\nlayers = [3, 2]\n", "device", ["at least once"]),
    "zero count": (DEVICE + "count = 0\n", "count", ["got 0"]),
    "huge count": (DEVICE + "count = 99999999\n", "count", ["1,000,000"]),
    "same name": (DEVICE + DEVICE, "name", ["unique", "'a'"]),
    "name is a number": (DEVICE.replace("'a'", "7"), "name", ["got 7"]),
    "name with control characters": (DEVICE.replace("'a'", '"\\u001b[2J"'), "name", ["printable"]),
    "mixed kinds": (MEASURED + "cpu_hz = 1\n", "cpu_hz", ["measured"]),
    "half measured": (MEASURED.replace("g1 = 0\n", ""), "g1", ["g1 must be given"]),
    "layers text": (DEVICE + "[workload]\nlayers = '784'\n", "layers", ["'784'"]),
    "layers twice": (DEVICE + "[workload]\nlayers = [3, 2]\nfeatures = 3\n", "features", ["layers"]),
    "infinite": (DEVICE.replace("1e9", "inf"), "cpu_hz", ["got inf"]),
    "huge": (DEVICE + f"max_samples = {2**41}\n", "max_samples", ["2**40"]),
    "half workload": (DEVICE + "[workload]\nfeatures = 3\n", "model_parameters", ["given"]),
    "workload no table": ("workload = 3\n" + DEVICE, "workload", ["got 3"]),
    "syntax": (DEVICE + "cpu_hz 3\n", "the text", ["valid TOML", "line 6, column 8"]),
    "too many digits": (DEVICE + "c2 = " + "9" * 5000, "the text", ["valid TOML"]),
    "too deep": ("x = " + "[" * 100_000, "the text", ["valid TOML"]),
}


@pytest.mark.parametrize("case", BROKEN_TOML)
def test_a_broken_file_is_named_with_device_and_field(case):
    text, field, words = BROKEN_TOML[case]
    with pytest.raises(InputError) as caught:
        toml(text)
    assert caught.value.field == field
    message = str(caught.value)
    assert message.startswith("fleet.toml")
    for word in (field, *words):
        assert word in message


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="Is a directory"):
        read_fleet(tmp_path)
    with pytest.raises(InputError, match="can be read, got none"):
        read_fleet("a\0b.toml")
    (tmp_path / "latin.toml").write_bytes(b"name\n\xfcber\n")
    with pytest.raises(InputError, match=r"the text must be valid TOML in UTF-8, got .*0xfc in position 5"):
        read_fleet(tmp_path / "latin.toml")
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf" + DEVICE.encode())
    assert read_fleet(tmp_path / "marked.toml").names == ["a"]


def test_costs_that_overflow_name_the_device():
    with pytest.raises(ValueError, match='device "tiny": c2 must be a finite number > 0, got inf'):
        Fleet([Device(1e9, 1e6, 0), Device(1e-310, 1e6, 0, name="tiny")]).coefficients()


def test_a_fleet_is_checked_in_code_too():
    with pytest.raises(ValueError, match="at least one device"):
        Fleet([])
    with pytest.raises(ValueError, match="unique"):
        Fleet([Device(1, 1, 1, name="x")] * 2)
    with pytest.raises(ValueError, match="Device, Measured or Relative"):
        Fleet([3])


def test_the_command_draws_checks_and_converts(tmp_path):
    text = run("fleet", "--paper", "--seed", 3, "--learners", 8, "--energy", 20).stdout
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    assert list(read_fleet(path).learners) == PaperFleet(3, 8, 20.0).devices()
    assert run("fleet", path).stdout.split("\n\n", 1)[1] == text.split("\n\n", 1)[1]
    frugal = run("fleet", "--paper", "--energy", 1).stdout
    assert all(0.75 <= x.energy_limit_j <= 1.25 for x in toml(frugal).learners)
    assert run("fleet", "-", input=text).stdout == run("fleet", path).stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--paper", "FILE"), "give either --paper or a fleet file"),
        (("FILE", "--seed", 0), "--seed must be left out with a fleet file"),
        (("--paper", "--learners", 10**8), "--learners must be at most 1,000,000, got 100000000"),
        (("--paper", "--energy", -1), "--energy must be"),
    ],
)
def test_bad_options_of_the_command(paper, args, says):
    assert says in refused("fleet", *(paper if a == "FILE" else a for a in args))
