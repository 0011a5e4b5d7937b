"""Nobody waits for a learner that has no task: waits are counted, no clock is looked at."""

import pytest

from flwr_mel import wire
from tests.strategies.fleet import Fleet, words

TIRED = {wire.ENERGY_LIMIT_J: 1e-9}


def fleet(k=4, **more):
    return Fleet({node: words(str(node), **more) for node in range(1, k + 1)})


def test_idle_learners_are_asked_while_others_train_and_never_waited_for(start):
    many = fleet()
    many.nodes[4] = words("4", **TIRED)
    training = start(many)
    assert training.cycle(1) == {1, 2, 3}
    before = many.waits
    many.mute.add(4)
    for cycle in (2, 3, 4):
        assert training.cycle(cycle) == {1, 2, 3}
    assert many.waits == before
    # One question at a time: the first is still open.
    assert [cycle for cycle, node in many.asked if node == 4] == [1, 2]
    many.mute.clear()
    many.nodes[4] = words("4")
    training.cycle(5)  # hears the answer to the old question, and asks again
    assert training.cycle(6) == {1, 2, 3, 4}
    assert many.waits == before


def test_a_newcomer_is_not_waited_for_when_half_of_the_others_are_known(start):
    many = fleet()
    training = start(many)
    training.cycle(1)
    before = many.waits
    many.nodes[5] = words("5")
    many.mute.add(5)
    assert training.cycle(2) == {1, 2, 3, 4}
    assert training.strategy.records[-1].learners[-1].reason == "has not said yet what it can do"
    many.mute.clear()
    assert training.cycle(3) == {1, 2, 3, 4, 5}
    assert many.waits == before


def test_newcomers_are_waited_for_once_when_few_others_are_known(start):
    many = fleet()
    many.mute = {2, 3, 4}
    training = start(many)
    assert training.cycle(1) == {1}
    once = many.waits
    assert many.now == pytest.approx(50.0, abs=0.2)  # probe_timeout_s
    assert training.cycle(2) == {1}
    assert many.waits == once
    many.mute.clear()
    assert training.cycle(3) == {1, 2, 3, 4}
    assert many.waits == once


def test_newcomers_that_were_not_waited_for_are_when_they_are_needed(start):
    many = fleet()
    training = start(many)
    training.cycle(1)
    many.nodes |= {node: words(str(node)) for node in (5, 6)}
    many.mute = {5, 6}
    training.cycle(2)
    assert many.now < 50
    for node in (1, 2, 3, 4):
        del many.nodes[node]
    training.cycle(3)
    assert many.now >= 50


def test_a_simulation_may_wait_so_that_one_seed_gives_one_result(start):
    many = fleet()
    many.nodes[4] = words("4", **TIRED)
    training = start(many, idle_timeout_s=30.0)
    training.cycle(1)
    many.mute.add(4)
    before = many.now
    training.cycle(2)
    assert many.now - before == pytest.approx(30.0, abs=0.2)


@pytest.mark.parametrize("bad", [{"probe_timeout_s": 0}, {"idle_timeout_s": -1}, {"probe_timeout_s": "x"}])
def test_times_are_checked(start, bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        start(fleet(), **bad)


def test_learners_that_are_not_chosen_yet_are_asked_once_beside_the_training(start):
    """With one in ten chosen, cycles met strangers for dozens of cycles, and waited for them."""
    many = fleet(20)
    training = start(many)
    inner = training.strategy.strategy
    for name in ("fraction_train", "fraction_fit"):
        if hasattr(inner, name):
            setattr(inner, name, 0.1)
    training.cycle(1)
    waits = many.waits
    for cycle in range(2, 8):
        assert len(training.cycle(cycle)) == 2
        assert all(row.reason == "" for row in training.strategy.records[-1].learners)
    assert many.waits == waits
    assert sorted({node for _, node in many.asked}) == list(range(1, 21))
    assert len(many.asked) == 20
