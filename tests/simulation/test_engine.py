"""The order, the verdict, the live view, processes: all but the engine itself."""

import io
import json
import subprocess
import sys
import time

import pytest
from mel_simulation.app.run_dir import RunDir
from mel_simulation.cli.live import Pace, follow
from mel_simulation.engine.launch import Running
from mel_simulation.engine.run_app import DONE, Order
from mel_simulation.scenario.config import RunConfig
from rich.console import Console

from flwr_mel._processes import end, tree
from tests.simulation.tools import record
from tests.waiting import PATIENCE_S


def test_an_order_carries_any_configuration(tmp_path):
    config = RunConfig(seed=7, learning_rate=1e-7, run_dir='/a "b" \\ ü 😀/c', target_accuracy=0.97)
    order = Order(config.as_dict(), 20, 0.5, "", str(tmp_path))
    read = Order(**json.loads(order.write().read_text(encoding="utf-8")))
    assert read == order
    assert RunConfig.parse(read.config) == config


def child(tmp_path, code):
    """A process in the engine's place."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = [sys.executable, "-c", code]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=tmp_path)
    return Running(process, tmp_path, log)


def test_the_verdict_is_what_the_engine_leaves(tmp_path):
    run = child(tmp_path, "print('one'); print('two'); raise SystemExit(1)")
    run.process.wait()
    assert not run.alive()
    assert run.verdict() == "one | two"
    (tmp_path / "trouble").write_text("no samples")
    assert run.verdict() == "no samples"


def test_a_run_is_over_when_its_results_are_there(tmp_path):
    run = child(tmp_path, "import time; time.sleep(900)")
    try:
        assert run.phase == "starting"
        order = Order({}, 1, 1.0, "", str(tmp_path))
        order.say("starting Ray")
        assert (run.alive(), run.phase) == (True, "starting Ray")
        order.say(DONE)
        assert not run.alive()
        assert run.verdict() == ""
    finally:
        end(run.process)


class Script:
    """An engine whose phases are written down; a cycle is on record before each look."""

    def __init__(self, run, *phases):
        self.run, self.phases, self.cycle = run, list(phases), 0

    @property
    def phase(self):
        return self.phases[0]

    def alive(self):
        if self.phases[0] == "training":
            self.cycle += 1
            self.run.add(record(self.cycle), 1.0)
        self.phases = self.phases[1:] or self.phases
        return self.phases[0] != DONE


def test_a_run_is_shown_from_its_start(tmp_path, capsys):
    run = RunDir(tmp_path)
    run.trim(0)
    engine = Script(run, "", "starting Ray", "training", "training", "training", DONE)
    follow(Console(width=100), run, 3, engine, done=1)
    shown = capsys.readouterr()
    notes = [f"note: results go to {tmp_path}", "note: starting Ray ...", "note: training ..."]
    assert shown.err.splitlines() == notes
    assert [line[:12] for line in shown.out.splitlines() if line.startswith("cycle")] == [
        "cycle 2 of 3",
        "cycle 3 of 3",
    ]


def test_in_a_terminal_the_last_cycle_is_left(tmp_path):
    run, out = RunDir(tmp_path), io.StringIO()
    run.trim(0)
    engine = Script(run, "", "starting Ray", "training", "training", DONE)
    follow(Console(file=out, force_terminal=True, width=100, height=30), run, 2, engine)
    assert "starting Ray" in out.getvalue()
    assert "Ctrl-C stops the run" in out.getvalue()
    assert "cycle 2 of 2" in out.getvalue()


def test_the_time_left_leaves_out_the_start(monkeypatch):
    clock = iter([100.0, 102.0, 102.0, 104.0, 105.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    pace = Pace(cycles=10, done=2)
    pace.tick(3)
    assert pace.left() == ""  # nothing is known after one cycle
    pace.tick(4)
    assert pace.left() == "about 12 s left"
    pace.tick(5)
    assert pace.left() == "about 9 s left"


def test_whole_trees_of_processes_end():
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "c = [sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(900)']\n"
        "p = subprocess.Popen(c, start_new_session=True, stdout=subprocess.PIPE)\n"
        "p.stdout.readline(); print('up', flush=True); time.sleep(900)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"up\n"
    family = tree(process.pid)
    assert len(family) == 2
    end(process, patience_s=0.5)
    process.stdout.close()
    assert process.poll() is not None
    assert not any(each in tree(each.pid) for each in family)


@pytest.mark.parametrize(("politely", "left"), [(True, "asked"), (False, "")])
def test_who_has_nothing_left_to_do_is_not_asked_to_end(tmp_path, politely, left):
    log = tmp_path / "log"
    script = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(log)!r}, 'a').write('asked'), sys.exit()))\n"
        "print('up', flush=True); time.sleep(900)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"up\n"
    log.touch()
    end(process, PATIENCE_S, politely=politely)
    process.stdout.close()
    assert process.poll() is not None
    assert log.read_text() in (left, 2 * left)  # the group and the process are asked
