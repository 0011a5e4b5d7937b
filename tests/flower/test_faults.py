"""Learners that fail, lie or talk nonsense: the run ends with a model, the record names who and why."""

import numpy as np
import pytest

from flwr_mel.records import Outcome
from tests.flower import clients, lab
from tests.flower.harness import row

REFUSED = {
    clients.NAN: "not finite",
    clients.SHAPE: "shape (12, 783) instead of (12, 784)",
    clients.METRICS: "metrics do not fit",
    clients.MANY: "arrays",
    clients.BYTES: "shape (200000,) instead of (12,)",
    clients.NOTHING: "trained on no samples",
}


@pytest.mark.parametrize("k", REFUSED)
def test_a_bad_update_is_refused_for_one_cycle(run, k):
    _, second, third = run.records("faults")
    assert row(second, k).outcome is Outcome.REFUSED
    assert REFUSED[k] in row(second, k).reason
    assert row(second, k).weight == 0
    assert row(third, k).outcome is Outcome.USED


def test_a_client_that_raises_is_named_with_its_words(run):
    failed = row(run.records("faults")[1], clients.RAISES)
    assert failed.outcome is Outcome.FAILED
    assert failed.reason.endswith("broken on purpose")


def test_a_claim_of_ten_times_the_samples_gains_no_weight(run):
    lied = row(run.records("faults")[1], clients.LIES)
    assert lied.outcome is Outcome.USED
    assert lied.weight == lied.samples


def test_the_average_is_of_the_good_updates_by_allocated_samples(run):
    """Clients of this scenario move every weight by 0.01 (1 + k), so that the model tells the weights."""
    moved = 0.0
    for record in run.records("faults"):
        used = [r for r in record.learners if r.weight]
        total = sum(r.weight for r in used)
        moved += sum(0.01 * (1 + int(r.learner)) * r.weight / total for r in used)
    for ours, start in zip(run.weights("faults"), lab.initial_weights(), strict=True):
        np.testing.assert_allclose(ours - start, moved, rtol=1e-4)


@pytest.mark.parametrize(
    ("k", "words"),
    [
        (clients.SAYS_NAN, "mel-cpu-hz must be a finite number, got nan"),
        (clients.SAYS_NEGATIVE, "mel-rate-bps must be between"),
        (clients.SAYS_ABSURD, "mel-energy-limit-j must be between"),
        (clients.SAYS_TEXT, "mel-learner must be"),
        (clients.GARBAGE, "its capabilities are refused"),
    ],
)
def test_impossible_capabilities_are_noted_and_change_nothing(run, k, words):
    first, second, third = run.records("faults")
    notes = first.notes if k != clients.GARBAGE else second.notes
    assert any(note.startswith(f"{k}: ") and words in note for note in notes)
    assert row(second, k).outcome is Outcome.USED
    assert row(third, k).outcome is Outcome.USED
    if k == clients.GARBAGE:
        assert row(second, k).reported_time_s is None


def test_a_capability_function_that_raises_does_not_stop_its_learner(run):
    assert [row(r, clients.ASKED_IN_VAIN).outcome for r in run.records("faults")] == [Outcome.USED] * 3


def test_an_impossibly_fast_learner_gets_no_more_epochs_than_staleness_allows(run):
    for record in run.records("faults"):
        epochs = [r.epochs for r in record.learners if r.epochs]
        assert row(record, clients.TOO_FAST).epochs <= min(epochs) + lab.STALENESS


def test_when_all_fail_in_the_first_cycle_the_run_fails(run):
    (record,) = run.records("all-fail")
    assert all(r.outcome is Outcome.FAILED and "everybody fails" in r.reason for r in record.learners)
    error = run.result("all-fail")["error"]
    assert error.startswith("NobodyWorks: the model stays untrained")
    assert "everybody fails" in error


def test_when_all_fail_later_the_old_model_stays(run):
    first, second = run.records("all-fail-later")
    assert all(r.outcome is Outcome.USED for r in first.learners if r.samples)
    asked = [r for r in second.learners if r.samples]
    assert asked
    assert all(r.outcome is Outcome.FAILED and "everybody fails" in r.reason for r in asked)
    assert run.result("all-fail-later")["error"] is None
    same = [
        np.array_equal(ours, start)
        for ours, start in zip(run.weights("all-fail-later"), lab.initial_weights(), strict=True)
    ]
    assert not all(same)


def test_learners_without_the_mod_are_left_out(run):
    for record in run.records("silent"):
        out = [r for r in record.learners if "does not say what it can do" in r.reason]
        assert len(out) == 3
        assert not any(r.samples for r in out)
        assert sum(r.weight for r in record.learners) == lab.TOTAL
    assert {k for _, k in run.calls("silent")} <= set(range(3, lab.LEARNERS)) | {0, 1, 2}
    assert {k for cycle, k in run.calls("silent") if cycle} == set(range(3, lab.LEARNERS))


def test_learners_without_the_mod_work_by_the_default_profile(run):
    for record in run.records("default"):
        assert sum(r.outcome is Outcome.USED for r in record.learners) >= lab.LEARNERS - 1
        nameless = [r for r in record.learners if r.learner == r.node]
        assert len(nameless) == 3
        assert all(0 < r.weight <= 50 for r in nameless)


def test_learners_come_and_go(run):
    first, second, third = run.records("come-and-go")
    there = [{r.node for r in record.learners} for record in (first, second, third)]
    assert [len(nodes) for nodes in there] == [10, 20, 10]
    assert there[0].isdisjoint(there[2])
    for record in (first, second, third):
        # What is asked of the fleet is asked of those who are chosen in proportion.
        assert sum(r.weight for r in record.learners) == 300 * len(record.learners) // lab.LEARNERS


def test_nobody_waits_for_a_learner_that_has_no_task(run):
    records = run.records("slow-idle")
    assert len(records) == 3
    for record in records:
        assert not row(record, clients.IDLE).samples
        assert sum(r.weight for r in record.learners) == lab.TOTAL
    # Cycle 3 began before it had answered the question that it was asked in cycle 1.
    assert (run.path / "slow-idle.answer").read_text() == "in cycle 3"


def test_a_learner_that_hangs_is_dropped_at_the_deadline_and_gets_less_next_time(run):
    first, second = run.records("hang")
    late = row(first, 3)
    assert (late.outcome, late.reason) == (Outcome.LATE, "no reply in time")
    assert late.limited_by == "staleness"  # it could do more epochs than the slowest allows
    assert first.makespan_s == first.cycle_time_s
    assert sum(r.outcome is Outcome.USED for r in first.learners) == lab.LEARNERS - 1
    again = row(second, 3)
    assert again.slowdown > 1.4
    assert again.epochs * again.samples < late.epochs * late.samples
    assert again.time_s <= second.cycle_time_s
