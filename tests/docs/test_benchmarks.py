"""docs/BENCHMARKS.md shows the committed results, and `make bench` measures all of them."""

from pathlib import Path

from bench import paper_grid
from bench.page import PAGE, page
from bench.tables import load

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_of_the_committed_results():
    assert page() == PAGE.read_text(encoding="utf-8")


def test_the_paper_solvers_table_is_that_of_the_committed_results():
    text = PAGE.with_name("REPRODUCTION.md").read_text(encoding="utf-8")
    assert paper_grid.section(load("paper_grid")) in text
