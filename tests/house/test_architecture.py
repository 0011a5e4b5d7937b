"""The drawing in ARCHITECTURE.md is what the code does: rooms import only from floors below them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "flwr_mel"


def floors():
    """Return the floor of every room, as the page draws them: the ground floor is the last line."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    block = re.search(r"```rooms\n(.*?)```", page, re.DOTALL)
    assert block is not None, "ARCHITECTURE.md has no ```rooms block"
    lines = [line.split() for line in block[1].splitlines() if line.strip()]
    return {room: height for height, rooms in enumerate(reversed(lines)) for room in rooms}


def rooms():
    """Return the rooms that there are: packages and modules directly below flwr_mel."""
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    return folders | modules


def imports(path):
    """Yield the rooms that a file imports while it is itself imported; functions may look anywhere."""
    later = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_typing:
            later |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in later:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("flwr_mel."))


def test_every_room_is_drawn_and_nothing_else():
    assert set(floors()) == rooms()


def test_rooms_import_only_from_below():
    height, wrong = floors(), []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for other in imports(path):
            if room in height and other in height and other != room and height[other] >= height[room]:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong


def test_the_package_never_imports_the_simulation():
    words = [
        p
        for p in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(from|import) mel_simulation", p.read_text(), re.M)
    ]
    assert not words


def test_files_of_tests_are_short_enough_to_read():
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > 400} == {}


def test_tests_lie_in_rooms():
    assert [path.name for path in (ROOT / "tests").glob("test_*.py")] == []
