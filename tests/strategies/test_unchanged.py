"""Clients that return what they were sent: all goes well and nothing is learnt, which is said once."""

import numpy as np
import pytest
from flwr.server.strategy import FedAvg as ClassicFedAvg
from flwr.serverapp.strategy import FedAvg

from tests.strategies.drive import run

INNER = {
    "message": lambda: FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
    "classic": lambda: ClassicFedAvg(fraction_evaluate=0.0, min_fit_clients=1, min_available_clients=1),
}
MODEL = {"w": np.zeros(3), "n": np.array([2, 3])}


def notes(driver):
    return [note for record in driver.strategy.records for note in record.notes if "to the last bit" in note]


@pytest.mark.parametrize("api", INNER)
def test_a_model_that_stays_as_it_was_is_noticed_once(api, caplog):
    with caplog.at_level("WARNING", "flwr.mel"):
        driver = run(api, INNER[api](), MODEL, lambda k, cycle, arrays: (arrays, {}), cycles=4)
    (note,) = notes(driver)
    assert "clients must return the arrays that they trained" in note
    assert caplog.text.count("to the last bit") == 1


@pytest.mark.parametrize("api", INNER)
def test_one_who_learns_is_enough(api):
    def client(k, cycle, arrays):
        return {**arrays, "w": arrays["w"] + (k == 0)}, {}

    assert not notes(run(api, INNER[api](), MODEL, client))
