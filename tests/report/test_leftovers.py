"""The report survives what runs leave behind."""

import math
import re
import shutil

import pytest

from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from flwr_mel.report import load_run, render
from tests.report.helpers import Page, add, make_run, page


def test_records_alone_suffice(paper, tmp_path):
    shutil.copy(paper / "records.jsonl", tmp_path)
    text = page(tmp_path).text
    assert "No configuration is on record" in text
    assert f"{tmp_path.name} 20 learners" in text


def test_interrupted_run_shows_what_it_had(paper, tmp_path):
    whole = (paper / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_text("".join(whole[:7]) + whole[7][:200])
    shutil.copy(paper / "config.json", tmp_path)
    run = load_run(tmp_path)
    assert len(run.records) == 7
    assert not run.complete
    found = page(tmp_path)
    assert "interrupted after cycle 7 of 12" in found.text
    assert "last line of records.jsonl is cut off" in found.text
    assert [c["cycle"] for c in found.data[0]["cycles"]] == [1, 2, 3, 4, 5, 6, 7]


def test_a_cycle_on_record_twice_is_shown_once(paper, tmp_path):
    whole = (paper / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_text("".join([*whole[:3], *whole[2:]]))
    found = page(tmp_path)
    assert [c["cycle"] for c in found.data[0]["cycles"]] == list(range(1, 13))
    assert "on record more than once" in found.text


def test_cycles_in_which_nobody_worked(several):
    found = page(several[2])
    assert "nobody works in this cycle: Infeasible" in found.text
    assert "No learner had work in any cycle." in found.text
    assert "Learners 0 worked, of 20" in found.text


@pytest.mark.parametrize(
    "records",
    [
        [CycleRecord(1, 10.0)],
        [CycleRecord(1, 10.0, notes=["no learner says what it can do"]), CycleRecord(2, 10.0)],
        [CycleRecord(3, 5.0, metrics={"accuracy": math.nan, "f1": 0.5})],
        [CycleRecord(1, 1e-9, mean_epochs=math.inf, bound=math.nan, metrics={"accuracy": 1.0})],
        [CycleRecord(c, 10.0, clock_s=1e9 * c, metrics={"accuracy": 0.1}) for c in (1, 2, 900)],
        [CycleRecord(1, 10.0, learners=[LearnerRecord("a", "1"), LearnerRecord("a", "2")])],
        [
            CycleRecord(
                1, 10.0, learners=[LearnerRecord("", "1", Outcome.USED, "", 10**9, 2**40, 1, 11.0, 9e9, 1.0)]
            )
        ],
    ],
    ids=["empty", "notes", "nan", "inf", "sparse", "same name", "huge and over"],
)
def test_odd_records(tmp_path, records):
    found = page(add(tmp_path, *records))
    assert [c["cycle"] for c in found.data[0]["cycles"]] == [r.cycle for r in records]
    assert not re.search(r"\bnan\b|\binf\b", found.text.lower())


def test_one_cycle(tmp_path):
    found = page(make_run(tmp_path / "one", cycles=1))
    assert "Final accuracy" in found.text
    assert len(found.data[0]["cycles"]) == 1


def test_long_run_merges_cells(tmp_path):
    run = make_run(tmp_path / "long", cycles=100, learners=4)
    text = render([load_run(run)])
    assert max(len(re.findall("<rect", s)) for s in re.findall(r"<svg.*?</svg>", text, flags=re.S)) <= 90
    assert "cycle 1\u20132" in text


def test_thousand_learners_are_shown_by_class(tmp_path):
    run = make_run(tmp_path / "thousand", cycles=3, learners=1000, lose=False)
    text = render([load_run(run)])
    found = Page(text)
    assert "1,000 learners" in found.text
    assert "laptop \u00d7 250" in found.text
    assert text.count("<svg") < 30
    assert len(text) < 2_000_000
    assert len(found.data[0]["learners"]) == 1000


def test_broken_side_files_are_noticed_not_fatal(paper, tmp_path):
    shutil.copy(paper / "records.jsonl", tmp_path)
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "summary.json").write_text("[1]")
    text = page(tmp_path).text
    assert "config.json cannot be read and is left out" in text
    assert "summary.json is left out" in text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "No such file or directory"),
        ({}, "a run must be a directory with records.jsonl"),
        ({"records.jsonl": ""}, "a run must be one with a finished cycle"),
        ({"records.jsonl": '{"cycle": 1'}, "a run must be one with a finished cycle"),
        ({"records.jsonl": "oops\n{}\n"}, "line 1: the line must be a cycle record, got 'oops'"),
    ],
)
def test_errors_name_the_path_and_what_is_missing(tmp_path, files, message):
    run = tmp_path / "run"
    for name, text in (files or {}).items():
        run.mkdir(exist_ok=True)
        (run / name).write_text(text)
    if files == {}:
        run.mkdir()
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_run(run)
    assert str(run) in str(caught.value)
