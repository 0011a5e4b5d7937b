"""What an import costs: the library alone loads neither Flower nor any training or solver stack."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
HEAVY = {"flwr", "torch", "torchvision", "cvxpy", "scipy", "matplotlib", "ray", "ortools", "pandas", "rich"}
STATEMENTS = {
    "everything exported": "from flwr_mel import *; from flwr_mel.solvers import EqualBatches, Rate",
    "an allocation": """
from flwr_mel import AllocationProblem, Coefficients, allocate, fastest, greenest, scheme
from flwr_mel.solvers import Exact
costs = Coefficients([0.001], [0], [0], [0], [0], [0])
problem = AllocationProblem(costs, 1.0, total_samples=100)
allocate(problem, Exact()), fastest(problem, 1), greenest(problem, 1), scheme("hu-sync").allocate(problem)
""",
    "a cycle": "import flwr_mel.cycle.plan, flwr_mel.cycle.settle",
    "fleets in files": "import flwr_mel.tools.fleetfile",
}


def loaded(statement, warnings="default"):
    """Return the modules that a fresh process has after a statement, and what it printed."""
    code = f"{statement}\nimport sys\nprint('LOADED', *sys.modules)"
    command = [sys.executable, "-W", warnings, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    text, _, names = done.stdout.partition("LOADED")
    return set(names.split()), text


@pytest.mark.parametrize(("module", "most"), [("clientapp", 16), ("serverapp", 50), ("server", 50)])
def test_a_project_loads_few_of_our_modules(module, most):
    names, _ = loaded(f"import flwr_mel.{module}")
    ours = {name for name in names if name.startswith("flwr_mel")}
    assert 5 < len(ours) <= most
    assert not [name for name in ours if name.startswith("flwr_mel.tools")]
    if module == "clientapp":
        assert not [name for name in ours if name.startswith(("flwr_mel.solvers", "flwr_mel.allocation"))]
        assert not {"torch", "scipy", "ray", "datasets"} & names


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_heavy_packages_stay_out(statement):
    names, _ = loaded(statement, warnings="error")
    assert "flwr_mel" in names
    assert not names & HEAVY


def test_every_exported_name_exists():
    import flwr_mel

    assert sorted(flwr_mel.__all__) == list(flwr_mel.__all__)
    for name in flwr_mel.__all__:
        assert getattr(flwr_mel, name)
    with pytest.raises(AttributeError, match="Greedy"):
        _ = flwr_mel.solvers.Greedy


def test_help_does_not_load_the_training_stack():
    names, text = loaded("""
import sys
sys.argv = ["flwr-mel", "--help"]
try:
    __import__("flwr_mel.tools.cli").tools.cli.main()
except SystemExit as stop:
    assert not stop.code
""")
    assert {"plan", "fleet"} <= set(text.split())
    assert not names & {"torch", "cvxpy", "matplotlib", "ray", "flwr"}
