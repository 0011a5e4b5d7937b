"""The comparison of several runs."""

import json
import shutil

import numpy as np
import pytest

from flwr_mel.records import CycleRecord
from flwr_mel.report import load_run, render
from flwr_mel.report.charts import ranged
from flwr_mel.report.numerals import JOULES, SECONDS, measure, percent
from flwr_mel.report.series import cost_of, series
from tests.report.helpers import add, lines, make_run, page


def plain(text: str) -> str:
    """The page's text has single spaces only."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    base = tmp_path_factory.mktemp("seeds")
    asyn = [make_run(base / f"x{n}", staleness=2, cycles=8 - n, seed=n) for n in range(3)]
    return [*asyn, make_run(base / "y", "ha-sync", cycles=8)]


def test_overlay_compares_the_runs(several):
    found = page(*several)
    for expected in ("3 runs compared", "HA-Asyn", "HA-Sync", "HU-Sync", "What differs", "to 94%"):
        assert expected in found.text
    for axis in ("cycles", "virtual time", "energy"):
        assert f"Accuracy against {axis}" in found.text
    assert len(found.data) == 3
    for run, data in zip(several, found.data, strict=True):
        records = lines(run)
        accuracy = [r["metrics"]["accuracy"] for r in records]
        assert [c["metrics"]["accuracy"] for c in data["cycles"]] == accuracy
        assert f"{percent(accuracy[-1])} {percent(max(accuracy))} {len(records)} " in found.text


def test_an_accuracy_costs_cycles_time_and_energy(several):
    text = page(*several).text
    for run in several[:2]:
        first = next(r for r in lines(run) if r["metrics"]["accuracy"] >= 0.94)
        spent = f"{measure(first['clock_s'], SECONDS)}, {measure(first['total_energy_j'], JOULES)}"
        assert f"{first['cycle']} cycles {plain(spent)}" in text
    never = page(several[2]).text
    assert "95%, the target \u2013 \u2013 \u2013" in never


def test_seeds_of_one_set_up_are_one_series_with_a_band(seeds):
    found, runs = page(*seeds), [lines(run) for run in seeds]
    assert "4 runs compared" in found.text
    assert "HA-Asyn c=2 3 runs" in found.text
    assert "Runs that differ in their seeds alone are put together." in found.text
    ends = [records[-1]["metrics"]["accuracy"] for records in runs[:3]]
    assert f"{percent(np.mean(ends))} {percent(min(ends))} to {percent(max(ends))}" in found.text
    text = render([load_run(run) for run in seeds])
    assert text.count('class="band"') == 6
    assert len({d["run"] for d in found.data}) == 4
    # The mean of cycle 8 is that of the runs that got there.
    (one,) = [row for row in series([load_run(run) for run in seeds]) if len(row.runs) == 3]
    accuracy = [[r["metrics"]["accuracy"] for r in records] for records in runs[:3]]
    _, middle, _ = ranged(one.accuracy)
    assert middle[0] == np.mean([curve[0] for curve in accuracy])
    assert middle[7] == accuracy[0][7]


def test_an_accuracy_that_some_seed_missed_has_no_cost(seeds):
    rows = series([load_run(run) for run in seeds])
    last = [max(r["metrics"]["accuracy"] for r in lines(run)) for run in seeds[:3]]
    assert cost_of(rows[0], sorted(last)[1]) == ("\u2013", "2 of 3 runs")
    assert cost_of(rows[0], 1.0) == ("\u2013", "")


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ([{"staleness": 1}, {"staleness": 2}], ["c=1", "c=2"]),
        ([{"cycle-time": 10.0, "energy": 5.0}, {"cycle-time": 20.0, "energy": 5.0}], ["T=10", "T=20"]),
        ([{"scheme": "ha-sync"}, {"scheme": "ha-asyn"}], ["HA-Sync", "HA-Asyn c=2"]),
        ([{"learning-rate": 0.1}, {"learning-rate": 0.2}], ["learning-rate=0.1", "learning-rate=0.2"]),
        ([{"seed": 3}, {"seed": 4}], ["seed 3", "seed 4"]),
        ([{"run-dir": "a"}, {"run-dir": "b"}], ["0", "1"]),
        ([{"fleet": "x/small.toml"}, {"fleet": "x/large.toml"}], ["small.toml", "large.toml"]),
        ([{"fleet": "a.toml", "energy": 1.0}, {"fleet": "a.toml", "energy": 2.0}], ["0", "1"]),
    ],
)
def test_runs_are_named_by_what_differs(tmp_path, changes, want):
    runs = []
    for n, change in enumerate(changes):
        path = add(tmp_path / str(n), CycleRecord(1, 10.0, metrics={"accuracy": 0.5}))
        config = {"scheme": "ha-asyn", "staleness": 2, "energy": 10.0, "dataset": "mnist", "seed": 0} | change
        (path / "config.json").write_text(json.dumps({"config": config}))
        runs.append(path)
    found = page(*runs)
    assert [data["run"] for data in found.data] == want
    assert f"{want[0]} " in found.text


def test_runs_of_one_name_are_told_apart(paper, tmp_path):
    for place in ("x", "y"):
        (tmp_path / place / "run").mkdir(parents=True)
        shutil.copy(paper / "records.jsonl", tmp_path / place / "run")
    names = [d["run"] for d in page(tmp_path / "x/run", tmp_path / "y/run", tmp_path / "y/run").data]
    assert names == ["x/run", "y/run", "y/run #2"]


def test_many_runs(paper):
    found = page(*[paper] * 12)
    assert len({d["run"] for d in found.data}) == 12
