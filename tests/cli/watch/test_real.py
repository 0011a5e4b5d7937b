"""Runs on real devices: what happened stands before the plan, and who needs attention before the others."""

import pytest

from flwr_mel.cli.watch.lines import clock, cycle_line, explain, remarks
from flwr_mel.records import LearnerRecord, Outcome, Standing
from tests.cli.watch.test_showing import drawn
from tests.cli.watch.tools import cycle

NOW = 1_700_000_000.0


def real(learners=50, **fields):
    """A cycle of real devices: one failed, one late, one that works on, one with a problem, one gone."""
    times = {"began_at": NOW, "ended_at": NOW + 90, "duration_s": 90.0, "waited_s": 81.1, "flower_s": 14.2}
    record = cycle(
        4, learners=learners, **{**times, "makespan_s": 9.3, "gone": {"phone-99": NOW - 60}, **fields}
    )
    for k, row in enumerate(record.learners):
        row.sent_at, row.received_at = NOW + 1, NOW + 9 + k / 100
        row.standing, row.since = Standing.IDLE, row.received_at
    if learners > 20:
        failed, late, busy, ill = record.learners[10:14]
        failed.outcome, failed.reason = Outcome.FAILED, "FileNotFoundError: no x.npy"
        late.outcome, late.standing, late.since = Outcome.LATE, Standing.LATE, NOW + 11
        busy.outcome, busy.standing, busy.since = Outcome.BUSY, Standing.WORKING, NOW - 300
        ill.problem = "ValueError: no profile"
        for row in (failed, late, busy):
            row.received_at = None
    return record


def test_what_happened_stands_beside_the_plan():
    text = cycle_line(real(), None)
    assert "last report 81.1 s, planned 9.3 of 10 s" in text
    assert f"ended {clock(NOW + 90)} after 90 s" in text
    assert "of 10 s 14.2 s are Flower's" in text
    assert "planned clock 36 s" in text
    plain = cycle_line(cycle(4), None)
    assert "last report 9 of 10 s" in plain
    assert "Flower" not in plain
    assert "ended" not in plain


def test_words_for_real_learners():
    rows = real().learners
    assert explain(rows[0]).endswith("limited by energy; took 8 s, planned 9 s")
    assert explain(rows[11]).endswith(f"late since {clock(NOW + 11)}")
    assert explain(rows[12]).endswith(f"busy; working since {clock(NOW - 300)}")
    assert explain(rows[13]).endswith("it says: ValueError: no profile")
    assert f"gone, 1: phone-99 since {clock(NOW - 60)}" in remarks(real())


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (66, 14)])
def test_fifty_devices_are_readable(width, height):
    lines = drawn(real(), width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "51 learners: 1 gone, 1 failed, 1 late, 1 busy, 47 used" in text
    assert "last report 81.1 s, planned 9.3 of 10 s" in text
    if height >= 24:
        names = [line.split()[0] for line in lines if line.startswith("phone-")]
        # Gone, failed, late, with a problem, at work; then those who took longest against their plan.
        first = ["phone-99", "phone-10", "phone-11", "phone-13", "phone-12", "phone-49", "phone-48"]
        assert names[:7] == first
        assert "more learners" in text


def test_strangers_words_are_cleaned():
    record = real()
    record.learners[13].problem = "x\x1b[2J"
    record.gone = {"evil\x1b[2J": 1e300}
    text = "\n".join([*drawn(record, 160, 50), *remarks(record), explain(record.learners[13])])
    assert "\x1b" not in text


def test_a_task_of_several_cycles_is_told_where_it_is_planned_for_more_than_one():
    record = real(3)
    record.learners[0].span, record.learners[0].time_s = 2, 18.0
    (line,) = [line for line in drawn(record, 120, 24) if "18 s" in line]
    assert "used, task of 2 cycles" in line


def test_a_row_without_times_has_none():
    row = LearnerRecord("pi", "1")
    assert row.took_s is None
    assert "took" not in explain(row)
