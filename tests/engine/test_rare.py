"""Labels that only slow clients hold, on Flower's engine with the guide's recipe."""

from dataclasses import replace
from statistics import mean

import pytest
from mel_simulation.arena.rare import METHODS, SETTING, Watched

from tests.engine.rare import rounds
from tests.mnist import FULL_MNIST, needs_mnist

CLIENTS = 20


@pytest.fixture
def trained(engine, tmp_path):
    def train(*given, **more):
        found = rounds(engine, tmp_path, *given, **more)
        for row in found:
            assert row["used"] == CLIENTS
            assert row["makespan_s"] <= row["cycle_time_s"]
        return found

    return train


def late(rounds, key):
    """Return the mean over the last quarter of the rounds."""
    return mean(row[key] for row in rounds[-max(len(rounds) // 4, 1) :])


@pytest.mark.engine
def test_the_recipe_learns_rare_labels(trained):
    """The costs of each round are those of the arena's clock, and so is the accuracy, but for the draws."""
    found = trained("digits", 40, seed=0, frugality=0.25)
    assert late(found, "rare") > 0.7
    assert late(found, "accuracy") > 0.85
    world = Watched(replace(SETTING, task="digits"), 0, found[-1]["clock_s"] + 1e-6)
    METHODS["rate, f = 0.25"].run(world)
    for row, (clock_s, energy_j, *_) in zip(found, world.curve, strict=True):
        assert row["clock_s"] == pytest.approx(clock_s)
        assert row["energy_j"] == pytest.approx(energy_j)
    quarter = world.curve[-max(len(world.curve) // 4, 1) :]
    assert late(found, "accuracy") == pytest.approx(mean(x[2] for x in quarter), abs=0.03)


@pytest.mark.engine
@needs_mnist
def test_the_recipe_on_the_full_mnist(trained):
    """Half of the 120 virtual seconds suffice for 95 % and 90 %."""
    found = trained("mnist", 60, seed=2, frugality=0.25, data_dir=FULL_MNIST)
    assert late(found, "accuracy") >= 0.95
    assert late(found, "rare") >= 0.9
    reached = next(row for row in found if row["accuracy"] >= 0.85)
    assert reached["clock_s"] <= 12
    assert reached["energy_j"] <= 30
