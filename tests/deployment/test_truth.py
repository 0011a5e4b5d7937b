"""What the operator is told of real devices: the server's clock, and devices' own errors."""

import pytest
from flwr_mel.cli.watch.lines import cycle_line, remarks

from flwr_mel.records import Outcome, Standing
from tests.deployment.reference import records_of


@pytest.fixture(scope="module")
def without_data(federation):
    """A run in which the data of one device are not where they should be."""
    run_dir, data = federation.root / "truth", federation.root / "data-device-2"
    away = data.with_name("away")
    for name in federation.nodes:
        federation.pace(name, 1e-5)  # on the device's own clock, so that nearly all time is Flower's
    data.rename(away)
    try:
        federation.complete(cycles=1, cycle_time=60.0, max_epochs=1, learning=True, run_dir=str(run_dir))
    finally:
        away.rename(data)
        federation.reset_paces()
    (record,) = records_of(run_dir)
    return record


def test_missing_data_are_told_in_the_devices_own_words(without_data):
    rows = {row.learner: row for row in without_data.learners}
    row = rows["device-2"]
    assert row.outcome is Outcome.LEFT_OUT
    assert "FileNotFoundError: no x.npy in data-dir" in row.reason
    assert "FileNotFoundError: no x.npy in data-dir" in row.problem
    assert row.standing is Standing.IDLE
    assert any("device-2: " in text and "no x.npy" in text for text in remarks(without_data))
    assert [rows[f"device-{k}"].outcome for k in (0, 1)] == [Outcome.USED] * 2


def test_the_servers_clock_stands_beside_the_plan(without_data):
    record = without_data
    # From the questions on, which are before the tasks, to the end.
    assert 0 < record.waited_s < record.duration_s
    assert record.began_at + record.duration_s == pytest.approx(record.ended_at, abs=1.0)
    for row in record.learners[:2]:
        assert record.began_at < row.sent_at < row.received_at < record.ended_at
        assert row.took_s > row.reported_time_s
    assert max(row.took_s for row in record.learners[:2]) <= record.waited_s + 1.0
    # Processes are started and messages looked for, and no plan leaves that out.
    assert record.flower_s > 0
    assert all(row.receive_s + row.send_s > 0 for row in record.learners[:2])
    assert "are Flower's" in cycle_line(record, None)
