"""``flwr-mel report``."""

import shutil
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    # typer uses names that newer releases of click announce to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from flwr_mel.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")


def call(*args: object, code: int = 0):
    result = CliRunner().invoke(app, ["report", *map(str, args)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def test_command_line(several, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    shutil.copytree(several[0], run)
    assert call(run).stdout == f"{run / 'report.html'}\n"
    assert call(*several).stdout == "report.html\n"
    assert "3 runs compared" in (tmp_path / "report.html").read_text()
    assert call(run, "--out", "x/y.html").stdout == "x/y.html\n"
    assert Path("x/y.html").read_text() == (run / "report.html").read_text()
    for args, said in (
        ((run, "--out", run), "is a directory"),
        ((), "RUN"),
    ):
        failed = call(*args, code=2)
        assert failed.stdout == ""
        assert said in failed.stderr
        assert len(failed.stderr.strip().splitlines()) == 1
    assert "flwr-mel report runs/ha-asyn" in call("--help").stdout


def test_a_file_of_records_is_a_run_of_either_kind(several, tmp_path):
    records = (several[0] / "records.jsonl").read_text()
    (tmp_path / "mine.jsonl").write_text(records)
    assert call(tmp_path / "mine.jsonl").stdout == f"{tmp_path / 'report.html'}\n"
    assert "mine" in (tmp_path / "report.html").read_text()
    whole = tmp_path / "whole"
    shutil.copytree(several[0], whole)
    call(whole, "--out", tmp_path / "by-directory.html")
    call(whole / "records.jsonl", "--out", tmp_path / "by-file.html")
    one, other = ((tmp_path / f"by-{how}.html").read_text() for how in ("directory", "file"))
    assert one == other


def test_a_directory_with_another_file_of_records_names_it(tmp_path):
    (tmp_path / "cycles.jsonl").write_text("")
    assert "Perhaps" in call(tmp_path, code=2).stderr
