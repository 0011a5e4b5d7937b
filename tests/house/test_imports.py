"""What an import costs: the library alone loads neither Flower nor any training or solver stack."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]

HEAVY = [
    "flwr",
    "torch",
    "torchvision",
    "cvxpy",
    "scipy",
    "matplotlib",
    "ray",
    "ortools",
    "pyscipopt",
    "pandas",
    "rich",
    "scipy",
]

STATEMENTS = {
    "package": "import flwr_mel",
    "solver": "from flwr_mel.solvers import Exact",
    "everything exported": "from flwr_mel import *; from flwr_mel.solvers import EqualBatches",
    "an allocation": """
from flwr_mel import AllocationProblem, Coefficients, allocate, fastest, greenest, scheme
from flwr_mel.solvers import Exact
costs = Coefficients([0.001], [0], [0], [0], [0], [0])
problem = AllocationProblem(costs, 1.0, total_samples=100)
allocate(problem, Exact()), fastest(problem, 1), greenest(problem, 1), scheme("hu-sync").allocate(problem)
""",
    "a cycle": "import flwr_mel.cycle.plan, flwr_mel.cycle.settle",
    "fleets in files": "from flwr_mel.tools.fleetfile import parse_fleet, write_fleet",
}


def loaded(statement):
    code = f"{statement}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_heavy_packages_stay_out(statement):
    names = loaded(statement)
    assert "flwr_mel" in names
    assert not names & set(HEAVY)


def test_the_package_alone_loads_none_of_its_modules():
    code = "import sys, flwr_mel; print(*(m for m in sys.modules if m.startswith('flwr_mel.')))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.split() == []


def test_the_papers_solver_is_loaded_on_demand():
    assert "cvxpy" not in loaded("from flwr_mel.solvers import SuggestImprove; SuggestImprove()")


def test_an_unknown_solver_is_an_attribute_error():
    with pytest.raises(ImportError, match="Greedy"):
        from flwr_mel.solvers import Greedy  # noqa: F401


def test_every_exported_name_exists():
    import flwr_mel

    assert sorted(flwr_mel.__all__) == list(flwr_mel.__all__)
    for name in flwr_mel.__all__:
        assert getattr(flwr_mel, name)


def test_help_does_not_load_the_training_stack():
    code = """
import runpy, sys
sys.argv = ["flwr-mel", "--help"]
try:
    runpy.run_module("flwr_mel.tools.cli", run_name="__main__")
except SystemExit as stop:
    assert not stop.code
print("LOADED", *sorted({name.split(".")[0] for name in sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    text, _, names = done.stdout.partition("LOADED")
    assert "plan" in text
    assert "fleet" in text
    assert not set(names.split()) & {"torch", "cvxpy", "matplotlib", "ray", "flwr"}


def test_the_library_never_imports_the_simulation():
    names = [
        name
        for path in (ROOT / "flwr_mel").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in imported(node)
    ]
    assert "flwr_mel" in {name.partition(".")[0] for name in names}
    assert not [name for name in names if name.partition(".")[0] in ("simulation", "mel_simulation")]


def test_rooms_of_the_simulation_import_one_way():
    package = ROOT / "simulation" / "mel_simulation"
    edges: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in imported(node):
                if name.startswith("mel_simulation."):
                    edges.setdefault(room, set()).add(name.split(".")[1])
    assert {"scenario", "app", "sweep", "arena", "paper", "cli"} <= set(edges)
    graph = {room: targets - {room} for room, targets in edges.items()}
    list(TopologicalSorter(graph).static_order())  # raises CycleError


def imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
