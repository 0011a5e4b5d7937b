"""The pace of a cycle: no claim slows the others or puts them out."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from flwr_mel.orchestrator import Settings
from flwr_mel.orchestrator.cycle_time import as_planned
from flwr_mel.orchestrator.hearing import hear
from flwr_mel.orchestrator.pacing import find_pace
from flwr_mel.orchestrator.problems import Limits
from flwr_mel.orchestrator.state import State
from tests.orchestrator.span_tools import T, brain, row_of, virtual_cycle, words


@pytest.mark.parametrize("total", [None, 990])
@pytest.mark.parametrize("slow", [1.0001 / 165, 0.02, 0.3, 0.9])
def test_one_slow_learner_slows_nobody(total, slow):
    """Ten at 165 epochs and one that just manages one: everybody did 2."""
    options = {"total_samples": total, "min_samples": 90}
    alone = virtual_cycle(brain(**options), 1)
    kept = virtual_cycle(brain(slow, **options, stragglers="keep"), 1)
    assert max(row.epochs for row in kept.learners) <= 165 / 0.9 * slow + 2
    for policy in ("span", "exclude"):
        record = virtual_cycle(brain(slow, **options, stragglers=policy), 1)
        for k in range(10):
            assert row_of(record, f"l{k}").epochs >= row_of(alone, f"l{k}").epochs >= 165


@pytest.mark.parametrize("policy", ["span", "exclude"])
def test_a_claim_of_samples_slows_nobody(policy):
    """With all data as the total, a claim of 2**40 samples brought everybody down to one epoch."""
    made = brain(min_samples=1, stragglers=policy)
    made.hear("liar", words("liar", held=2**40))
    record = virtual_cycle(made, 1)
    assert min(row_of(record, f"l{k}").epochs for k in range(10)) == 165
    assert [row_of(record, f"l{k}").samples for k in range(10)] == [100] * 10
    assert row_of(record, "liar").samples <= 100


@pytest.mark.parametrize("policy", ["span", "exclude"])
def test_a_claim_of_speed_puts_nobody_out(policy):
    """The highest sum of epochs is that of one learner alone if it says it is a million times faster."""
    made = brain(stragglers=policy, total_samples=1000)
    made.hear("liar", words("liar", 1e6))
    record = virtual_cycle(made, 1)
    assert all(row_of(record, f"l{k}").epochs >= 165 for k in range(10))


def test_a_minority_moves_the_pace_by_its_share_at_most():
    rng = np.random.default_rng(3)
    for trial in range(20):
        made = brain(learners=0, total_samples=None)
        honest = rng.uniform(0.7, 1.3, 12)
        for k, speed in enumerate(honest):
            made.hear(f"n{k}", words(f"l{k}", speed))
        before = virtual_cycle(copy.deepcopy(made), 1).pace
        for k in range(3):
            made.hear(f"liar{k}", words(f"liar{k}", 10 ** rng.uniform(-4, 4)))
        after = virtual_cycle(made, 1).pace
        assert after >= before * (1 - 3 / 15), trial
        assert after <= 165 * honest.max() + 1


def test_the_pace_maximises_the_throughput():
    """Against all paces there are, by brute force."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        options = {"min_samples": int(rng.integers(50, 200)), "max_epochs": 200, "max_span": 3}
        settings = as_planned(Settings(cycle_time_s=T, stragglers="span", **options), T)
        speeds = np.exp(rng.normal(0, 1.0, int(rng.integers(1, 9))))
        state = hear(State(), settings, {f"n{k}": words(f"l{k}", s) for k, s in enumerate(speeds)})
        who = [replace(x, costs=x.capability.measured) for x in state.learners.values()]
        limits = Limits.of(who, settings)
        ways = [limits.within(m, settings) for m in (1, 2, 3)]
        least = np.full(len(who), settings.min_samples)
        total = int(rng.integers(1, 100 * len(who)))
        free = np.ones(len(who), dtype=bool)
        found = find_pace(ways, least, total, free)

        def worth(tau, ways=ways, total=total):
            most = np.stack([way.most_epochs for way in ways])
            spans = [
                next((m for m in (1, 2, 3) if most[m - 1, k] >= tau), None) for k in range(most.shape[1])
            ]
            keep = most[0] >= tau
            fits = 2 * keep.sum() >= len(keep) and ways[0].at(tau)[keep].sum() >= total
            return tau * sum(1 / m for m in spans if m) if fits or tau == 1 else -1

        best = max(worth(tau) for tau in range(1, 201))
        assert worth(found.epochs) == pytest.approx(best)
