"""The diffs of docs/ADD_TO_YOUR_PROJECT.md make ordinary Flower apps heterogeneity-aware."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.flower.harness import ROOT, run_python

APPS = ("vanilla_message", "vanilla_classic")


def diff_of(app):
    page = (ROOT / "docs" / "ADD_TO_YOUR_PROJECT.md").read_text()
    (diff,) = [
        d for d in re.findall(r"```diff\n(.*?)```", page, re.DOTALL) if f"+++ tests/flower/{app}.py" in d
    ]
    return diff


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


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Output of both apps, as they are and changed."""
    scripts = {}
    for app in APPS:
        text = (ROOT / "tests" / "flower" / f"{app}.py").read_text()
        for name, content in ((app, text), (f"{app} changed", apply_diff(text, diff_of(app)))):
            directory = tmp_path_factory.mktemp("app")
            (directory / "app.py").write_text(content)
            scripts[name] = directory
    with ThreadPoolExecutor(2) as pool:
        runs = {name: pool.submit(run_python, [str(d / "app.py")], d) for name, d in scripts.items()}
        return {name: run.result() for name, run in runs.items()}


@pytest.mark.parametrize("app", APPS)
def test_the_app_knows_nothing_of_us_and_changes_by_five_lines_at_most(app):
    assert "mel" not in (ROOT / "tests" / "flower" / f"{app}.py").read_text()
    added = [line for line in diff_of(app).splitlines()[2:] if line.startswith("+")]
    assert 0 < len(added) <= 5


@pytest.mark.parametrize("app", APPS)
def test_before_everybody_does_the_same(app, outputs):
    assert work_of(outputs[app]) == [[[5, 300]] * 8] * 2


@pytest.mark.parametrize("app", APPS)
def test_after_everybody_does_what_it_can(app, outputs):
    rounds = work_of(outputs[f"{app} changed"])
    assert len(rounds) == 2
    for work in rounds:
        assert len({epochs for epochs, _ in work}) == 2
        assert len({samples for _, samples in work}) >= 3
        assert sum(samples for _, samples in work) == 1200
