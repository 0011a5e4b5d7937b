"""Every section of docs/BENCHMARKS.md names the command that makes it, and `make bench` runs it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "BENCHMARKS.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"<!-- (\w+):begin -->\n(.*?)<!-- \1:end -->", PAGE, re.DOTALL))
TARGET = re.search(r"^bench:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_can_be_made_again(name):
    commands = set(re.findall(r"`python -m (bench\.[\w. -]+)`", SECTIONS[name]))
    assert commands
    for command in commands:
        assert (ROOT / f"{command.split()[0].replace('.', '/')}.py").is_file()
        # The recordings are not part of the repository.
        wanted = command.replace(" --links FILE", " $(if $(LINKS),--links $(LINKS))")
        assert re.search(rf"-m {re.escape(wanted)}[ )\n]", TARGET[1]), command
