"""What is logged: once, and what a user needs."""

import logging
from dataclasses import replace
from time import sleep

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from flwr_mel._text import last_error
from flwr_mel.cycle.advice import final_line, round_line
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from flwr_mel.serverapp import MelStrategy
from tests.cycle.tools import App
from tests.strategies.fleet import Fleet, measured, planned, wrapped


def test_log_lines(api, caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    mel = wrapped(api)
    api.train(mel, Fleet([*measured(), App(modded=False)]), rounds=3)
    (skipped,) = [row for row in mel.records[-1].learners if not row.asked]
    assert "no mel_mod" in skipped.reason
    lines = [r.getMessage() for r in caplog.records if r.name == "flwr.mel" and r.levelno == logging.INFO]
    rounds = [line for line in lines if line.startswith("round ")]
    assert len(rounds) == 3
    assert "baseline" in rounds[0]
    assert "planned" in rounds[1]
    assert "4 of 5 clients used, 1 skipped" in rounds[1]
    assert any("MelStrategy around FedAvg" in line for line in lines)
    if api.name == "message":
        assert "instead of" in lines[-1]


def test_short_rounds_are_told_once_and_the_time_between_them_is_measured(api, caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    apps = [App(held=500, pace=1e-5 * (k + 1), fixed_s=0.0) for k in range(4)]
    mel = wrapped(api, cycle_time_s="best", callbacks=[lambda _: sleep(0.05)])
    api.train(mel, Fleet(apps), rounds=4)
    assert mel.state.pause_s >= 0.05
    assert [record.learners[0].samples for record in (mel.records[0], mel.records[-1])] == [16, 256]
    lines = [r.getMessage() for r in caplog.records]
    assert sum("do less work in total" in line for line in lines) == 1
    assert any(line.startswith("round 1: first tasks") for line in lines)


@pytest.mark.parametrize(
    ("kind", "model", "warned"),
    [
        ("FedAdam", {"bn.running_var": np.ones(2, np.float32)}, True),
        ("FedAdam", {"bn.weight": np.ones(2, np.float32)}, False),
        ("FedAvg", {"bn.running_var": np.ones(2, np.float32)}, False),
    ],
)
def test_statistics_that_an_optimizer_would_step(message_api, kind, model, warned, caplog):
    mel = message_api.mel.MelStrategy(message_api.inner(kind), cycle_time_s="best")
    message_api.train(mel, Fleet(measured()), rounds=2, model=model)
    assert caplog.text.count("statistics of BatchNorm") == warned


def test_clients_that_return_what_they_received(api, caplog):
    fleet = Fleet(measured(), moves=lambda _k, _cycle, arrays: dict(arrays))
    api.train(wrapped(api), fleet, rounds=3)
    assert caplog.text.count("all clients: the app returned exactly the arrays that it received") == 1


def test_what_planning_notes_is_logged_once(api, caplog):
    api.train(wrapped(api, cycle_time_s="best"), Fleet(measured(chooses=False)), rounds=3)
    assert "short" not in caplog.text
    api.train(wrapped(api, cycle_time_s=0.05, max_epochs=1, total_samples=240), Fleet(planned()), rounds=3)
    assert caplog.text.count("round 1: 240 samples do not fit, so 160 are used") == 1


@pytest.mark.parametrize(("key", "warned"), [("quality", 1), ("num_examples", 0)])
def test_weights_of_the_clients_own_are_replaced(key, warned, caplog):
    MelStrategy(FedAvg(weighted_by_key=key))
    assert caplog.text.count("are replaced") == warned


def test_the_reason_of_a_traceback_is_its_error():
    trace = "\x1b[36mray::run()\x1b[39m\nTraceback (most recent call last):\n  f()\n ^^^\nTypeError: a:\n\tb"
    assert last_error(f"<class 'X'>:<'{trace}'>") == "TypeError: a: b"
    assert last_error(" Traceback (most recent call last)") == "Traceback (most recent call last)"
    assert last_error("two\nlines") == "two lines"


def test_the_final_line():
    def record(waited_s, paces, work=None, differs=True):
        rows = [
            LearnerRecord("1", "1", Outcome.USED, epochs=1, samples=100, weight=100, time_s=100 * p)
            for p in paces
        ]
        makespan_s = max(row.time_s for row in rows)
        return CycleRecord(
            2,
            0,
            makespan_s,
            waited_s,
            baseline_s=9.8,
            work=work,
            status="optimal",
            differs=differs,
            learners=rows,
        )

    assert final_line([record(3.0, (1, 5))]) == "rounds took 3 s instead of 9.8 s"
    with_work = [record(1.0, (1, 5), 0.5), *3 * [record(3.0, (1, 5), 1.01)]]  # the last three count
    assert final_line(with_work) == "rounds took 3 s instead of 9.8 s, with 101% of the work"
    assert "31% of the baseline's 9.8 s, 101% of its work" in round_line(with_work[-1])
    assert final_line([replace(with_work[0], baseline_s=0.1)]) == ""  # Flower's own time
    assert final_line([record(3.0, (1, 5), differs=False)]).startswith("no gain")  # noise
    assert final_line([record(9.8, (1, 1.1))]).startswith("no gain: all clients are equally fast")
    assert "equally" not in final_line([record(9.8, (1, 9))])
    assert final_line([]) == ""
    in_turns = final_line([record(300.0, (1, 1))], in_turns=True)
    assert "300 s, 100 s planned: clients trained in turns" in in_turns
    assert "baseline" in round_line(record(3.0, (1, 1)))
    assert "baseline" not in round_line(record(3.0, (1, 1)), in_turns=True)
