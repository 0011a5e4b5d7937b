"""The README's example runs and prints what the README says; links lead somewhere."""

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


def test_the_example_is_short():
    lines = [line for line in block("python").splitlines() if line.strip()]
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 110


def test_the_first_screen():
    """What it is, three lines to add, one picture, one table."""
    head = README.split("## Install")[0]
    (diff,) = re.findall(r"```diff\n(.*?)```", head, re.DOTALL)
    assert len(re.findall(r"^\+", diff, re.MULTILINE)) == 3
    assert len(re.findall(r"^!\[", head, re.MULTILINE)) == 1
    assert len(re.findall(r"^\| ---", head, re.MULTILINE)) == 1
    assert len(head.splitlines()) <= 40


@pytest.mark.parametrize(
    "heading", ["Install", "Example", "What it is not for", "Command line", "Development"]
)
def test_headings(heading):
    assert f"\n## {heading}\n" in README


@pytest.mark.parametrize(
    "page", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]), ids=lambda p: p.name
)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
