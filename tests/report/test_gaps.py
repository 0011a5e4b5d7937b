"""Runs with gaps, files that are none, and arguments that cannot be meant."""

import sys

import pytest

from flwr_mel import InputError
from flwr_mel.records import JsonlWriter, TensorBoardWriter
from flwr_mel.report import load_run, render, write_report
from flwr_mel.report.ledger import MOST_CLASSES, OTHER, _classes
from flwr_mel.report.numerals import finite
from tests.cli.watch.tools import cycle
from tests.report.helpers import page


def without_metrics(path):
    for n in (1, 2):
        record = cycle(n)
        record.metrics = {}
        JsonlWriter(path / "records.jsonl")(record)
    return path


def test_runs_without_metrics_are_shown_all_the_same(tmp_path):
    runs = [load_run(without_metrics(tmp_path / name)) for name in "ab"]
    assert "nan" not in page(runs[0].path).text
    assert "No accuracy is on record." in render(runs)


def test_a_single_run_needs_no_list_and_none_is_refused(tmp_path):
    written = write_report(without_metrics(tmp_path / "a"), tmp_path / "page.html")
    assert written.read_text() == render([load_run(tmp_path / "a")])
    with pytest.raises(InputError, match="runs must be at least one run directory"):
        write_report([], tmp_path / "page.html")


def test_records_that_are_no_text_are_named(tmp_path):
    (tmp_path / "records.jsonl").write_bytes(b'{"cycle": 1, "x": "\xff"}\n')
    with pytest.raises(InputError, match=r"records.jsonl: the text must be UTF-8, got b'\\xff'"):
        load_run(tmp_path)


def test_many_classes_are_put_together():
    names = [f"kind-{chr(97 + k)}-{n}" for k in range(MOST_CLASSES + 3) for n in range(2 if k < 2 else 1)]
    classes = dict(_classes(names, ()))
    assert len(classes) == MOST_CLASSES
    assert [classes["kind-a"], classes["kind-b"]] == [["kind-a-0", "kind-a-1"], ["kind-b-0", "kind-b-1"]]
    assert sum(map(len, classes.values())) == len(names)
    assert len(classes[OTHER]) == 4


def test_numbers_that_no_float_holds_are_none():
    assert str(finite(10**400)) == "nan"


def test_what_tensorboard_needs_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard torch"):
        TensorBoardWriter(tmp_path)
