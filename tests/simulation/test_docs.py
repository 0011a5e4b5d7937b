"""Pages and figures are what the committed results give: `make docs` changes nothing."""

import re
import shutil
from pathlib import Path

import pytest
from mel_simulation.arena import page
from mel_simulation.pages import fill
from mel_simulation.paper import reproduction

from bench import page as benchmarks

ROOT = Path(__file__).parents[2]
PAGES = ("REPRODUCTION.md", "ARENA.md")  # with generated blocks


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write the pages and figures anew, as `make docs` does."""
    docs = tmp_path_factory.mktemp("docs")
    for name in PAGES:
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        empty = re.sub(r"(generated: \S+ -->\n).*?(<!-- end)", r"\1\2", text, flags=re.DOTALL)
        assert empty != text
        (docs / name).write_text(empty, encoding="utf-8")
    shutil.copy(ROOT / "README.md", docs)
    reproduction.update(ROOT / "results", docs, docs / "README.md")
    page.update(ROOT / "results" / "arena.jsonl", docs)
    benchmarks.update(docs)
    return docs


@pytest.mark.parametrize("name", [*PAGES, "BENCHMARKS.md", "README.md"])
def test_a_page_has_what_the_results_give(written, name):
    committed = ROOT / name if name == "README.md" else ROOT / "docs" / name
    assert (written / name).read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")


def test_figures_are_drawn_from_the_results_to_the_same_bytes_and_shown(written):
    text = "".join((written / name).read_text(encoding="utf-8") for name in PAGES)
    drawn = {path.name: path.read_bytes() for path in (written / "figures").iterdir()}
    assert set(re.findall(r"\(figures/(\w+\.png)\)", text)) == set(drawn)
    for name, content in drawn.items():
        assert (ROOT / "docs" / "figures" / name).read_bytes() == content, name
        assert len(content) < 150_000


def test_numbers_of_results_are_in_generated_blocks_alone(written):
    """Hand-written sentences name settings (T = 10 s, seeds), never outcomes in percent or joules."""
    for name in PAGES:
        text = (written / name).read_text(encoding="utf-8")
        by_hand = re.sub(r"<!-- generated.*?<!-- end -->", "", text, flags=re.DOTALL)
        found = re.findall(r"\d+\.\d+ ?%|\d+ J\b", by_hand)
        assert set(found) <= {"95.5 %", "10 J", "20 J"}, name


def test_only_blocks_are_replaced(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n<!-- generated: y -->\n<!-- end -->\n")
    fill(path, {"x": "new", "z": "no such block"})
    first = path.read_text()
    assert (
        first == "a\n<!-- generated: x -->\n\nnew\n\n<!-- end -->\nb\n<!-- generated: y -->\n<!-- end -->\n"
    )
    fill(path, {"x": "new"})
    assert path.read_text() == first
