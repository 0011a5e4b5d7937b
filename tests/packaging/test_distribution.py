"""What users install: wheels and source distributions, in an environment of their own."""

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
LOCK = ROOT / "requirements.lock"


def process(*command, **options):
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **options,
    )


def call(*command, **options):
    done = process(*command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked(*folders):
    return set(call("git", "ls-files", *folders, cwd=ROOT).split())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution, and the wheel that is made of it, of the library and of the simulation."""
    out = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "simulation"):
        call(UV, "build", "--quiet", "--out-dir", out, project)
    return {
        name: (*out.glob(f"{name}-*.tar.gz"), *out.glob(f"{name}-*.whl"))
        for name in ("flwr_mel", "mel_simulation")
    }


@pytest.mark.parametrize(("name", "folder"), [("flwr_mel", "."), ("mel_simulation", "simulation")])
def test_a_wheel_holds_one_package_whole_and_nothing_else(built, name, folder):
    _, wheel = built[name]
    with zipfile.ZipFile(wheel) as opened:
        names = {file for file in opened.namelist() if ".dist-info/" not in file}
    files = tracked(f"{folder}/{name}")
    assert names == {(Path(file).relative_to(folder)).as_posix() for file in files}
    assert {Path(file).parts[0] for file in names} == {name}


def test_the_source_distribution_holds_what_is_needed_to_test_it(built):
    with tarfile.open(built["flwr_mel"][0]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    needed = ("flwr_mel", "simulation", "tests", "deploy", "Makefile", LOCK.name, "LICENSE", "CHANGELOG.md")
    assert tracked(*needed) <= names


@pytest.fixture(scope="module")
def fresh(built, tmp_path_factory):
    """An environment with the library's wheel, and how to call its programs."""
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    call(UV, "venv", "--quiet", "--python", sys.executable, venv)
    install(venv, built["flwr_mel"][1])
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return venv / "bin", {"cwd": venv.parent, "env": env}


def install(venv, *wheels):
    call(UV, "pip", "install", "--quiet", "--python", venv / "bin" / "python", "-c", LOCK, *wheels)


def test_the_wheel_without_extras_plans_a_fleet(fresh):
    programs, here = fresh
    where = call(programs / "python", "-c", "import flwr_mel; print(flwr_mel.__file__)", **here)
    assert Path(where.strip()).is_relative_to(programs.parent)
    tool = programs / "flwr-mel"
    (here["cwd"] / "fleet.toml").write_text(call(tool, "fleet", "--paper", **here))
    plan = call(tool, "plan", "fleet.toml", "--cycle-time", 10, "--samples", 60_000, "--json", **here)
    assert json.loads(plan)["status"] == "optimal"


def test_the_simulation_adds_its_commands(fresh, built):
    programs, here = fresh
    without = {name: process(programs / "flwr-mel", name, **here) for name in ("simulate", "sweep", "arena")}
    for name, done in without.items():
        assert (done.returncode, done.stdout) == (4, "")
        assert done.stderr == (
            f"error: {name} needs more packages (mel-simulation is not installed); "
            "in a clone of flwr_mel: pip install . ./simulation\n"
        )
    assert "Not available: mel-simulation" in call(programs / "flwr-mel", "--help", **here)
    install(programs.parent, built["flwr_mel"][1], built["mel_simulation"][1])
    for name in without:
        assert f"Usage: flwr-mel {name} [OPTIONS]" in call(programs / "flwr-mel", name, "--help", **here)
    code = "import mel_simulation as m, torch, ray; print(m.__file__)"
    where = call(programs / "python", "-c", code, **here)
    assert Path(where.strip()).is_relative_to(programs.parent)


def test_a_project_that_depends_on_a_clone_gets_its_newest_state(tmp_path):
    """Flower installs the dependencies of an app with `uv sync`, which keeps what it has built."""
    clone, app = tmp_path / "clone", tmp_path / "app"
    for name in (*tracked("flwr_mel"), "pyproject.toml", "README.md", "LICENSE"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_bytes((ROOT / name).read_bytes())
    app.mkdir()
    dependency = f"flwr-mel @ {clone.as_uri()}"
    (app / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["{dependency}"]\n'
    )
    env = os.environ | {"UV_PROJECT_ENVIRONMENT": str(tmp_path / "venv")}
    sync = (UV, "sync", "--quiet", "--no-install-project", "--no-install-package", "flwr", "--inexact")
    for version in ("first", "second"):
        (clone / "flwr_mel" / "_text.py").write_text(f"STATE = {version!r}\n")
        call(*sync, "--python", sys.executable, cwd=app, env=env)
        code = "import flwr_mel._text as text; print(text.STATE)"
        assert call(tmp_path / "venv" / "bin" / "python", "-c", code, cwd=app).strip() == version
