"""One registered liar does not own the model: it claims a million samples and endless speed.

The runs are those of bench/attacks.py, whose table has more of them.
"""

import pytest

from bench import attacks as bench
from tests import attacks


@pytest.fixture(scope="module")
def digits():
    return bench.digits()


@pytest.fixture(autouse=True)
def _outside_of_flowers_runtime(monkeypatch):
    attacks.outside_runtime(monkeypatch)


@pytest.mark.parametrize("attack", ["sign flip x 5", "zero", "label flip"])
def test_a_liar_that_owned_the_model_is_in_the_minority(attack, digits):
    open_, bound = (
        bench.run(defence, attack, (1, 5), 0, digits) for defence in ("MelStrategy, no bounds", "bounded")
    )
    assert open_["liars_weight"] > 0.98
    assert open_["accuracy"] < 0.2
    assert bound["liars_weight"] <= 0.4
    assert bound["accuracy"] > 0.5


def test_bounds_cost_honest_fleets_nothing(digits):
    free, bound = (
        bench.run(defence, "none", (1, 5), 0, digits) for defence in ("MelStrategy, no bounds", "bounded")
    )
    assert bound["accuracy"] > free["accuracy"] - 0.03


@pytest.mark.parametrize("defence", ["bounded, Krum inside", "bounded, trimmed mean inside"])
def test_robust_strategies_inside_do_the_rest(defence, digits):
    found = bench.run(defence, "sign flip x 5", (1, 5), 0, digits)
    assert found["accuracy"] > 0.7
