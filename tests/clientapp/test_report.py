"""What rides on the reply, and that nothing of ours ever stops the app."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from flwr_mel import Device, wire
from flwr_mel.clientapp import Assignment, MelMod, mel_mod
from flwr_mel.clientapp import mod as mod_module
from flwr_mel.clientapp import report as report_module
from tests.clientapp.tools import FREE, TASK, call, classic_call, context, message_app, reply_to, task_message
from tests.waiting import PATIENCE_S


def answer(mod, ctx):
    probe = Message(RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: 4})}), 1, "train")
    return dict(mod(probe, ctx, None).content[wire.RECORD])


def test_samples_come_from_the_task_if_it_chose_them_else_from_the_reply():
    own = call(lambda m, c: None, TASK)
    assert (own[wire.SAMPLES_USED], own[wire.SAMPLES_FROM]) == (12, wire.REPLY)
    assert wire.SAMPLES_HELD not in own
    chosen = call(lambda m, c: Assignment.from_message(m).choose(50), TASK)
    assert (chosen[wire.SAMPLES_USED], chosen[wire.SAMPLES_FROM], chosen[wire.SAMPLES_HELD]) == (
        20,
        wire.TASK,
        50,
    )
    few = call(lambda m, c: Assignment.from_message(m).choose(9), TASK)
    assert (few[wire.SAMPLES_USED], few[wire.SAMPLES_HELD]) == (9, 9)
    free = call(lambda m, c: Assignment.from_message(m).choose(50), FREE)
    assert (free[wire.SAMPLES_USED], free[wire.SAMPLES_HELD]) == (50, 50)
    classic = classic_call(lambda c: Assignment.from_config(c).choose(50), TASK)
    assert (classic[wire.SAMPLES_USED], classic[wire.SAMPLES_HELD]) == (20, 50)
    assert classic_call(lambda c: None, TASK)[wire.SAMPLES_USED] == 12


def test_of_several_choices_the_one_from_the_most_data_counts():
    def work(message, ctx):
        task = Assignment.from_message(message)
        for n in (30, 500, 500, 40):
            task.choose(n)

    report = call(work, TASK)
    assert (report[wire.SAMPLES_USED], report[wire.SAMPLES_HELD]) == (20, 500)


def test_a_reply_without_examples_is_reported_without():
    def work(message, ctx):
        return Message(RecordDict({"m": MetricRecord({"loss": [1.0]})}), reply_to=message)

    report = mel_mod(task_message(TASK), context(), work).content[wire.RECORD]
    assert wire.SAMPLES_USED not in report
    assert wire.SAMPLES_FROM not in report


def test_only_the_time_of_the_app_counts(monkeypatch):
    ticks = iter([10.0, 12.5])
    monkeypatch.setattr(mod_module, "perf_counter", lambda: next(ticks))
    assert call(lambda m, c: None, TASK)[wire.TRAIN_SECONDS] == 2.5


@pytest.mark.parametrize(
    ("capability", "text"),
    [
        (lambda ctx, cycle: 1 / 0, "ZeroDivisionError: division by zero"),
        ("x", "TypeError: the capability must be a Device, .* got 'x'"),
        (5, "TypeError: the capability must be a Device, .* got 5"),
        (
            [Device(1e9, 1e7, 0.1)] * 2,
            "ValueError: the fleet has 2 devices, .* partition-id is 2",
        ),
        (lambda ctx, cycle: Path("/no/such/meter").read_text(), "FileNotFoundError: .*No such file"),
    ],
)
def test_a_capability_that_fails_is_reported_with_its_text(capability, text):
    for words in (
        answer(MelMod(capability), context()),
        call(lambda m, c: None, TASK, mod=MelMod(capability)),
    ):
        assert re.search(text, words[wire.PROBLEM])
        assert words[wire.LEARNER] == "2"
    assert wire.PROBLEM in classic_call(lambda c: None, TASK, mod=MelMod(capability))


def test_a_fleet_without_a_partition_id_is_reported():
    ctx = context()
    del ctx.node_config["partition-id"]
    assert "no partition-id" in answer(MelMod([Device(1e9, 1e7, 0.1)]), ctx)[wire.PROBLEM]


def test_the_text_is_short_and_printable():
    def capability(ctx, cycle):
        raise RuntimeError("a\x00b\n\x1b[31m c" + "x" * 10_000)

    text = answer(MelMod(capability), context())[wire.PROBLEM]
    assert text.startswith("RuntimeError: a\ufffdb \ufffd[31m cx")
    assert text.isprintable()
    assert len(text) < 320


def test_a_learner_without_a_problem_says_none():
    assert wire.PROBLEM not in answer(mel_mod, context())
    assert wire.PROBLEM not in call(lambda m, c: None, FREE)


@pytest.mark.parametrize("epochs", ["many", 0, -3, 2.5])
def test_a_task_that_makes_no_sense_is_not_followed_and_reported(epochs):
    ctx, seen = context({"epochs": 2}), []
    report = call(lambda m, c: seen.append(c.run_config["epochs"]), {**TASK, wire.EPOCHS: epochs}, ctx)
    assert seen == [2]
    assert "mel-epochs is" in report[wire.PROBLEM]


@pytest.mark.parametrize("name", ["report_of", "examples_in"])
def test_a_fault_of_ours_in_the_report_does_not_lose_the_reply(monkeypatch, caplog, name):
    monkeypatch.setattr(mod_module, name, lambda *args: 1 / 0)
    reply = message_app(lambda m, c: None)(task_message(TASK), context())
    assert reply.content["metrics"]["num-examples"] == 12
    assert wire.RECORD not in reply.content


def test_a_fault_of_ours_before_the_call_is_reported_and_the_app_trains(monkeypatch):
    def broken(*args):
        raise RuntimeError("laying failed")

    monkeypatch.setattr(mod_module, "laid_over", broken)
    report = call(lambda m, c: None, TASK)
    assert report[wire.PROBLEM] == "RuntimeError: laying failed"
    assert report[wire.EPOCHS_READ] == wire.UNKNOWN


def test_what_the_app_says_itself_is_kept():
    def work(message, ctx):
        reply = reply_to(message)
        reply.content[wire.RECORD] = ConfigRecord({wire.TRAIN_JOULES: 4.0})
        return reply

    report = mel_mod(task_message(TASK), context(), work).content[wire.RECORD]
    assert report[wire.TRAIN_JOULES] == 4.0
    assert wire.TRAIN_SECONDS in report


def test_every_report_can_be_sent():
    reply = message_app(lambda m, c: Assignment.from_message(m).choose(np.int64(50)))(
        task_message(TASK), context()
    )
    record = reply.content[wire.RECORD]
    assert ConfigRecord.inflate(record.deflate()) == record


def test_the_engine_is_known_from_inside_only(monkeypatch):
    class Ray:
        def __init__(self, actor):
            self.actor = actor

        def is_initialized(self):
            return True

        def get_runtime_context(self):
            return self

        def get_actor_id(self):
            return self.actor

    monkeypatch.setitem(sys.modules, "ray", Ray("a1"))
    assert report_module.simulated()
    assert answer(mel_mod, context())[wire.SIMULATED] == 1
    assert call(lambda m, c: None, TASK)[wire.SIMULATED] == 1
    monkeypatch.setitem(sys.modules, "ray", Ray(None))  # a driver of Ray, not a worker
    assert not report_module.simulated()
    monkeypatch.delitem(sys.modules, "ray")
    assert wire.SIMULATED not in answer(mel_mod, context())


def test_the_kit_loads_no_torch():
    code = "import flwr_mel.clientapp, sys; print(sorted({'torch', 'datasets'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.strip() == "[]"


def test_keys_that_nobody_knows_are_told():
    words = MelMod({"cpu_hz": 1e9}).words(context(), 1)
    assert "none of the keys cpu_hz is known" in words[wire.PROBLEM]
    assert "mel-cpu-hz" in words[wire.PROBLEM]
