"""Whole runs: interruption, resume on a cluster, what they leave, failure, `flwr run`."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from tests.ports import free_port
from tests.processes import end
from tests.simulation.tools import CYCLES, assert_same, command, records
from tests.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def interrupted(space, env) -> tuple[Path, list[dict]]:
    """A run on its own Ray, by the classic API, ended by a signal after its first cycle; and its records."""
    run = space / "interrupted"
    what = ("simulate", "--cycles", CYCLES, "--run-dir", run, "--api", "classic")
    process = subprocess.Popen(
        command(*what), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("cycle 1 "):
                break
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) > 3, "".join(lines)  # engine, Ray, actors
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, "".join(lines) + rest
    assert "finished cycles are kept" in rest
    wait_for(lambda: not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE])
    assert (run / "report.html").exists()
    return run, records(run)


@pytest.fixture(scope="module")
def resumed(interrupted, call, cluster) -> Path:
    """The same run, continued on two nodes."""
    run, _ = interrupted
    said = call("simulate", "--run-dir", run, "--resume", "--api", "classic", RAY_ADDRESS=cluster.address)
    assert "cycle 1 " not in said  # it is done
    assert f"cycle {CYCLES} of {CYCLES}" in said
    return run


def test_interrupted_and_resumed_on_two_nodes_it_has_the_same_bits(interrupted, resumed, straight, cluster):
    _, kept = interrupted
    assert 1 <= len(kept) < CYCLES
    assert kept == records(straight)[: len(kept)]
    assert cluster.busy() == 2
    assert_same(resumed, straight)


def test_what_a_run_leaves(resumed):
    assert {p.name for p in resumed.iterdir()} == {
        *("checkpoints", "config.json", "flower.log", "model.npz"),
        *("records.jsonl", "report.html", "summary.json"),
    }
    found = records(resumed)
    assert [r["cycle"] for r in found] == list(range(1, CYCLES + 1))
    assert all(r["total_samples"] == 4000 and len(r["learners"]) == 20 for r in found)
    for row in (row for r in found for row in r["learners"]):
        assert row["outcome"] == "used"
        assert row["time_s"] <= 10
        assert row["energy_j"] <= row["energy_limit_j"]
    assert found[0]["learners"][0]["energy_limit_j"] != found[1]["learners"][0]["energy_limit_j"]
    assert json.loads((resumed / "config.json").read_text())["config"]["api"] == "classic"
    assert json.loads((resumed / "summary.json").read_text())["cycles"] == CYCLES
    assert "EMBEDDED SUBSET" in (resumed / "report.html").read_text()


@contextmanager
def superlink(space: Path, address: str):
    """Flower's SuperLink as a user has it, with a home of its own, joined to a Ray cluster."""
    home, log, port = space / "home", space / "superlink.log", free_port()
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "mel"\n\n[superlink.mel]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        **{"FLWR_HOME": str(home), "RAY_ADDRESS": address, "FLWR_MEL_OFFLINE": "1"},
        **{"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"},
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": os.pathsep.join([str(tools), os.environ.get("PATH", "")]),
    }
    what = [tools / "flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
    what += ["--host", "127.0.0.1", "--port", str(port), "--disable-runtime-dependency-installation"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            what, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )

    def healthy():
        assert process.poll() is None, log.read_text()
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    try:
        wait_for(healthy)
        yield environment
    finally:
        end(process)


def test_flwr_run_gives_the_same_bits(straight, cluster):
    space = Path(os.path.realpath(tempfile.mkdtemp(prefix="mel")))  # short: for sockets
    app, run, flwr = space / "app", space / "run", Path(sys.executable).parent / "flwr"
    shutil.copytree(ROOT / "simulation", app, ignore=shutil.ignore_patterns("__pycache__"))
    federation = "num-supernodes=20 client-resources-num-cpus=1"
    with superlink(space, cluster.address) as environment:

        def flower(*words):
            done = subprocess.run(
                [flwr, *words],
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        config = f'cycles=1 run-dir="{run}"'
        said = flower("run", app, "mel", "--stream", "--federation-config", federation, "-c", config)
        number = re.search(r"started run (\d+)", said).group(1)
        assert '"finished:completed"' in flower("ls", "mel", "--run-id", number, "--format", "json"), said
    assert records(run) == records(straight)[:1]
    shutil.rmtree(space, ignore_errors=True)


def test_an_engine_that_does_not_start_ends_the_command(tmp_path, env):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'mel_simulation.app.engine' in sys.orig_argv:\n"
        "    import ray\n"
        "    ray.init = lambda *args, **more: sys.exit('no room for Ray')\n"
    )
    words = command("simulate", "--cycles", 1, "--run-dir", tmp_path / "run")
    more = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        words, env={**env, **more}, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 5, done
    assert "the run failed: no room for Ray. Its log: " in done.stderr
