"""The site builds strictly, its tutorial runs, and its pages are complete."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_site_builds_and_the_tutorial_runs(tmp_path):
    environment = {**os.environ, "SITE_EXECUTE": "true", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    tutorial = (tmp_path / "tutorial" / "index.html").read_text(encoding="utf-8")
    assert "three epochs each fit into" in tutorial
    assert "of 4 clients used" in tutorial  # a run on Flower's engine
    assert "data:image/png" in tutorial
    reference = (tmp_path / "REFERENCE" / "index.html").read_text(encoding="utf-8")
    assert "flwr_mel.serverapp.MelStrategy" in reference


#: Modules whose public names users call.
MODULES = [
    "flwr_mel",
    "flwr_mel.allocation",
    "flwr_mel.solvers",
    "flwr_mel.clientapp",
    "flwr_mel.checkpoint",
    "flwr_mel.tools.report",
]


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(module):
    page = (ROOT / "docs" / "REFERENCE.md").read_text(encoding="utf-8")
    listed = {path.rsplit(".", 1)[1] for path in re.findall(r"^::: (flwr_mel\.[\w.]+)$", page, re.MULTILINE)}
    assert [name for name in importlib.import_module(module).__all__ if name not in listed] == []
