"""Dead workers; last of all tests on the engine, because each costs an engine."""

import numpy as np
import pytest

from flwr_mel.records import Outcome
from tests.flower.harness import row


@pytest.mark.parametrize("api", ["message", pytest.param("classic", marks=pytest.mark.slow)])
def test_a_client_process_that_dies_is_named_and_the_run_ends_with_a_model(api, runs):
    run = runs[api]
    assert run.result("dies")["error"] is None
    first, second = run.records("dies")
    for record in (first, second):
        assert row(record, 0).outcome is Outcome.FAILED
        assert "died" in row(record, 0).reason
    assert all(np.isfinite(w).all() for w in run.weights("dies"))
