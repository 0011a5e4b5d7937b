"""What a client's words mean."""

import math

import pytest

from flwr_mel import Measured, wire
from flwr_mel._validate import MAX_COUNT
from flwr_mel.cycle.reports import Profile, Report, label_of, measurement, partition_of, problem_of, whole
from flwr_mel.cycle.reports import declared as read_profile
from tests.cycle.tools import COSTS, declared

ABSURD = [None, True, "1", b"1", [1.0], math.nan, math.inf, -1, -0.5, 10**400, 1e300]


def read(words):
    return read_profile(words, None, None)


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
    flags = {wire.STOPS: 1, wire.STOPPED: 1, wire.VIRTUAL: 1}
    assert Report.parse(flags) == Report(stops=True, stopped=True, virtual=True)
    assert Report.parse(dict.fromkeys(flags, "1")) == Report()


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
def test_a_declaration_that_cannot_be_right_is_rejected(key, value):
    with pytest.raises(ValueError, match=key):
        read({**declared(), key: value})


def test_values_that_go_together():
    with pytest.raises(ValueError, match="go together"):
        read({wire.CPU_HZ: 1e9})
    with pytest.raises(ValueError, match="go together"):
        read({wire.COEFFICIENTS[0]: 1e-3})
    assert read({}) == Profile()


def test_words_that_are_left_out_do_not_hold_any_more():
    first = Profile().after({**declared(), wire.ENERGY_LIMIT_J: 5.0, wire.MAX_SAMPLES: 100}, None, None)
    assert (first.costs, first.energy_limit_j, first.max_samples) == (COSTS, 5.0, 100)
    second = first.after({wire.MAX_SAMPLES: 0}, None, None)
    assert (second.costs, second.energy_limit_j, second.max_samples) == (None, None, 0)


def test_the_same_words_are_the_same_profile():
    words = {**declared(), wire.MAX_SAMPLES: 100, wire.KIND: "phone"}
    first = Profile().after(words, None, None)
    assert first.kind == "phone"
    assert first.after({**words, wire.TRAIN_SECONDS: 3.0}, None, None) is first


def test_a_rejected_declaration_changes_nothing_but_the_problem():
    first = Profile().after(declared(), None, None)
    odd = first.after({**declared(), wire.CPU_HZ: -5.0}, None, None)
    assert odd.costs == COSTS
    assert "rejected" in odd.problem
    assert odd.after(declared(), None, None).problem == ""


def test_a_default_device_stands_in_for_what_is_not_declared():
    default = Measured(*COSTS, energy_limit_j=7.0, max_samples=40)
    profile = Profile().after({wire.MAX_SAMPLES: 9}, None, default)
    assert (profile.costs, profile.energy_limit_j, profile.max_samples) == (COSTS, 7.0, 9)
    assert Profile().after({}, None, default).max_samples == 40


def test_a_task_that_was_cut_counts_for_what_the_app_claims():
    """Only where nothing was counted, and only for less than was chosen."""
    cut = Report(used=100, stopped=True)
    assert cut.with_examples(30) == Report(used=30, drawn=30.0, stopped=True)
    for claimed in (100, 500, 0, None, "many"):
        assert cut.with_examples(claimed) == cut
    for other in (Report(used=100), Report(used=100, drawn=64.0, stopped=True), Report(stopped=True)):
        assert other.with_examples(30) == other


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
