"""What a client's words mean."""

import math

import pytest

from flwr_mel import Measured, wire
from flwr_mel._validate import MAX_COUNT
from flwr_mel.cycle.reports import Capability, Report, label_of, measurement, partition_of, problem_of, whole
from tests.cycle.tools import COSTS, declared

ABSURD = [None, True, "1", b"1", [1.0], math.nan, math.inf, -1, -0.5, 10**400, 1e300]


@pytest.mark.parametrize("value", ABSURD)
def test_what_cannot_be_measured_is_unknown(value):
    assert measurement(value) is None
    assert whole(value) is None
    words = dict.fromkeys((wire.TRAIN_SECONDS, wire.SAMPLES_USED, wire.SAMPLES_DRAWN, wire.OWN_EPOCHS), value)
    report = Report.parse(words | {wire.EPOCHS_READ: "yes"})
    assert report == Report()


def test_a_report():
    words = {wire.TRAIN_SECONDS: 2.5, wire.SAMPLES_USED: 40, wire.SAMPLES_HELD: 100, wire.SAMPLES_DRAWN: 120}
    report = Report.parse(words | {wire.EPOCHS_READ: 1, wire.OWN_EPOCHS: 3, wire.TRAIN_JOULES: 7})
    assert report == Report(2.5, 7.0, 3, True, 40, 100, 120.0)
    assert report.epochs_done == 3.0
    assert Report.parse({wire.EPOCHS_READ: 0}).read is False
    assert Report.parse({wire.TRAIN_SECONDS: 0}).train_s is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (wire.COEFFICIENTS[0], 0.0),
        (wire.COEFFICIENTS[1], -1e-9),
        (wire.COEFFICIENTS[2], math.nan),
        (wire.COEFFICIENTS[3], "fast"),
        (wire.ENERGY_LIMIT_J, 0),
        (wire.MAX_SAMPLES, 2.5),
        (wire.MAX_SAMPLES, MAX_COUNT + 1),
        (wire.CPU_HZ, 1e30),
    ],
)
def test_a_capability_that_cannot_be_right_is_rejected(key, value):
    with pytest.raises(ValueError, match=key):
        Capability.parse({**declared(), key: value})


def test_values_that_go_together():
    with pytest.raises(ValueError, match="go together"):
        Capability.parse({wire.CPU_HZ: 1e9})
    with pytest.raises(ValueError, match="go together"):
        Capability.parse({wire.COEFFICIENTS[0]: 1e-3})
    assert Capability.parse({}) == Capability()


def test_words_that_are_left_out_keep_their_value():
    base = Capability(Measured(*COSTS), 5.0, 100)
    assert Capability.parse({wire.MAX_SAMPLES: 0}).over(base) == Capability(base.device, 5.0, 0)


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\nb", b"x", None, 1.5, True, 2**70])
def test_labels_that_cannot_be_shown(name):
    assert label_of({wire.LEARNER: name}) is None


def test_labels():
    assert label_of({wire.LEARNER: " pi 4 "}) == "pi 4"
    assert label_of({wire.LEARNER: 7}) == "7"


def test_a_partition_counts_in_a_simulation_only():
    assert partition_of({wire.PARTITION: 3}) is None
    assert partition_of({wire.PARTITION: 3, wire.SIMULATED: 1}) == "3"


def test_a_problem_is_one_printable_line():
    text = problem_of({wire.PROBLEM: "\x1b[2J first\nsecond" + "x" * 999})
    assert text.isprintable()
    assert len(text) <= 301
