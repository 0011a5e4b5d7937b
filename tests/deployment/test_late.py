"""A device that is late: the others go on, and its update is in a later model, to the bit."""

import numpy as np
import pytest

from flwr_mel.records import Outcome
from tests.deployment.reference import model_of, records_of, replayed
from tests.deployment.test_faults import cycles_in
from tests.waiting import wait_for


@pytest.mark.slow
def test_late_is_not_lost(federation):
    """One device does not finish its first task before the first cycle is over without it.

    A further case: over a real SuperLink an update counts in a later cycle in `test_slow_upload`, and to the
    bit in tests/simulation/test_spans.py.
    """
    run_dir, cycles = federation.root / "late", 4
    federation.pace("device-0", 0.0)
    federation.pace("device-1", 0.0)
    federation.pace("device-2", -1.0, 0.0)
    app = federation.app_declaring(0.2, 10.0)
    config = {"cycle_time": 600.0, "samples": 24, "max_epochs": 1, "learning": False}
    config |= {"stragglers": "span", "quorum": 0.6, "run_dir": str(run_dir)}
    run = federation.submit(app, cycles=cycles, **config)
    try:
        wait_for(lambda: cycles_in(run_dir) >= 1, pause_s=0.1)
        federation.release("device-2")
        assert federation.finish(run)[0] == "completed"
    finally:
        federation.release("device-2")
        federation.reset_paces()
    records = records_of(run_dir)
    rows = {record.cycle: row for record in records for row in record.learners if row.learner == "device-2"}
    assert rows[1].outcome is Outcome.BUSY
    moved = [(cycle, row.moved_from) for cycle, row in rows.items() if row.moved_weight]
    assert (moved[0][0] > 1, moved[0][1]) == (True, 1)
    assert len({begun for _, begun in moved}) == len(moved)
    # A quorum of two of three goes on without whoever is last: everybody's turn comes, nobody's work is lost.
    for got, wanted in zip(model_of(run_dir), replayed(records), strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(got.view(np.uint32), wanted.view(np.uint32))
