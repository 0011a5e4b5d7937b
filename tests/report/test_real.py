"""The report on a run on real devices: the server's clock beside the plan."""

from flwr_mel.records import LearnerRecord, Outcome, Standing
from tests.cli.watch.test_real import NOW, real
from tests.report.helpers import add, page


def a_run(path, learners=22):
    kept = real(learners)
    kept.cycle, kept.waited_s, kept.duration_s = 1, 9.5, 12.0
    over = real(learners)
    over.cycle = 2
    return add(path, kept, over)


def test_what_happened_stands_beside_the_plan(tmp_path):
    text = page(a_run(tmp_path)).text
    assert "The last report came within T in 1 of 2 cycles." in text
    assert "Of a cycle, 14.2 s are Flower's (median)." in text
    assert "By the server's clock it came after 81.1 s." in text
    assert "Time 102 s 51 s per cycle, planned 18 s" in text
    assert "phone-13 idle 2023-11-14" in text
    assert "ValueError: no profile" in text
    assert "phone-99" in text


def test_times_are_in_the_data(tmp_path):
    (data,) = page(a_run(tmp_path)).data
    assert [row["waited_s"] for row in data["cycles"]] == [9.5, 81.1]
    assert data["cycles"][0]["began_at"] == NOW


def test_strange_times_do_not_break_the_page(tmp_path):
    record = real(3, began_at=1e300, gone={"<b>": 1e300})
    record.learners[0] = LearnerRecord("pi", "1", Outcome.LATE, standing=Standing.LATE, since=-1e300)
    assert "<b>" in page(add(tmp_path, record)).text
