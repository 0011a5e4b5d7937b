"""The view in a terminal of its own."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

import pytest

from flwr_mel.records import JsonlWriter
from tests.cli.watch.tools import cycle
from tests.waiting import PATIENCE_S

PROGRAM = [sys.executable, "-m", "flwr_mel.cli", "watch"]


class Terminal:
    """A watcher in a terminal of its own."""

    def __init__(self, *args, rows=30, columns=100, env=None):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            # Handed over in full: readline, which pytest loads, sets COLUMNS unseen by os.environ.
            hidden = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
            inherited = {key: value for key, value in os.environ.items() if key not in hidden}
            # The size must be there before the program looks.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            own = {"TERM": "xterm-256color", **(env or {})}
            os.execve(PROGRAM[0], [*PROGRAM, *map(str, args)], {**inherited, **own})
        self.output = b""

    def read(self, until=None):
        """Read until the text shows up, or to the end."""
        deadline = time.monotonic() + PATIENCE_S
        while until is None or until not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:  # Linux's way to say that the other end is closed
                    data = b""
                if not data:
                    break
                self.output += data
        assert until is None or until in self.text, self.text
        return self

    @property
    def text(self):
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.output.decode(errors="replace"))
        return plain.replace("\r", "")

    def code(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self.fd)


SHOW_CURSOR, MAIN_SCREEN = b"\x1b[?25h", b"\x1b[?1049l"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
class TestTerminal:
    def test_the_live_view(self, tmp_path):
        with Terminal(tmp_path / "r.jsonl") as terminal:
            terminal.read("waiting for")
            JsonlWriter(tmp_path / "r.jsonl")(cycle(1))
            terminal.read("accuracy 10.00 %")
            JsonlWriter(tmp_path / "r.jsonl")(cycle(2))
            terminal.read("accuracy 20.00 %  ▁█")
            os.kill(terminal.pid, signal.SIGINT)
            terminal.read()
            assert terminal.code() == 0
        left = terminal.output.rpartition(MAIN_SCREEN)[2]
        assert b"phone-2" in left, "the last cycle stays on the screen"
        assert terminal.output.rfind(SHOW_CURSOR) > terminal.output.rfind(b"\x1b[?25l")

    def test_it_ends_with_the_run(self, tmp_path):
        JsonlWriter(tmp_path / "r.jsonl")(cycle(1, stopped="target reached"))
        with Terminal(tmp_path / "r.jsonl", rows=24, columns=80) as terminal:
            terminal.read()
            assert terminal.code() == 0
        assert "stopped after cycle 1: target reached" in terminal.text

    def test_sigterm_gives_the_terminal_back(self, tmp_path):
        JsonlWriter(tmp_path / "r.jsonl")(cycle(1))
        with Terminal(tmp_path / "r.jsonl") as terminal:
            terminal.read("phone-0")
            os.kill(terminal.pid, signal.SIGTERM)
            terminal.read()
            assert terminal.code() == 143
        assert terminal.output.rfind(SHOW_CURSOR) > terminal.output.rfind(b"\x1b[?25l")
        assert terminal.output.rfind(MAIN_SCREEN) > terminal.output.rfind(b"\x1b[?1049h")

    def test_errors_are_seen_after_the_view(self, tmp_path):
        with Terminal(tmp_path, "--wait", 1) as terminal:
            terminal.read()
            assert terminal.code() == 2
        assert b"has no records.jsonl" in terminal.output.rpartition(MAIN_SCREEN)[2]

    def test_once_draws_without_another_screen(self, tmp_path):
        JsonlWriter(tmp_path / "r.jsonl")(cycle(1))
        with Terminal(tmp_path / "r.jsonl", "--once") as terminal:
            terminal.read()
            assert terminal.code() == 0
        assert MAIN_SCREEN not in terminal.output
        assert "limited by" in terminal.text

    def test_a_simple_terminal(self, tmp_path):
        record = cycle(1, stopped="done")
        record.learners[0].learner = "téléphone"
        JsonlWriter(tmp_path / "r.jsonl")(record)
        ascii_only = {"PYTHONIOENCODING": "ascii"}
        with Terminal(tmp_path / "r.jsonl", env=ascii_only) as terminal:
            terminal.read()
            assert terminal.code() == 0
        assert "t?l?phone" in terminal.text
        with Terminal(tmp_path / "r.jsonl", env={"TERM": "dumb"}) as terminal:
            terminal.read()
            assert terminal.code() == 0
        assert b"\x1b" not in terminal.output
        assert terminal.text.startswith("cycle 1: 3 of 3 learners used")
