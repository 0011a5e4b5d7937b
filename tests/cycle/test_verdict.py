"""One verdict per client and round; a client without a task has a reason."""

from dataclasses import replace

import numpy as np
import pytest

from flwr_mel import Rounds, Shards
from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.learner import Behaviour, Identity, Learner, Patience
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.population import Population
from flwr_mel.cycle.reports import Profile
from flwr_mel.cycle.state import State
from flwr_mel.cycle.verdict import Do, Verdict, decide

COSTS = (1e-3, 0.0, 0.1, 1e-3, 0.0, 0.1)
FOLLOWS = Behaviour(own_epochs=2, held=600, reads=True, chooses=True, stops=False)
DERIVED, GIVEN, BEST = Options(), Options(cycle_time_s=5.0), Options(cycle_time_s="best")
SHARDS = Options(cycle_time_s=5.0, shards=Shards((np.zeros((30, 2)),)))
OBSERVED = Options(rounds=Rounds(observe=True))


def learner(key="1", **more):
    x = Learner(Identity(key, key, key, answered=True, modded=True, simulated=True))
    return replace(x, **more)


def seen(key="1", tasks=3, behaviour=FOLLOWS, **more):
    """A client that did so many tasks."""
    estimate = replace(Estimate.declared(COSTS, None), seen=tasks)
    return learner(key, estimate=estimate, behaviour=behaviour, **more)


def of(x, options, others=(), cycle=5):
    state = State().with_learners([*others, x])
    return decide(x, options, Population.of(state, options), cycle)


def identity(**what):
    return learner(identity=replace(learner().identity, **what))


OTHERS = [seen("8"), seen("9")]
STOPPING = [seen(k, behaviour=replace(FOLLOWS, stops=True)) for k in "89"]
EPOCHS_ONLY = [seen(k, behaviour=replace(FOLLOWS, chooses=False)) for k in "89"]
DEAF = replace(FOLLOWS, reads=False, chooses=False)
NOT_FOLLOWING = [seen(k, behaviour=DEAF) for k in "89"]


@pytest.mark.parametrize(
    ("x", "options", "others", "do", "first"),
    [
        # Known clients get a plan.
        (seen(), DERIVED, OTHERS, Do.PLAN, False),
        (seen(), GIVEN, (), Do.PLAN, False),
        (seen(), BEST, OTHERS, Do.PLAN, False),
        (seen(tasks=0), GIVEN, (), Do.PLAN, False),  # declared costs
        (seen(tasks=0), SHARDS, (), Do.PLAN, False),
        # Nothing is planned while it is observed.
        (seen(), OBSERVED, OTHERS, Do.OWN, False),
        (learner(), OBSERVED, OTHERS, Do.OWN, False),
        # The first round is the project's own, and with "best" a small one.
        (learner(), DERIVED, (), Do.OWN, True),
        (learner(), GIVEN, (), Do.OWN, True),
        (seen(tasks=0), DERIVED, (), Do.OWN, True),  # its own epochs are not known
        (learner(), BEST, (), Do.SMALL, True),
        (learner(), SHARDS, (), Do.SMALL, True),
        # A new client in a later round.
        (learner(), GIVEN, OTHERS, Do.PLAN, True),  # as slow as the slowest
        (learner(), GIVEN, STOPPING, Do.TIMED, True),
        (learner(), DERIVED, STOPPING, Do.TIMED, True),
        (learner(), BEST, STOPPING, Do.TIMED, True),
        (learner(), BEST, OTHERS, Do.SMALL, True),
        (learner(), BEST, EPOCHS_ONLY, Do.OWN, True),
        (learner(), GIVEN, NOT_FOLLOWING, Do.OWN, True),
        (learner(patience=Patience(1, 5)), GIVEN, STOPPING, Do.SMALL, True),  # late in its first task
        # A client that does not follow its tasks does its own work.
        (seen(behaviour=replace(FOLLOWS, own_tasks=1)), GIVEN, OTHERS, Do.OWN, False),
        (seen(behaviour=DEAF), DERIVED, NOT_FOLLOWING, Do.OWN, False),
        (seen(behaviour=DEAF), SHARDS, NOT_FOLLOWING, Do.PLAN, False),  # shards leave no choice
        # One that was too slow is measured again, one that was silent is planned.
        (seen(patience=Patience(2, 5, slow=True)), GIVEN, OTHERS, Do.SMALL, False),
        (seen(patience=Patience(2, 5, slow=False)), GIVEN, OTHERS, Do.PLAN, False),
    ],
)
def test_what_a_client_is_asked_to_do(x, options, others, do, first):
    assert of(x, options, others) == Verdict(do, first=first)


@pytest.mark.parametrize(
    ("x", "options", "reason"),
    [
        (learner(profile=Profile(max_samples=0)), GIVEN, "it declares that it has no samples"),
        (identity(answered=False), GIVEN, "it has not answered yet"),
        (identity(answered=False, problem="it is asleep"), GIVEN, "it is asleep"),
        (identity(modded=False), GIVEN, "it has no mel_mod"),
        (learner(profile=Profile(problem="rejected")), GIVEN, "rejected"),
        (identity(answered=False), SHARDS, "it has not answered, so it may be outside the simulation"),
        (identity(modded=False), SHARDS, "it has no mel_mod, so it may be outside the simulation"),
        (seen(patience=Patience(1, 6)), GIVEN, "it did not reply in time, and is asked again in round 6"),
        (
            seen(patience=Patience(1, 6, slow=True)),
            GIVEN,
            "it needs more than the round time, and is asked again in round 6",
        ),
        (
            seen(patience=Patience(1, 5, slow=True), profile=Profile(energy_limit_j=0.11)),
            GIVEN,
            "one epoch on the smallest batch does not fit into its energy limit",
        ),
        (
            seen(behaviour=replace(FOLLOWS, own_tasks=1, held=6000, own_drawn=12000)),
            GIVEN,
            "it does not follow its task, and its own work takes 12.1 s of T = 5 s. "
            "Use Assignment in the client",
        ),
        (
            seen(
                behaviour=replace(FOLLOWS, own_tasks=1, own_drawn=1200), profile=Profile(energy_limit_j=1.0)
            ),
            GIVEN,
            "it does not follow its task, and its own work uses 1.3 J of 1 J. Use Assignment in the client",
        ),
    ],
)
def test_why_a_client_has_no_task(x, options, reason):
    assert of(x, options, OTHERS) == Verdict.skip(reason)


def test_a_client_that_stops_in_time_may_do_its_own_work_whatever_it_takes():
    behaviour = replace(FOLLOWS, own_tasks=1, held=6000, own_drawn=12000, stops=True)
    assert of(seen(behaviour=behaviour), GIVEN, OTHERS).do is Do.OWN


def test_observing_waits_for_no_client_that_can_work():
    assert of(seen(patience=Patience(2, 9)), OBSERVED).do is Do.OWN
    assert of(identity(modded=False), OBSERVED).do is Do.SKIP


def test_a_skipped_client_has_a_reason_and_no_other_has_one():
    assert Verdict.skip("slow").reason == "slow"
    with pytest.raises(ValueError, match="reason"):
        Verdict(Do.SKIP)
    with pytest.raises(ValueError, match="reason"):
        Verdict.skip("")
    for do in Do:
        if do is not Do.SKIP:
            with pytest.raises(ValueError, match="reason"):
                Verdict(do, "why")
