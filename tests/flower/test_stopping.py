"""Stopping criteria and infeasible cycles, through both APIs."""

import numpy as np
import pytest

from tests.flower import lab
from tests.flower.scenarios import STOP_ROUNDS

STOPS = {
    "stop-cycles": (2, "2 cycles done"),
    "stop-target": (2, "accuracy reached 0.9 (target 0.9)"),
    "stop-time": (2, "s of virtual time used (limit 3)"),
    "stop-energy": (2, "J used (limit 60)"),
    "stop-battery": (1, "the battery of 4 (2 J) does not last"),
    "stop-patience": (2, "no better accuracy for 1 cycles"),
}


@pytest.mark.parametrize("name", STOPS)
def test_after_the_stop_nobody_gets_work_and_the_result_says_why(run, name):
    cycle, words = STOPS[name]
    at, reason = run.result(name)["stopped"]
    assert at == cycle < STOP_ROUNDS
    assert words in reason
    records = run.records(name)
    assert [record.cycle for record in records] == list(range(1, cycle + 1))
    assert [record.stopped for record in records] == [""] * (cycle - 1) + [reason]
    assert max(c for c, _ in run.calls(name)) == cycle


def test_virtual_time_and_energy_add_up(run):
    first, second = run.records("stop-time")
    assert second.clock_s == pytest.approx(first.makespan_s + second.makespan_s)
    assert second.total_energy_j == pytest.approx(first.energy_j + second.energy_j)
    assert first.makespan_s == max(r.time_s for r in first.learners) <= first.cycle_time_s
    assert all(r.energy_j <= r.energy_limit_j for r in first.learners)
    assert all(r.reported_time_s > 0 for r in first.learners)


def test_infeasible_error_stops_with_the_diagnosis(run):
    assert "the largest total_samples that fits is 1,580" in run.result("infeasible-error")["error"]


def test_infeasible_skip_leaves_the_model_alone(run):
    records = run.records("infeasible-skip")
    assert [record.status for record in records] == ["skipped", "skipped"]
    assert all(record.notes and not record.total_samples for record in records)
    assert not run.calls("infeasible-skip")
    for ours, start in zip(run.weights("infeasible-skip"), lab.initial_weights(), strict=True):
        np.testing.assert_array_equal(ours, start)


def test_infeasible_relax_uses_what_fits_and_says_so(run):
    # Learner 7 has no energy in cycle 2, so that less fits.
    for record, fits in zip(run.records("infeasible-relax"), (1580, 1506), strict=True):
        assert record.total_samples == fits < record.asked_samples
        assert f"{fits:,} do" in record.notes[0]
