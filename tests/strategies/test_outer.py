"""A strategy around `MelStrategy`, such as Flower's DP wrappers, sees every update before it counts."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp import strategy as flower

from flwr_mel.serverapp import MelFedAvg, MelStrategy
from tests.strategies.test_across_cycles import HELD, MODEL, SPEEDS, SlowGrid, T, clock, fleet_app  # noqa: F401

CLIP = 0.01


class Sees(MelFedAvg):
    """Notes how far updates are from the model of the cycle."""

    def __init__(self, **options):
        super().__init__(**options)
        self.norms = []

    def configure_train(self, server_round, arrays, config, grid):
        self.model = [array.numpy() for array in arrays.values()]
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        for reply in replies:
            new = [array.numpy() for array in reply.content["arrays"].values()]
            self.norms.append(
                np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(new, self.model, strict=True)))
            )
        return super().aggregate_train(server_round, replies)


def trained(clock, *, simulated, slowed=None, around=True):  # noqa: F811
    inner = Sees(fraction_evaluate=0.0, min_train_nodes=len(SPEEDS), min_available_nodes=len(SPEEDS))
    mel = MelStrategy(inner, cycle_time_s=T, min_samples=HELD, max_epochs=9, enforce_deadline=True)
    strategy = flower.DifferentialPrivacyServerSideFixedClipping(mel, 0.0, CLIP, 5) if around else mel
    grid = SlowGrid(fleet_app(simulated=simulated, calls=[]), clock, slowed, simulated=simulated)
    model = ArrayRecord({key: Array(a) for key, a in MODEL.items() if a.dtype.kind == "f"})
    strategy.start(mel.timed(grid), model, num_rounds=9)
    return mel, inner


@pytest.mark.parametrize("simulated", [False, True], ids=["real", "simulated"])
def test_no_update_gets_past_the_clipping(clock, simulated):  # noqa: F811
    mel, inner = trained(clock, simulated=simulated, slowed={(1, 2): 2.0})
    assert len(inner.norms) > 4 * 9 - 3
    assert max(inner.norms) <= CLIP * (1 + 1e-5)
    moved = [row.learner for record in mel.records for row in record.learners if row.moved_weight]
    told = [note for record in mel.records for note in record.notes if "around MelStrategy" in note]
    if simulated:  # replies pass through the wrapper when they are made, and count later
        assert set(moved) == {"4"}
        assert told == []
    else:
        assert moved == []
        assert len(told) == 1
        assert told[0].startswith("DifferentialPrivacyServerSideFixedClipping is")


def test_without_a_wrapper_slow_ones_work_across_cycles(clock):  # noqa: F811
    mel, inner = trained(clock, simulated=False, around=False)
    assert max(inner.norms) > 10 * CLIP
    assert any(row.moved_weight for record in mel.records for row in record.learners)
