"""The baseline round: what it includes beside the work, and that the work is kept."""

import pytest

from flwr_mel.strategy import final_line
from tests.cycle.tools import App, Run

SLOW = (1, 1, 3, 10)


def cold(start_s, slowness=SLOW):
    return Run([App(own=2, held=350, pace=1e-3 * s, start_s=start_s) for s in slowness])


@pytest.mark.parametrize(("start_s", "rounds"), [(0.0, 2), (3.0, 2), (100.0, 4)])
def test_the_time_to_start_counts_for_few_rounds(start_s, rounds):
    """Gains are compared with the project's own round without it."""
    records = cold(start_s).rounds(8)
    assert records[0].baseline_s > start_s
    assert records[1].baseline_s == pytest.approx(7.01, rel=0.1, abs=0.05 * start_s)
    for record in records[2:]:
        assert record.baseline_s == pytest.approx(7.01, rel=0.1)
        assert record.waited_s <= 0.55 * 7.01
    for record in records[rounds:]:
        assert record.waited_s < 2.0  # the slowest client alone takes 7 s for its own work
        assert record.waited_s == pytest.approx(record.makespan_s, rel=0.15)
    before = float(final_line(records).rpartition("instead of ")[2].partition(" s")[0])
    assert before == pytest.approx(7.01, rel=0.1)


def test_a_derived_t_keeps_the_projects_own_work():
    """Whole epochs and a steady T cost a few percent at most."""
    for slowness in (SLOW, (4, 4, 4, 4), (1, 2, 5, 10)):
        records = cold(0.0, slowness).rounds(8)
        own = 2 * 350 * len(slowness)
        for record in records[1:]:
            assert sum(row.epochs * row.samples for row in record.learners) >= 0.9 * own
