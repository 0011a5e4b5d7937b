"""Everything that a project imports is declared; the lock file fits what is declared."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import flwr_mel

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PYTHONS = ("3.11", "3.12", "3.13")
#: Projects with their packages. What an extra brings is imported where it is used.
PROJECTS = {"": "flwr_mel", "simulation": "mel_simulation", "deploy/app": "mel_fleet"} | {
    file.parent.relative_to(ROOT).as_posix(): "" for file in (ROOT / "examples").glob("*/pyproject.toml")
}
#: Packages that flwr_mel looks for among what the user has.
OPTIONAL = {"": {"torch", "datasets"}}


def project(folder):
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))


def declared(folder):
    """The requirements of a project, with those of its extras."""
    table = project(folder)["project"]
    lists = [table["dependencies"], *table.get("optional-dependencies", {}).values()]
    return [Requirement(line) for lines in lists for line in lines]


def imported(folder):
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
    return names - set(sys.stdlib_module_names)


@pytest.mark.parametrize("folder", PROJECTS)
def test_everything_imported_is_declared(folder):
    source = ROOT / folder / PROJECTS[folder]
    own = {PROJECTS[folder]} if PROJECTS[folder] else {path.name for path in source.iterdir()}
    known = {canonicalize_name(one.name) for one in declared(folder)}
    if any("simulation" in one.extras for one in declared(folder)):
        known.add("ray")  # Flower's extra is one exact version of it
    sources = packages_distributions()
    missing = {
        name
        for name in imported(source) - own - OPTIONAL.get(folder, set())
        if not known & {canonicalize_name(distribution) for distribution in sources.get(name, [name])}
    }
    assert not missing


def test_everything_declared_is_imported():
    """The base install brings nothing that it does not need."""
    needed = imported(ROOT / "flwr_mel")
    names = [Requirement(line).name.replace("-", "_") for line in project("")["project"]["dependencies"]]
    assert [name for name in names if name not in needed] == []


def pins(python):
    """The versions for a Python on Linux."""
    environment = default_environment() | {"python_version": python, "python_full_version": f"{python}.0"}
    lines = [Requirement(line) for line in LOCK.splitlines() if not line.startswith("#")]
    found = {}
    for line in lines:
        if line.marker is None or line.marker.evaluate(environment):
            assert line.name not in found
            (pin,) = line.specifier
            assert pin.operator == "=="
            found[line.name] = pin.version
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_every_requirement_in_its_range(python):
    groups = project("")["dependency-groups"].values()
    lines = [Requirement(line) for group in groups for line in group if isinstance(line, str)]
    requirements = {*lines, *(one for folder in PROJECTS for one in declared(folder))}
    have = pins(python) | {"flwr-mel": flwr_mel.__version__}
    assert [str(one) for one in requirements if not one.specifier.contains(have[one.name])] == []
    assert len(have) > 100  # all that these need as well


def test_the_lock_has_versions_alone():
    """No index, file, hash or option: it holds for every index and machine."""
    line = re.compile(r"[a-z0-9][a-z0-9-]*==[0-9][0-9a-z.+]*( ; [a-zA-Z0-9_.<>=!'() ]+)?")
    odd = [each for each in LOCK.splitlines() if not each.startswith("#") and not line.fullmatch(each)]
    assert odd == []
    assert [each for each in LOCK.splitlines() if each.startswith("#")][1:] == ["#    make lock"]


def test_classifiers_and_continuous_integration_name_the_same_pythons():
    table = project("")["project"]
    prefix = "Programming Language :: Python :: 3."
    classified = [f"3.{c.removeprefix(prefix)}" for c in table["classifiers"] if c.startswith(prefix)]
    assert tuple(classified) == PYTHONS
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert all(f'"{python}"' in workflow for python in PYTHONS)


def test_all_projects_have_one_version():
    version = flwr_mel.__version__
    assert {project(folder)["project"]["version"] for folder in ("", "simulation", "deploy/app")} == {version}
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (own,) = [one for one in declared("simulation") if one.name == "flwr-mel"]
    assert str(own.specifier) == f"=={version}"
