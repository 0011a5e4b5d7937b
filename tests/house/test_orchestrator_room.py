"""The orchestrator's room: no Flower, no files, no environment, no clock."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flwr_mel.orchestrator
from tests.waiting import PATIENCE_S

FILES = sorted(Path(flwr_mel.orchestrator.__file__).parent.glob("*.py"))
OUTSIDE = {
    "datetime",
    "io",
    "os",
    "pathlib",
    "random",
    "secrets",
    "shutil",
    "socket",
    "subprocess",
    "sys",
    "time",
}


def imported(tree):
    """Names of the modules that a file imports when it runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_it_reads_nothing_but_its_input(path):
    names = set(imported(ast.parse(path.read_text())))
    assert not {name.split(".")[0] for name in names} & (OUTSIDE | {"flwr"})
    rooms = {name.split(".")[1] for name in names if name.startswith("flwr_mel.")}
    assert not rooms & {"flower", "server", "serverapp", "clientapp", "checkpoint", "cli", "report"}
    calls = {node.func.id for node in ast.walk(ast.parse(path.read_text())) if _is_name_call(node)}
    assert "open" not in calls


def _is_name_call(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def test_flower_is_not_loaded_with_it():
    code = "import flwr_mel.orchestrator, sys; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "flwr_mel" in done.stdout.split()
    assert "flwr" not in done.stdout.split()
