"""The diffs of docs/ADD_TO_YOUR_PROJECT.md make ordinary Flower apps heterogeneity-aware."""

import json
import re

import pytest

from tests.flower.harness import ROOT

APPS = ("vanilla_message", "vanilla_classic")


def diff_of(app):
    page = (ROOT / "docs" / "ADD_TO_YOUR_PROJECT.md").read_text()
    (diff,) = [
        d for d in re.findall(r"```diff\n(.*?)```", page, re.DOTALL) if f"+++ tests/flower/{app}.py" in d
    ]
    return diff


def source_of(app):
    return (ROOT / "tests" / "flower" / f"{app}.py").read_text()


def apply_diff(text, diff):
    """Apply a diff whose hunks need no line numbers: each old text occurs once."""
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines()
        old = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
        new = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def work_of(output):
    """Epochs and samples of every client, round by round."""
    return [json.loads(line[5:]) for line in re.findall(r"WORK .*", output)]


@pytest.fixture(params=APPS)
def app(request):
    return request.param


def played(engine, directory, text):
    """Return the work that an app's clients do, round by round."""
    path = directory / "app.py"
    path.write_text(text)
    return work_of(engine.play(path, directory, nodes=8))


def test_the_app_knows_nothing_of_us_and_changes_by_five_lines_at_most(app):
    assert "mel" not in source_of(app)
    added = [line for line in diff_of(app).splitlines()[2:] if line.startswith("+")]
    assert 0 < len(added) <= 5


def test_before_everybody_does_the_same(app, engine, tmp_path):
    assert played(engine, tmp_path, source_of(app)) == [[[5, 300]] * 8] * 2


def test_after_everybody_does_what_it_can(app, engine, tmp_path):
    rounds = played(engine, tmp_path, apply_diff(source_of(app), diff_of(app)))
    assert len(rounds) == 2
    for work in rounds:
        assert len({epochs for epochs, _ in work}) == 2
        assert len({samples for _, samples in work}) >= 3
        assert sum(samples for _, samples in work) == 1200
