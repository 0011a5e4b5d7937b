"""Recordings are replayed as they are, and the promise is compared on them."""

import json

import numpy as np
import pytest

from bench import traces
from bench.learning import METHODS, Tally, run

BURST = np.array([1.0, 1.0, 0.25, 1.0])


def test_work_takes_as_long_as_the_recording_says():
    speed = traces.Speed(BURST, 0.5)
    assert speed.takes(0.0, 0.75) == pytest.approx(0.75)
    assert speed.takes(0.75, 0.5) == pytest.approx(0.25 + 0.5 + 0.125)  # through the burst
    assert speed.takes(2.0, 0.75) == pytest.approx(0.75)  # it begins anew
    assert speed.takes(0.0, 10 * 1.625) == pytest.approx(20.0)
    assert speed.mean(0.5, 1.5) == pytest.approx(0.625)
    assert np.isfinite(traces.Speed(np.array([0.0, 1.0]), 1.0).takes(0.0, 1e3))


def fleet(links, loads, cycles=40, seed=0):
    return traces.replay(links, loads, cycles, np.random.default_rng(seed))


def test_a_task_is_sent_done_and_sent_back():
    """The way back begins when training has ended, at the rate of those seconds."""
    bits = traces.MODEL_BITS
    link = traces.Speed(np.repeat([bits / 2, bits / 4], 5), 1.0)
    made = fleet([link], [traces.Speed(np.full(2, 0.5), 1.0)])
    made.begin[:] = 0.0
    made.idle_c2[:] = 0.1

    class Task:
        epochs, samples = 2, 10

    # 2 s down, 4 s of work at half speed, 4 s back at the lower rate.
    assert made.seconds(0, 0, Task) == pytest.approx((4.0, 2.0 + 4.0))
    Task.samples = 6
    # The way back begins at 4.4 s: 0.6 s of it have the higher rate, and the rest, seven tenths, the lower.
    assert made.seconds(0, 0, Task) == pytest.approx((2.4, 2.0 + 0.6 + 2.8))


def test_links_of_one_kind_are_read(tmp_path):
    path = tmp_path / "links.csv"
    lines = ["a,static,0,8,1", "a,static,1,16,1", "b,driving,0,4,1"]
    path.write_text("trace,mobility,second,down_kbit_s,up_kbit_s\n" + "\n".join(lines) + "\n")
    (static,) = traces.read_links(path, "static")
    assert static.values.tolist() == [8e3, 16e3]
    (driving,) = traces.read_links(path, "driving")
    assert driving.values.tolist() == [4e3]


def test_a_recording_can_be_replayed(tmp_path):
    path = tmp_path / "load.json"
    path.write_text(json.dumps(traces.record(1.2)))
    load = traces.read_load(path)
    assert len(load.values) >= 1
    assert (load.values <= 1).all()
    assert (load.values > 0).all()


def test_on_the_recorded_bursts_learning_is_late_less_often_than_simple_ways_and_does_more():
    made = fleet([traces.Speed(np.full(2, 1e7), 1.0)], [traces.read_load()], cycles=60)
    found = {}
    for method in ("declared", "moving average", "learning, 0.95"):
        counts = Tally()
        run(METHODS[method](), made, counts)
        found[method] = counts.summary()
    ours = found.pop("learning, 0.95")
    for other in found.values():
        assert ours["missed"] < 0.5 * other["missed"]
        assert ours["epochs_in_time"] > other["epochs_in_time"]
