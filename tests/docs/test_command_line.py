"""What docs/CLI.md shows is what the commands print; it leads to every command."""

import re
import shlex
from pathlib import Path

import pytest

from tests.tools.commands import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "CLI.md").read_text(encoding="utf-8")
#: What depends on the machine.
TIMED = re.compile(r"(solved in +)[\d.]+ m?s")


def shown():
    """Return commands of the page with what it shows of their output, but those of a run of the reader's."""
    first = re.search(r"\n(flwr-mel plan [^\n]*)\n```\n\n```\n(.*?)```", PAGE, re.DOTALL)
    others = re.findall(r"```\n\$ (flwr-mel plan [^\n]*)\n(.*?)```", PAGE, re.DOTALL)
    assert first
    assert len(others) == 2
    return [(first[1], first[2]), *others]


def plain(text):
    return [TIMED.sub(r"\1", line.rstrip()) for line in text.rstrip().splitlines()]


@pytest.mark.parametrize(("command", "output"), shown(), ids=[command for command, _ in shown()])
def test_the_page_shows_what_is_printed(command, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text(run("fleet", "--paper", "--seed", 0).stdout)
    code = 3 if output.startswith("infeasible") else 0
    done = run(*shlex.split(command)[1:], code=code, env={"COLUMNS": "80", "TERM": "dumb"})
    want, got = plain(output), plain(done.output)
    if "..." in want:  # stands for the rows that are left out
        at = want.index("...")
        head, tail = want[:at], want[at + 1 :]
        want, got = head + tail, got[:at] + got[-len(tail) :]
    assert got == want


def test_the_page_leads_to_every_command():
    table = dict(re.findall(r"^\| `flwr-mel ([\w-]+)` \| .* \| (.+) \|$", PAGE, re.MULTILINE))
    listed = re.findall(r"^│ ([a-z][\w-]*) +\w", run("--help", env={"COLUMNS": "120"}).stdout, re.MULTILINE)
    assert len(listed) >= 8
    assert sorted(table) == sorted(listed)
    for name, where in table.items():
        (page,) = re.findall(r"\[\w+\]\((\w+\.md)\)", where) or ["CLI.md"]
        assert f"flwr-mel {name}" in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_the_page_has_every_option_of_try_fleet_and_plan():
    for command in ("try", "fleet", "plan"):
        told = run(command, "--help", env={"COLUMNS": "120"}).stdout
        options = set(re.findall(r"^│ +\*? *(--[a-z-]+)", told, re.MULTILINE)) - {"--help"}
        assert len(options) >= 4
        part = PAGE.split(f"\n## {command}\n")[1].split("\n## ")[0]
        assert {option for option in options if option not in part} == set()
