"""What users install: the wheel and the source distribution, in an environment of their own."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


def call(*command, **options):
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution, and the wheel that is made of it."""
    out = tmp_path_factory.mktemp("dist")
    call(UV, "build", "--quiet", "--out-dir", out, ROOT)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def tracked(*folders):
    return set(call("git", "ls-files", *folders, cwd=ROOT).split())


def test_the_wheel_holds_the_packages_whole_and_nothing_else(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    simulation = {name.removeprefix("simulation/") for name in tracked("simulation/mel_simulation")}
    assert names == tracked("flwr_mel") | simulation
    assert "flwr_mel/py.typed" in names


def test_the_source_distribution_holds_what_is_needed_to_test_it(built):
    with tarfile.open(built[0]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert (
        tracked("flwr_mel", "simulation", "tests", "deploy", "Makefile", "LICENSE", "CHANGELOG.md") <= names
    )


def test_the_wheel_without_extras_plans_a_fleet(built, tmp_path):
    fresh = tmp_path / "venv"
    call(UV, "venv", "--quiet", "--python", sys.executable, fresh)
    call(UV, "pip", "install", "--quiet", "--python", fresh / "bin" / "python", built[1])
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    here = {"cwd": tmp_path, "env": env}
    where = call(fresh / "bin" / "python", "-c", "import flwr_mel; print(flwr_mel.__file__)", **here)
    assert Path(where.strip()).is_relative_to(fresh)
    tool = fresh / "bin" / "flwr-mel"
    (tmp_path / "fleet.toml").write_text(call(tool, "fleet", "--paper", **here))
    plan = call(tool, "plan", "fleet.toml", "--cycle-time", 10, "--samples", 60_000, "--json", **here)
    assert json.loads(plan)["status"] == "optimal"
