"""Pages that come from results are what the committed results give: `make docs` would change nothing."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from mel_simulation.arena import page as arena
from mel_simulation.paper import objectives, past_the_paper, reproduction, stragglers
from mel_simulation.paper.figures import style

ROOT = Path(__file__).parents[2]
RESULTS = [f"results/{name}.jsonl" for name in ("headline", "past", "paper")]
PAGES = ("REPRODUCTION.md", "PAST_THE_PAPER.md", "OBJECTIVES.md", "STRAGGLERS.md", "ARENA.md")


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """Write all pages as `make docs` does, but for the pixels of the figures; return where they are."""
    out, drawn = tmp_path_factory.mktemp("docs"), []
    shutil.copy(ROOT / "README.md", out)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(style, "save", lambda _, where, name: drawn.append(name) or where / f"{name}.png")
        where = ["--out", str(out)]
        varied = ["--variations", "results/variations.jsonl"]
        varied = varied if Path(varied[1]).exists() else []
        reproduction.main([*RESULTS, "--lemma", "results/lemma.jsonl", *varied, *where])
        past_the_paper.main([*RESULTS, *where, "--readme", str(out / "README.md")])
        objectives.main(["results/objectives.jsonl", *where])
        stragglers.main(["results/stragglers.jsonl", "results/phones.jsonl", *where])
        arena.main(["results/arena.jsonl", "--stragglers", "results/stragglers.json", *where])
    return out, drawn


@pytest.mark.parametrize("name", [*PAGES, "README.md"])
def test_a_page_says_what_the_results_say(docs, name):
    committed = ROOT / name if name == "README.md" else ROOT / "docs" / name
    assert (docs[0] / name).read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")


def test_every_figure_of_the_pages_is_there_and_is_drawn_from_results(docs):
    out, drawn = docs
    assert drawn
    for name in drawn:
        assert (ROOT / "docs/figures" / f"{name}.png").is_file()
        shown = [page for page in PAGES if f"figures/{name}.png" in (out / page).read_text(encoding="utf-8")]
        assert shown, f"{name} is on no page"


@pytest.mark.parametrize("name", PAGES)
def test_headings_stand_apart_from_what_is_above_them(docs, name):
    lines = (docs[0] / name).read_text(encoding="utf-8").splitlines()
    tight = [line for above, line in pairwise(lines) if line.startswith("#") and above]
    assert not tight
