"""`make bench` measures every section of docs/BENCHMARKS.md."""

from pathlib import Path

from bench.page import SECTIONS

ROOT = Path(__file__).parents[2]


def test_make_bench_measures_every_section():
    target = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nbench:")[2].partition("\n\n")[0]
    for module in SECTIONS:
        assert module.__name__.removeprefix("bench.") in target
