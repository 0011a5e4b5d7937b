"""``flwr-mel watch``: real writers, real watchers, also in a terminal."""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import warnings
from pathlib import Path

import pytest
from rich.console import Console

from flwr_mel.records import CycleRecord, JsonlWriter, LearnerRecord, Outcome
from flwr_mel.records.follow import Damage, Entry, Follower, History, Restart

with warnings.catch_warnings():
    # typer uses names that newer releases of click announce to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from flwr_mel.cli import app
    from flwr_mel.cli.watch_text import cycle_line, explain, remarks
    from flwr_mel.cli.watch_view import main_metric, sparkline, view

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning"),
    pytest.mark.timeout(120),
]

PROGRAM = [sys.executable, "-m", "flwr_mel.cli", "watch"]
PATIENCE_S = 60


def cycle(n, *, accuracy=None, learners=3, **fields):
    rows = [
        LearnerRecord(
            f"phone-{k}", str(k), Outcome.USED, "", 3, 812 + k, 812 + k, 9.0, 4.0, 5.0, "energy", 8.5, 3.9
        )
        for k in range(learners)
    ]
    metrics = {"accuracy": n / 10 if accuracy is None else accuracy, "loss": 1 / n}
    values = {
        "makespan_s": 9.0,
        "total_samples": 2439,
        "clock_s": 9.0 * n,
        "status": "optimal",
        "learners": rows,
        "metrics": metrics,
    }
    return CycleRecord(n, 10.0, **{**values, **fields})


def line(record):
    return json.dumps(record.as_dict()).encode() + b"\n"


def seen(follower):
    """Cycles, damages and restarts in few letters."""
    names = {Damage: "damage", Restart: "restart"}
    return [
        (e.record.cycle if not e.again else -e.record.cycle) if isinstance(e, Entry) else names[type(e)]
        for e in follower.poll()
    ]


# The follower


def test_a_file_may_come_late_and_grow(tmp_path):
    follower = Follower(tmp_path / "later" / "records.jsonl")
    assert seen(follower) == []
    write = JsonlWriter(follower.path)
    assert seen(follower) == []
    write(cycle(1))
    write(cycle(2))
    assert seen(follower) == [1, 2]
    assert seen(follower) == []
    write(cycle(3))
    assert seen(follower) == [3]
    follower.path.unlink()
    assert seen(follower) == []


@pytest.mark.parametrize("cut", [1, 200, -2])
def test_half_a_line_waits_for_its_end(tmp_path, cut):
    path, whole = tmp_path / "r.jsonl", line(cycle(2))
    path.write_bytes(line(cycle(1)) + whole[:cut])
    follower = Follower(path)
    assert seen(follower) == [1]
    with path.open("ab") as file:
        file.write(whole[cut:])
    assert seen(follower) == [2]


def test_a_whole_record_without_its_line_end_is_shown_once(tmp_path):
    path, whole = tmp_path / "r.jsonl", line(cycle(2))
    path.write_bytes(line(cycle(1)) + whole[:-1])
    follower = Follower(path)
    assert seen(follower) == [1, 2]
    with path.open("ab") as file:
        file.write(b"\n" + line(cycle(3)))
    assert seen(follower) == [3]


def test_a_crash_leaves_half_a_line_that_the_next_writer_drops(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line(cycle(1)) + line(cycle(2))[:300])
    follower = Follower(path)
    assert seen(follower) == [1]
    JsonlWriter(path)(cycle(2, accuracy=0.5))
    assert seen(follower) == [2]


@pytest.mark.parametrize("replace", [True, False], ids=["replaced", "in place"])
def test_a_resumed_run_takes_cycles_back(tmp_path, replace):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(line(cycle(n)) for n in range(1, 9)))
    follower = Follower(path)
    assert seen(follower) == list(range(1, 9))
    # Longer than before by the next look, and other cycles at the same place.
    content = b"".join(line(cycle(n, accuracy=0.1 if n > 5 else None)) for n in range(1, 12))
    if replace:
        (tmp_path / "new").write_bytes(content)
        os.replace(tmp_path / "new", path)
    else:
        path.write_bytes(content)
    assert seen(follower) == ["restart", -1, -2, -3, -4, -5, 6, 7, 8, 9, 10, 11]
    path.write_bytes(b"")
    assert seen(follower) == ["restart"]


def test_a_replacement_with_the_same_content_is_nothing_new(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line(cycle(1)) + line(cycle(2)))
    follower = Follower(path)
    assert seen(follower) == [1, 2]
    shutil.copy(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)
    assert seen(follower) == []
    JsonlWriter(path)(cycle(3))
    assert seen(follower) == [3]


BAD = {
    "no JSON": b"oops",
    "no object": b"[1, 2]",
    "no learners": b'{"cycle": 2, "cycle_time_s": 10, "metrics": {}}',
    "an unknown field": line(cycle(2)).replace(b'"staleness"', b'"stale"'),
    "a word for a cycle": line(cycle(2)).replace(b'"cycle": 2', b'"cycle": "two"'),
    "half an epoch": line(cycle(2)).replace(b'"epochs": 3', b'"epochs": 3.5'),
    "metrics in a list": line(cycle(2, metrics={})).replace(b'"metrics": {}', b'"metrics": []'),
    "a word for a metric": line(cycle(2)).replace(b'"accuracy": 0.2', b'"accuracy": "good"'),
    "a note that is none": line(cycle(2)).replace(b'"notes": []', b'"notes": [7]'),
    "an unknown outcome": line(cycle(2)).replace(b'"used"', b'"lost"'),
    "a name that is none": line(cycle(2)).replace(b'"phone-1"', b"null"),
    "no text": b"\xff\xfe",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_lines_are_named_and_skipped(tmp_path, bad):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line(cycle(1)) + b"\n" + bad.rstrip() + b"\n" + line(cycle(3)))
    first, damage, last = Follower(path).poll()
    assert (first.record.cycle, last.record.cycle) == (1, 3)
    assert damage.line == 3
    assert damage.why
    assert "line 3" in str(damage)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="regular file"):
        list(Follower(tmp_path / "pipe").poll())


def test_the_later_record_of_a_cycle_counts():
    history = History()
    for n, accuracy in [(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25)]:
        history.add(cycle(n, accuracy=accuracy))
    assert history.last.cycle == 2
    assert [m["accuracy"] for m in history.metrics.values()] == [0.1, 0.25]
    history.add(cycle(3, accuracy=0.35))
    assert list(history.metrics) == [1, 2, 3]


# Words


def test_words_for_learners():
    row = LearnerRecord("7", "123", Outcome.USED, epochs=3, samples=812, limited_by="energy")
    assert explain(row) == "node 7: 3 epochs, 812 samples, limited by energy"
    row = LearnerRecord("pi", "1", Outcome.LATE, "no reply", 1, 1, limited_by="time")
    assert explain(row) == "pi: 1 epoch, 1 sample, limited by time; late: no reply"
    assert explain(LearnerRecord("pi", "1", reason="too slow")) == "pi: left out, too slow"


def test_words_for_a_cycle():
    text = cycle_line(cycle(7, total_energy_j=742.0), 12)
    for part in (
        "cycle 7 of 12: 3 of 3 learners used",
        "accuracy 70.00 %",
        "last report 9 of 10 s",
        "clock 63 s",
    ):
        assert part in text
    assert text.endswith("energy 742 J")
    # What JSON could not carry is null in the file.
    gaps = cycle_line(
        CycleRecord.from_dict(cycle(1, bound=float("inf"), makespan_s=float("nan")).as_dict()), None
    )
    assert "last report - of 10 s" in gaps


def test_losses_come_before_those_left_out_and_are_grouped():
    record = cycle(1, learners=5, notes=["fewer samples"])
    for k, (outcome, reason) in enumerate(
        [(Outcome.LEFT_OUT, "slow"), (Outcome.LATE, "silent"), (Outcome.LATE, "silent")]
    ):
        record.learners[k].outcome, record.learners[k].reason = outcome, reason
    assert remarks(record) == [
        "fewer samples",
        "late, 2: phone-1, phone-2: silent",
        "left out, 1: phone-0: slow",
    ]


def test_the_metric_that_is_drawn():
    history = History()
    assert main_metric(history) == ""
    history.add(cycle(1, metrics={"f1": 0.5, "train-loss": 2.0}))
    assert main_metric(history) == "train-loss"
    history.add(cycle(2, metrics={"eval-accuracy": 0.5}))
    assert main_metric(history) == "eval-accuracy"
    assert main_metric(history, "f1") == "f1"


def test_sparklines():
    nan = float("nan")
    assert sparkline([0, 1, nan, 7]) == "▁▂ █"
    assert sparkline([nan]) == ""
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert len(sparkline([-1.7e308, 1.7e308])) == 2
    assert sparkline([0, 7], ascii_only=True).isascii()


# The view


def drawn(record, width, height):
    out = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    history = History()
    history.add(record)
    out.print(view(out, history, "runs/mine", "running", cycles=12))
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (110, 30), (200, 60), (66, 12)])
@pytest.mark.parametrize("learners", [1, 20, 1000])
def test_the_view_fits(width, height, learners):
    record = cycle(7, learners=learners, notes=["lowered [red]", *["x" * 300] * 9])
    lines = drawn(record, width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert "cycle 7 of 12" in lines[1]
    assert sum("phone-" in text for text in lines) == learners or any(
        "more learner" in text for text in lines
    )


def test_problems_come_first_when_not_all_fit():
    record = cycle(3, learners=1000)
    record.learners[700].outcome, record.learners[700].reason = Outcome.FAILED, "no memory"
    record.learners[800].outcome, record.learners[800].reason = Outcome.LATE, "silent"
    record.learners[900].reported_time_s, record.learners[900].slowdown = 11.0, 1.35
    lines = drawn(record, 100, 30)
    names = [text.split()[0] for text in lines if text.startswith("phone-")]
    assert names[:4] == ["phone-700", "phone-800", "phone-900", "phone-0"]
    assert any("used, planned 1.35 times slower" in text for text in lines)
    hidden = next(text for text in lines if "more learners" in text)
    assert f"{1000 - len(names)} used" in hidden
    # Everybody in the order of the record where there is room.
    few = cycle(3, learners=5)
    few.learners[4].outcome = Outcome.FAILED
    assert [t.split()[0] for t in drawn(few, 100, 30) if t.startswith("phone-")] == [
        f"phone-{k}" for k in range(5)
    ]


def test_learners_cannot_move_the_cursor():
    record = cycle(1, notes=["bell \a"])
    record.learners[0].learner, record.learners[0].reason = "evil\x1b[2J", "x\r\ny"
    text = "\n".join(drawn(record, 100, 30)) + explain(record.learners[0]) + "".join(remarks(record))
    assert "\x1b" not in text
    assert "\a" not in text
    assert "evil?[2J" in text


# Real processes


@contextlib.contextmanager
def watching(*args, **kwargs):
    """Start a watcher; its lines come as they are written."""
    process = subprocess.Popen(
        [*PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def ended(process):
    # Not communicate(), which forgets what readline() has read ahead.
    out, err = process.stdout.read(), process.stderr.read()
    process.wait(PATIENCE_S)
    assert "Traceback" not in err
    return process.returncode, out, err


WRITER = """
import sys, time
from pathlib import Path
from tests.test_watch import cycle
from flwr_mel.records import JsonlWriter
time.sleep(0.5)
write = JsonlWriter(sys.argv[1])
for n in range(1, 5):
    write(cycle(n, stopped="target reached" if n == 4 else ""))
    time.sleep(0.4)
"""


def writer(path):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=Path(__file__).parent.parent)


def test_a_watcher_follows_a_writer_and_ends_with_it(tmp_path):
    path = tmp_path / "new" / "mel.jsonl"
    with watching(path, "-v") as process:
        # Only now is there a run at all.
        assert "waiting for" in process.stderr.readline()
        with writer(path) as job:
            first = process.stdout.readline()
            assert first.startswith("cycle 1: 3 of 3 learners used, accuracy 10.00 %")
            assert job.poll() is None, "a cycle is shown while the job goes on"
            code, out, err = ended(process)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == [f"  phone-{k}: 3 epochs, {812 + k} samples, limited by energy" for k in range(3)]
    assert [text.split(":")[0] for text in lines if text.startswith("cycle")] == [
        "cycle 2",
        "cycle 3",
        "cycle 4",
    ]
    assert lines[-1] == "stopped after cycle 4: target reached"


def test_json_gives_the_records_back(tmp_path):
    path, records = tmp_path / "r.jsonl", [cycle(1), cycle(2, bound=float("inf")), cycle(3, stopped="enough")]
    for record in records:
        JsonlWriter(path)(record)
    with watching(path, "--json") as process:
        code, out, err = ended(process)
    assert (code, err) == (0, "note: stopped after cycle 3: enough\n")
    assert out.encode() == path.read_bytes()


def test_a_resume_is_followed_and_nothing_is_written_twice(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"".join(line(cycle(n)) for n in range(1, 5)))
    with watching(tmp_path, "--json") as process:
        before = [json.loads(process.stdout.readline())["cycle"] for _ in range(4)]
        new = tmp_path / "new"
        new.write_bytes(b"".join(line(cycle(n)) for n in (1, 2)))
        os.replace(new, path)
        assert "read again" in process.stderr.readline()
        with path.open("ab") as file:
            file.write(b"oops\n")
        JsonlWriter(path)(cycle(3, accuracy=0.9, stopped="done"))
        code, out, err = ended(process)
    assert (code, before) == (0, [1, 2, 3, 4])
    (again,) = map(json.loads, out.splitlines())
    assert (again["cycle"], again["metrics"]["accuracy"]) == (3, 0.9)
    assert "line 3 is no cycle record" in err


def test_a_run_directory_ends_with_its_summary(tmp_path):
    def told(name, **facts):
        (tmp_path / name).write_text(json.dumps(facts))

    JsonlWriter(tmp_path / "records.jsonl")(cycle(1))
    told("summary.json", cycles=1)
    told("config.json", config={"cycles": 2})
    # A summary of the part before it was resumed: older than the configuration, and a cycle short.
    os.utime(tmp_path / "summary.json", (1, 1))
    with watching(tmp_path) as process:
        assert process.stdout.readline().startswith("cycle 1 of 2")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        JsonlWriter(tmp_path / "records.jsonl")(cycle(2))
        assert process.stdout.readline().startswith("cycle 2 of 2")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        told("summary.json", cycles=2)
        code, out, _ = ended(process)
    assert (code, out) == (0, "finished: 2 cycles done\n")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_end_it_quietly(tmp_path, sent, code):
    JsonlWriter(tmp_path / "r.jsonl")(cycle(1))
    with watching(tmp_path / "r.jsonl") as process:
        process.stdout.readline()
        process.send_signal(sent)
        assert ended(process) == (code, "", "")


def test_waiting_takes_no_processor_time(tmp_path):
    JsonlWriter(tmp_path / "r.jsonl")(cycle(1))
    with watching(tmp_path / "r.jsonl") as process:
        process.stdout.readline()

        def spent():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        if not Path("/proc/self/stat").exists():
            pytest.skip("needs /proc")
        before = spent()
        time.sleep(3)
        assert spent() - before < 0.3


def test_watching_needs_no_training_stack(tmp_path):
    JsonlWriter(tmp_path / "r.jsonl")(cycle(1))
    code = f"""
import sys
from flwr_mel.cli import main
sys.argv = ["flwr-mel", "watch", {str(tmp_path / "r.jsonl")!r}, "--once"]
try:
    main()
except SystemExit as stop:
    assert not stop.code
print("LOADED", *sorted({{name.split(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    text, _, names = done.stdout.partition("LOADED")
    assert text.startswith("cycle 1")
    assert not set(names.split()) & {"torch", "ray", "flwr", "simulation", "matplotlib"}


# Exit codes


def invoke(*args, code=0):
    result = CliRunner().invoke(app, ["watch", *map(str, args)])
    assert result.exit_code == code, result.output
    return result


def test_once_shows_what_is_there(tmp_path):
    JsonlWriter(tmp_path / "records.jsonl")(cycle(1))
    JsonlWriter(tmp_path / "records.jsonl")(cycle(2))
    by_directory = invoke(tmp_path, "--once").stdout
    assert [text.split(":")[0] for text in by_directory.splitlines()] == ["cycle 1", "cycle 2"]
    assert invoke(tmp_path / "records.jsonl", "--once").stdout == by_directory


def test_what_cannot_be_a_run(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "page.html").write_text("<html>\n</html>\n")
    (tmp_path / "nothing.jsonl").write_text("")
    for age, name in enumerate(["new", "old"]):
        JsonlWriter(tmp_path / "runs" / name / "records.jsonl")(cycle(1))
        os.utime(tmp_path / "runs" / name / "records.jsonl", (1000 - age, 1000 - age))
    os.mkfifo(tmp_path / "pipe")
    cases = {
        ("empty", "--once"): "has no records.jsonl",
        ("empty", "--wait", 0.1): "after 0.1 s",
        ("missing", "--wait", 0): "is not there",
        ("nothing.jsonl", "--once"): "no finished cycle",
        ("page.html",): "line 1 is neither",
        ("runs",): f"The newest is {tmp_path / 'runs' / 'new'}",
        ("page.html/inside",): "Not a directory",
        ("pipe",): "regular file",
        ("empty", "--wait", -1): "--wait must be a finite number >= 0, got -1",
    }
    for (name, *options), words in cases.items():
        result = invoke(tmp_path / name, *options, code=2)
        assert words in result.stderr, (name, result.stderr)
        assert result.stdout == ""


def test_once_can_wait(tmp_path):
    late = threading.Timer(0.8, lambda: JsonlWriter(tmp_path / "records.jsonl")(cycle(1)))
    late.start()
    assert invoke(tmp_path, "--once", "--wait", 30).stdout.startswith("cycle 1")
    late.join()


def test_many_bad_lines_are_counted(tmp_path):
    (tmp_path / "r.jsonl").write_bytes(line(cycle(1)) + b"oops\n" * 50)
    said = invoke(tmp_path / "r.jsonl", "--once").stderr.splitlines()
    assert len(said) == 4
    assert "47 more lines" in said[-1]


# A terminal


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
