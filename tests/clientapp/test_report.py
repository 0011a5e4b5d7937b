"""Answers and reports: capability, time, samples; errors of the mod never stop the app."""

import re
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from flwr_mel import Device, Measured, wire
from flwr_mel.clientapp import Assignment, MelMod, mel_mod
from flwr_mel.clientapp import mod as mod_module
from tests.clientapp.tools import (
    BASELINE,
    TASK,
    call,
    classic_call,
    context,
    message_app,
    probe,
    reply_to,
    task_message,
)

DEVICE = Device(1e9, 1e7, 0.1, energy_limit_j=5.0, max_samples=40)
WORDS = {
    wire.CPU_HZ: 1e9,
    wire.RATE_BPS: 1e7,
    wire.TX_POWER_W: 0.1,
    wire.CAPACITANCE: 1e-28,
    wire.EXPONENT: 2.0,
    wire.ENERGY_LIMIT_J: 5.0,
    wire.MAX_SAMPLES: 40,
    wire.LEARNER: "2",
    wire.MODDED: 1,
}


@pytest.mark.parametrize(
    "capability", [DEVICE, [None, None, DEVICE], lambda ctx, cycle: DEVICE if cycle == 4 else None]
)
def test_a_probe_is_answered_without_the_app(capability):
    assert probe(MelMod(capability)) == {wire.PROBE: 4, **WORDS}


def test_a_classic_probe_is_answered_in_its_own_form():
    message = Message(
        RecordDict({"getpropertiesins.config": ConfigRecord({wire.PROBE: 4})}), 1, "query.get_properties"
    )
    reply = MelMod(DEVICE)(message, context(), None)
    assert dict(reply.content["getpropertiesres.properties"]) == {wire.PROBE: 4, **WORDS}
    assert reply.content["getpropertiesres.status"]["code"] == 0


def test_the_capability_of_the_next_round_rides_on_every_report():
    asked = []
    mod = MelMod(lambda ctx, cycle: asked.append(cycle) or Measured(1, 2, 3, 4, 5, 6, name="pi"))
    for report in (call(lambda m, c: None, TASK, mod=mod), classic_call(lambda c: None, BASELINE, mod=mod)):
        assert [report[key] for key in wire.COEFFICIENTS] == [1, 2, 3, 4, 5, 6]
        assert (report[wire.LEARNER], report[wire.MODDED]) == ("pi", 1)
    assert asked == [2, 2]


def test_the_configs_describe_the_client_and_the_node_config_wins(tmp_path):
    profile = tmp_path / "p.toml"
    profile.write_text('mel-learner = "pi"\nmel-c2 = 1.0\nmel-max-samples = 30\n[measured]\nruns = 3\n')
    ctx = context({wire.MAX_SAMPLES: 10, wire.ENERGY_LIMIT_J: 5.0}, name="a", **{"mel-profile": str(profile)})
    answer = probe(mel_mod, ctx)
    assert answer == {
        wire.PROBE: 4, wire.MODDED: 1, wire.LEARNER: "pi", wire.COEFFICIENTS[0]: 1.0,
        wire.MAX_SAMPLES: 30, wire.ENERGY_LIMIT_J: 5.0,
    }  # fmt: skip
    ctx.node_config |= {wire.CPU_HZ: 1e9, wire.MAX_SAMPLES: 20}
    answer = probe(mel_mod, ctx)
    assert (answer[wire.CPU_HZ], answer[wire.MAX_SAMPLES]) == (1e9, 20)
    assert wire.COEFFICIENTS[0] not in answer  # the node config's physical values come first
    # Only the device itself may name a file to open.
    assert probe(mel_mod, context({"mel-profile": str(profile)})) == {
        wire.PROBE: 4, wire.MODDED: 1, wire.LEARNER: "2"
    }  # fmt: skip
    assert "must be the path of a profile" in probe(mel_mod, context(**{"mel-profile": 3}))[wire.PROBLEM]
    profile.write_text("mel-c2 =")
    assert f"the profile {profile} is not valid TOML" in probe(mel_mod, ctx)[wire.PROBLEM]
    assert probe(mel_mod, ctx)[wire.LEARNER] == "a"


def test_values_that_a_record_cannot_carry_are_left_out(caplog):
    words = {wire.CPU_HZ: np.float32(2.0), wire.MAX_SAMPLES: np.int64(3), wire.RATE_BPS: None, "mel-x": [1]}
    answer = probe(MelMod(words))
    assert (answer[wire.CPU_HZ], answer[wire.MAX_SAMPLES]) == (2.0, 3)
    assert not {wire.RATE_BPS, "mel-x"} & set(answer)
    assert "cannot carry such values: mel-x" in caplog.text


@pytest.mark.parametrize(
    ("capability", "text"),
    [
        (lambda ctx, cycle: 1 / 0, "ZeroDivisionError: division by zero"),
        ("x", "TypeError: the capability must be a Device, .* got 'x'"),
        ([DEVICE] * 2, "ValueError: the fleet has 2 devices, .* partition-id is 2"),
        ({"cpu_hz": 1e9}, "none of the keys cpu_hz is known.*mel-cpu-hz"),
        (lambda ctx, cycle: Path("/no/such/meter").read_text(), "FileNotFoundError: .*No such file"),
    ],
)
def test_a_capability_that_fails_is_reported(capability, text):
    mod = MelMod(capability)
    words = probe(mod), call(lambda m, c: None, TASK, mod=mod), classic_call(lambda c: None, TASK, mod=mod)
    for each in words:
        assert re.search(text, each[wire.PROBLEM])
        assert each[wire.LEARNER] == "2"


def test_a_fleet_needs_the_clients_partition():
    nowhere = context()
    del nowhere.node_config["partition-id"]
    assert "no partition-id to choose" in probe(MelMod([DEVICE]), nowhere)[wire.PROBLEM]


def test_only_the_time_of_the_app_counts():
    mod = MelMod(clock=iter([10.0, 12.5]).__next__)
    assert call(lambda m, c: None, TASK, mod=mod)[wire.TRAIN_SECONDS] == 2.5


@pytest.mark.parametrize(("words", "used"), [(TASK, 20), (BASELINE, 50)])
def test_chosen_samples_are_reported(words, used):
    chosen = call(lambda m, c: Assignment.from_message(m).choose(np.int64(50)), words)
    classic = classic_call(lambda c: Assignment.from_config(c).choose(50), words)
    for report in (chosen, classic):
        assert (report[wire.SAMPLES_USED], report[wire.SAMPLES_HELD]) == (used, 50)
        assert wire.SAMPLES_DRAWN not in report
    ConfigRecord(chosen).deflate()


def test_what_is_not_known_is_not_reported():
    report = call(lambda m, c: None, TASK)
    assert set(report) == {wire.MODDED, wire.LEARNER, wire.TRAIN_SECONDS, wire.EPOCHS_READ}


def test_energy_that_the_app_measured_is_passed_on():
    def record(message, ctx):
        reply = reply_to(message)
        reply.content[wire.RECORD] = ConfigRecord({wire.TRAIN_JOULES: 4.0})
        return reply

    def metric(message, ctx):
        metrics = MetricRecord({"num-examples": 3, wire.TRAIN_JOULES: 4.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    for work in (record, metric):
        report = mel_mod(task_message(TASK), context(), work).content[wire.RECORD]
        assert report[wire.TRAIN_JOULES] == 4.0
        assert wire.TRAIN_SECONDS in report


@pytest.mark.parametrize("epochs", ["many", 0, -3, 2.5])
def test_epochs_that_make_no_sense_are_not_followed_and_reported(epochs):
    ctx, seen = context({"epochs": 2}), []
    report = call(lambda m, c: seen.append(c.run_config["epochs"]), {**TASK, wire.EPOCHS: epochs}, ctx)
    assert seen == [2]
    assert "mel-epochs is" in report[wire.PROBLEM]


def test_an_error_of_the_mod_before_the_call_is_reported_and_the_app_trains(monkeypatch):
    monkeypatch.setattr(mod_module.Call, "override", lambda *args, **kwargs: 1 / 0)
    seen = []
    report = call(lambda m, c: seen.append(1), TASK)
    assert seen == [1]
    assert report[wire.PROBLEM] == "ZeroDivisionError: division by zero"
    assert wire.EPOCHS_READ not in report


def test_an_error_of_the_mod_in_the_report_does_not_lose_the_reply(monkeypatch):
    monkeypatch.setattr(mod_module.Call, "report", lambda *args: 1 / 0)
    reply = message_app(lambda m, c: None)(task_message(TASK), context())
    assert reply.content["metrics"]["num-examples"] == 12
    assert wire.RECORD not in reply.content
