"""The README's example runs and prints what the README says; links lead somewhere."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language):
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found
    return found[1]


def test_the_example_prints_what_it_says():
    command = [sys.executable, "-W", "error", "-c", block("python")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout == block("text")


def test_the_first_screen():
    """The lines to add are as many as it says, there and in the guide, and their imports exist."""
    head = README.split("## Install")[0]
    (diff,) = re.findall(r"```diff\n(.*?)```", head, re.DOTALL)
    added = [line.lstrip("+") for line in diff.splitlines() if line.startswith("+")]
    assert len(added) == 8
    assert "Eight lines add it to a project" in head
    assert "\n## Eight lines\n" in (ROOT / "docs" / "GUIDE.md").read_text(encoding="utf-8")
    for line in added:
        if line.startswith("from "):
            exec(line, {})


def test_the_numbers_come_from_committed_results():
    """`make docs` filled the block after the last `python -m bench.gallery`."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        generate = importlib.import_module("generate")
    finally:
        sys.path.pop(0)
    (block,) = re.findall(r"<!-- generated: gallery -->(.*?)<!-- end -->", README, re.DOTALL)
    assert block.strip() == generate.gallery(generate.measured())
    assert (ROOT / "docs" / "SETTINGS.md").read_text(encoding="utf-8") == generate.page()


@pytest.mark.parametrize(
    "page", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]), ids=lambda p: p.name
)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
