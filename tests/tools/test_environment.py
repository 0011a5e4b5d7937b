"""What the machine refuses: its own exit code, the path, the reason and a remedy, never "a bug of ours"."""

import os
import resource

import pytest

from tests.tools.commands import LIMITS, command, process, refused, run, shell
from tests.tools.runs import write

ENVIRONMENT = 4


def limited(kind, most):
    """Return what to do in a child before it starts: lower one of its limits."""
    return lambda: resource.setrlimit(kind, (most, most))


def assert_told(done, *words):
    """One line that says what failed, and the exit code of the environment."""
    assert done.returncode == ENVIRONMENT, done
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "internal error" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.fixture
def a_run(tmp_path):
    """A run directory with one cycle."""
    return write(tmp_path / "run", {"cycle": 1, "cycle_time_s": 10.0, "learners": [], "metrics": {}})


def test_a_full_disk_behind_stdout(paper):
    with open("/dev/full", "w") as full:
        done = process("plan", paper, *LIMITS, stdout=full)
    assert_told(done, "standard output: No space left on device. Free some space")


def test_no_stdout(paper):
    done = shell(["bash", "-c", '"$@" >&-', "-", *command("plan", paper, *LIMITS)])
    assert_told(done, "standard output: closed")


def test_a_file_that_may_not_grow(a_run, tmp_path):
    page = tmp_path / "page.html"
    # A measured process could not write what was measured, either.
    env = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # Python would leave compiled modules of 1,000 bytes behind
    done = process("report", a_run, "--out", page, env=env, preexec_fn=limited(resource.RLIMIT_FSIZE, 1000))
    assert_told(done, str(page), "File too large", "ulimit -f")
    assert sorted(x.name for x in tmp_path.iterdir()) == ["run"]


def test_a_file_in_place_of_a_directory(a_run, tmp_path):
    (tmp_path / "taken").write_text("")
    said = refused("report", a_run, "--out", tmp_path / "taken" / "page.html", code=ENVIRONMENT)
    assert str(tmp_path / "taken") in said
    assert "A file exists where a directory is needed" in said


def test_missing_files(tmp_path):
    none = tmp_path / "none.toml"
    assert_told(process("plan", none, *LIMITS), str(none), "No such file", "flwr-mel fleet --paper")
    for args in (("fleet", tmp_path / "x" / "none.toml"), ("report", tmp_path / "none")):
        said = refused(*args, code=ENVIRONMENT)
        assert str(args[1]) in said
        assert "No such file" in said
        assert "internal error" not in said


def test_too_little_memory(tmp_path):
    large = tmp_path / "large.toml"
    with large.open("wb") as file:
        file.truncate(4 << 30)  # takes no room on disk
    done = process("fleet", large, preexec_fn=limited(resource.RLIMIT_AS, 2 << 30))
    assert_told(done, "out of memory", "use a machine with more memory")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_reader_that_leaves_early_is_no_error(paper, more):
    words = " ".join(f"'{word}'" for word in command("plan", paper, *LIMITS, *more))
    # pipefail: the exit code of the pipe is ours, not that of head.
    done = shell(["bash", "-o", "pipefail", "-c", f"{words} | head -c 1"])
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 1, "")


def test_errors_for_a_reader_that_has_left_keep_their_code(tmp_path):
    words = " ".join(f"'{word}'" for word in command("plan", "fleet.toml", *LIMITS, "--staleness", "x"))
    done = shell(["bash", "-o", "pipefail", "-c", f"(sleep 0.5; exec {words}) 2>&1 | true"], cwd=tmp_path)
    assert done.returncode == 2


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_a_bug_is_reported_without_a_traceback(paper, monkeypatch, kind):
    def broken(*args, **kwargs):
        raise kind("oh\nno")

    monkeypatch.setattr("flwr_mel.tools.plan.allocate", broken)
    told = refused("plan", paper, *LIMITS, code=1)
    assert f"internal error, {kind.__name__}: oh no." in told


def test_the_installed_program_and_its_commands():
    assert process("--version", installed=True).stdout.startswith("flwr-mel ")
    for name in ("plan", "fleet", "profile", "report", "bundle", "try"):
        assert f"flwr-mel {name} " in run(name, "--help").stdout.split("Try:")[1]
    for gone in ("watch", "doctor", "link-server", "recommend"):
        assert "No such command" in refused(gone)
