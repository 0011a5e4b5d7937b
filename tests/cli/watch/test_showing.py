"""Cycles in words and in a view that fits the terminal."""

import io

import pytest
from rich.console import Console

from flwr_mel.cli.watch.lines import cycle_line, explain, remarks
from flwr_mel.cli.watch.screen import main_metric, sparkline, view
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from flwr_mel.records.follow import History
from tests.cli.watch.tools import cycle


def test_words_for_learners():
    row = LearnerRecord("7", "123", Outcome.USED, epochs=3, samples=812, limited_by="energy")
    assert explain(row) == "node 7: 3 epochs, 812 samples, limited by energy"
    row = LearnerRecord("pi", "1", Outcome.LATE, "no reply", 1, 1, limited_by="time")
    assert explain(row) == "pi: 1 epoch, 1 sample, limited by time; late: no reply"
    assert explain(LearnerRecord("pi", "1", reason="too slow")) == "pi: left out, too slow"
    moved = LearnerRecord("pi", "1", Outcome.USED, epochs=1, samples=1, limited_by="time")
    moved.moved_weight, moved.moved_from = 5, 2
    assert explain(moved) == "pi: 1 epoch, 1 sample, limited by time; its update of cycle 2 is used"


def test_words_for_a_cycle():
    text = cycle_line(cycle(7, total_energy_j=742.0), 12)
    for part in (
        "cycle 7 of 12: 3 of 3 learners used",
        "accuracy 70.00 %",
        "last report 9 of 10 s",
        "clock 63 s",
    ):
        assert part in text
    assert text.endswith("energy 742 J")
    # What JSON could not carry is null in the file.
    gaps = cycle_line(
        CycleRecord.from_dict(cycle(1, bound=float("inf"), makespan_s=float("nan")).as_dict()), None
    )
    assert "last report - of 10 s" in gaps


def test_losses_come_before_those_left_out_and_are_grouped():
    record = cycle(1, learners=5, notes=["fewer samples"])
    for k, (outcome, reason) in enumerate(
        [(Outcome.LEFT_OUT, "slow"), (Outcome.LATE, "silent"), (Outcome.LATE, "silent")]
    ):
        record.learners[k].outcome, record.learners[k].reason = outcome, reason
    assert remarks(record) == [
        "fewer samples",
        "late, 2: phone-1, phone-2: silent",
        "left out, 1: phone-0: slow",
    ]


def test_the_metric_that_is_drawn():
    history = History()
    assert main_metric(history) == ""
    history.add(cycle(1, metrics={"f1": 0.5, "train-loss": 2.0}))
    assert main_metric(history) == "train-loss"
    history.add(cycle(2, metrics={"eval-accuracy": 0.5}))
    assert main_metric(history) == "eval-accuracy"
    assert main_metric(history, "f1") == "f1"


def test_sparklines():
    nan = float("nan")
    assert sparkline([0, 1, nan, 7]) == "▁▂ █"
    assert sparkline([nan]) == ""
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert len(sparkline([-1.7e308, 1.7e308])) == 2
    assert sparkline([0, 7], ascii_only=True).isascii()


def drawn(record, width, height):
    out = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    history = History()
    history.add(record)
    out.print(view(out, history, "runs/mine", "running", cycles=12))
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (110, 30), (200, 60), (66, 12)])
@pytest.mark.parametrize("learners", [1, 20, 1000])
def test_the_view_fits(width, height, learners):
    record = cycle(7, learners=learners, notes=["lowered [red]", *["x" * 300] * 9])
    lines = drawn(record, width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert "cycle 7 of 12" in lines[1]
    assert sum("phone-" in text for text in lines) == learners or any(
        "more learner" in text for text in lines
    )


def test_problems_come_first_when_not_all_fit():
    record = cycle(3, learners=1000)
    record.learners[700].outcome, record.learners[700].reason = Outcome.FAILED, "no memory"
    record.learners[800].outcome, record.learners[800].reason = Outcome.LATE, "silent"
    record.learners[900].reported_time_s, record.learners[900].slowdown = 11.0, 1.35
    lines = drawn(record, 100, 30)
    names = [text.split()[0] for text in lines if text.startswith("phone-")]
    assert names[:4] == ["phone-700", "phone-800", "phone-900", "phone-0"]
    assert any("used, planned 1.35 times slower" in text for text in lines)
    hidden = next(text for text in lines if "more learners" in text)
    assert f"{1000 - len(names)} used" in hidden
    # Everybody in the order of the record where there is room.
    few = cycle(3, learners=5)
    few.learners[4].outcome = Outcome.FAILED
    assert [t.split()[0] for t in drawn(few, 100, 30) if t.startswith("phone-")] == [
        f"phone-{k}" for k in range(5)
    ]


def test_learners_cannot_move_the_cursor():
    record = cycle(1, notes=["bell \a"])
    record.learners[0].learner, record.learners[0].reason = "evil\x1b[2J", "x\r\ny"
    text = "\n".join(drawn(record, 100, 30)) + explain(record.learners[0]) + "".join(remarks(record))
    assert "\x1b" not in text
    assert "\a" not in text
    assert "evil\ufffd[2J" in text
