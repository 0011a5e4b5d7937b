"""Every Flower app of the repository has the format of Flower's hub."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
FLWR = Path(sys.executable).with_name("flwr")
APPS = [
    ROOT / "simulation",
    ROOT / "deploy" / "app",
    *sorted(file.parent for file in (ROOT / "examples").glob("*/pyproject.toml")),
]


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_an_app_can_be_published(app, tmp_path):
    """`flwr build` checks the format that an app declares."""
    settings = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["flwr"]["app"]["fab-format-version"] == 1
    assert 0 < len(settings["project"]["description"]) <= 200
    # The hub accepts no underscore in the name of a directory.
    copy = shutil.copytree(app, tmp_path / app.name.replace("_", "-"))
    command = [FLWR, "build", "--app", copy]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (bundle,) = tmp_path.glob("*.fab")
    with zipfile.ZipFile(bundle) as opened:
        names = set(opened.namelist())
        assert opened.read("LICENSE") == (ROOT / "LICENSE").read_bytes()
    for component in settings["tool"]["flwr"]["app"]["components"].values():
        assert f"{component.partition(':')[0].replace('.', '/')}.py" in names
