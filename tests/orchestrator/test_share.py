"""No learner has more than a bounded share of the weight in the average."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_mel import InputError, wire
from flwr_mel.orchestrator import Orchestrator, Returned, Settings
from flwr_mel.orchestrator.averaging import Average, Work, blend, bounded_share, capped
from flwr_mel.records import CycleRecord
from tests.orchestrator.tools import finish, words


def test_the_default_follows_from_the_number_of_learners():
    assert [bounded_share("auto", k) for k in (1, 2, 3, 5, 6, 10, 50)] == [
        None, None, 0.5, 0.4, 1 / 3, 0.2, 0.04,
    ]  # fmt: skip
    assert bounded_share(None, 10) is None
    # What is asked for cannot be less than everybody's equal share.
    assert bounded_share(0.25, 10) == 0.25
    assert bounded_share(0.25, 3) == pytest.approx(1 / 3)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=12), st.floats(0.05, 1.0))
@settings(max_examples=300, deadline=None)
def test_nobody_has_more_and_nobody_else_changes(weights, share):
    found = capped(weights, [str(k) for k in range(len(weights))], share)
    allowed = max(share, 1 / len(weights))
    total = sum(found)
    assert all(1 <= new <= old for new, old in zip(found, weights, strict=True))
    assert all(new <= allowed * total * (1 + 1e-9) for new in found)
    # Who keeps less than the bound keeps what it has; who does not has as much as the bound allows.
    cut = [k for k in range(len(found)) if found[k] < weights[k]]
    assert all(found[k] == max(found) for k in cut)
    if cut and max(found) > 1000:
        assert max(found) / total == pytest.approx(allowed, rel=0.01)
    if max(weights) <= share * sum(weights):
        assert found == weights


def test_two_updates_of_one_learner_are_bounded_together():
    found = capped([500, 500, 100, 100, 100], ["a", "a", "b", "c", "d"], 0.5)
    assert found == [150, 150, 100, 100, 100]


@pytest.mark.parametrize("average", list(Average))
def test_every_average_is_bounded(average):
    works = [Work(2, 10, 10, learner=str(k)) for k in range(4)] + [Work(2, 10**6, 10**6, learner="liar")]
    free, bound = blend(average, works), blend(average, works, 0.5)
    assert free.weights[-1] == 10**6
    assert bound.weights == (10, 10, 10, 10, 40)
    assert bound.bounded == (False, False, False, False, True)
    if average is not Average.SAMPLES:
        assert bound.shares[-1] == 0.5
    same = blend(average, works[:4], 0.5)
    assert same == blend(average, works[:4])


def liar_among(k, **options):
    """K learners of a hundred samples, and one that claims a million and endless speed."""
    fast = {**words("liar"), wire.MAX_SAMPLES: 10**6, **dict.fromkeys(wire.COEFFICIENTS, 1e-8)}
    brain = Orchestrator(Settings(cycle_time_s=2.0, seed=5, **options))
    for i in range(k):
        brain.hear(f"n{i}", words(i))
    brain.hear("liar", fast)
    return brain


def test_a_liar_does_not_own_the_average_and_the_record_says_so():
    for limit, most in (("auto", 0.4), (0.3, 0.3), (None, 1.0)):
        brain = liar_among(4, max_share=limit)
        plan = brain.plan(1, list(brain.state.learners))
        brain.settle(Returned({t.node: t.samples for t in plan.tasks}, {}, {}))
        blending = brain.blend([t.node for t in plan.tasks])
        record = brain.record
        (liar,) = [row for row in record.learners if row.learner == "liar"]
        assert liar.samples > 0.9 * record.total_samples  # it was believed: costs are declared
        if limit is None:
            assert blending is None
            assert not liar.bounded
            continue
        weights = dict(zip((t.node for t in plan.tasks), blending.weights, strict=True))
        assert weights["liar"] <= most * sum(weights.values()) < weights["liar"] + 1.0 / most
        assert set(blending.factors) == {1.0}
        share = weights["liar"] / sum(weights.values())
        assert liar.bounded == f"counts for {share:.1%} of the weight instead of 100.0%"
        assert all(not row.bounded for row in record.learners if row.learner != "liar")
        assert sum("liar" in note and "max_share" in note for note in record.notes) == 1
        assert CycleRecord.from_dict(record.as_dict()).learners == record.learners


def test_it_is_told_once_and_recorded_in_every_cycle():
    brain = liar_among(4)
    records = [finish(brain, brain.plan(n, list(brain.state.learners))) for n in (1, 2, 3)]
    assert [sum("max_share" in note for note in record.notes) for record in records] == [1, 0, 0]
    assert all(any(row.bounded for row in record.learners) for record in records)


def test_where_no_bound_binds_nothing_changes():
    brain = Orchestrator(Settings(cycle_time_s=2.0, total_samples=100))
    for k in range(5):
        brain.hear(f"n{k}", words(k))
    plan = brain.plan(1, list(brain.state.learners))
    brain.settle(Returned({t.node: t.samples for t in plan.tasks}, {}, {}))
    assert brain.blend([t.node for t in plan.tasks]) is None


def test_a_cycle_with_two_updates_of_a_larger_fleet_is_bounded():
    brain = liar_among(4)
    plan = brain.plan(1, list(brain.state.learners))
    tasks = {t.node: t.samples for t in plan.tasks}
    brain.settle(Returned({node: tasks[node] for node in ("n0", "liar")}, {}, {}))
    assert len(set(brain.blend(["n0", "liar"]).weights)) == 1


@pytest.mark.parametrize("share", [0, -0.1, 1.1, np.nan, "all", True])
def test_bad_shares(share):
    with pytest.raises(InputError, match="max_share"):
        Settings(max_share=share)
