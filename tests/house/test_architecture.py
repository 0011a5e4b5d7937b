"""The pipeline is one way: devices, costs, allocation, solvers, a cycle, strategies, tools."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "flwr_mel"
#: Each floor imports from lower ones only; the first is the ground floor, whose parts may use each other.
FLOORS = [
    {"wire", "_npy", "_text", "_validate", "_files"},
    {"devices", "records", "torch_counter"},
    {"costs", "paper", "clientapp"},
    {"allocation"},
    {"solvers"},
    {"cycle"},
    {"around", "probes", "wrapped"},
    {"grid", "step_strategies"},
    {"strategy"},
    {"server", "serverapp"},
    {"checkpoint"},
    {"tools"},
]
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
#: What a cycle must not know: it is a function of its arguments.
OUTSIDE = {"datetime", "os", "pathlib", "random", "socket", "subprocess", "sys", "threading", "time", "flwr"}
#: Modules that Flower documents.
PUBLIC = {
    "flwr.app",
    "flwr.client",
    "flwr.clientapp",
    "flwr.clientapp.typing",
    "flwr.common",
    "flwr.server",
    "flwr.server.client_manager",
    "flwr.server.client_proxy",
    "flwr.server.strategy",
    "flwr.serverapp",
    "flwr.serverapp.strategy",
    "flwr.simulation",
}
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path, *, lazy=True):
    """Yield module and name of every import; without `lazy` only of those that run with the import."""
    tree = parsed(path)
    later = set()
    for node in ast.walk(tree):
        typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if typing or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            later |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not lazy and id(node) in later:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def test_every_module_has_its_floor():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert folders | modules == set(HEIGHT)


def test_imports_go_one_way():
    wrong = []
    for path in FILES:
        room = room_of(path)
        height = HEIGHT.get(room, 0)  # the package itself loads names when they are used
        for module, name in imported(path, lazy=False):
            other = f"{module}.{name}".split(".")[1]
            ours = module.split(".")[0] == "flwr_mel" and other != room
            if ours and height and HEIGHT.get(other, 0) >= height:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong


@pytest.mark.parametrize("path", sorted((PACKAGE / "cycle").glob("*.py")), ids=lambda path: path.name)
def test_a_cycle_depends_on_its_arguments_alone(path):
    assert not {module.split(".")[0] for module, _ in imported(path)} & OUTSIDE


@pytest.mark.parametrize("folder", ["flwr_mel", "simulation", "deploy/app", "examples"])
def test_only_public_names_of_flower_ray_and_torch(folder):
    wrong = []
    for path in (ROOT / folder).rglob("*.py"):
        for module, name in imported(path):
            top = module.split(".")[0]
            private = any(part.startswith("_") for part in (*module.split("."), name))
            if top in ("flwr", "ray", "torch") and (private or (top == "flwr" and module not in PUBLIC)):
                wrong.append(f"{path.relative_to(ROOT)}: {module} {name}")
    assert not wrong
