"""Strategies of the Message API with a `start` of their own keep it, with its arguments and defaults."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import FedAvg

from tests.cycle.tools import App
from tests.strategies.fleet import FakeGrid, Fleet, MessageApi


class Logged(FedAvg):
    """As Flower's advanced examples: saves something, then lets Flower run the rounds."""

    def start(self, grid, initial_arrays, num_rounds=4, *, folder="out", **more):
        self.folder = folder
        self.result = super().start(grid, initial_arrays, num_rounds=num_rounds, **more)
        return self.result


class Own(FedAvg):
    """Its own loop, arguments in another order, and only the ones that it needs."""

    def start(self, grid, initial_arrays, timeout, rounds):
        arrays, self.rounds = initial_arrays, []
        for n in range(1, rounds + 1):
            messages = self.configure_train(n, arrays, ConfigRecord(), grid)
            replies = grid.send_and_receive(messages, timeout=timeout)
            arrays, _ = self.aggregate_train(n, replies)
            self.rounds.append(n)
        return arrays


def given():
    fleet = Fleet([App(own=2, pace=1e-3 * s) for s in (1, 3)])
    return FakeGrid(fleet), ArrayRecord({"b": Array(np.zeros(3, np.float32))})


def test_it_may_call_flowers():
    inner = MessageApi.inner(Logged)
    mel = MessageApi.mel.MelStrategy(inner)
    result = mel.start(*given(), folder="here", timeout=1)
    assert inner.folder == "here"
    assert mel.folder == "here"
    assert len(mel.records) == 4  # its own default
    assert result.arrays["b"].numpy()[0] > 0
    assert result.records == list(mel.records)
    # Afterwards the strategy inside is as it was.
    assert type(inner) is Logged
    assert inner.configure_train.__func__ is FedAvg.configure_train


def test_it_may_have_a_loop_and_arguments_of_its_own():
    inner = MessageApi.inner(Own)
    mel = MessageApi.mel.MelStrategy(inner)
    arrays = mel.start(*given(), 1.0, 3)
    assert inner.rounds == [1, 2, 3]
    assert mel.records[0].status == "baseline"
    assert arrays["b"].numpy()[0] > 0


def test_an_argument_that_does_not_exist_is_not_swallowed():
    for kind in (FedAvg, Own):
        mel = MessageApi.mel.MelStrategy(MessageApi.inner(kind))
        with pytest.raises(TypeError, match="num_round"):
            mel.start(*given(), num_round=5)


def test_positional_arguments():
    mel = MessageApi.mel.MelStrategy(MessageApi.inner())
    seen = []
    mel.start(*given(), 2, 1.0, None, None, lambda n, _: seen.append(n))
    assert seen == [0, 1, 2]
    assert len(mel.records) == 2
