"""Whole runs by the command line: what they leave, interruption, resume, failure, a cluster, `flwr run`."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.proto.control_pb2 import ListRunsRequest
from flwr.proto.run_pb2 import RunStatus
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from mel_simulation.scenario.data import embedded
from mel_simulation.scenario.idx import FILES

from flwr_mel._processes import end, tree
from tests.ports import free_port
from tests.simulation.test_data import idx_bytes
from tests.simulation.tools import CYCLES, assert_same, command, records
from tests.tools.commands import run as command_line
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.engine


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short name: Ray's sockets may have 107 characters."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix="mel")))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def begin(env, *options):
    """Start a simulation and go on while it runs."""
    return subprocess.Popen(
        command("simulate", *options),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def interrupted(space, env) -> tuple[Path, str, list[dict]]:
    """A run on its own Ray, by the other API, with a share of CPUs, ended by a signal, and its records."""
    run = space / "interrupted"
    process = begin(env, "--cycles", CYCLES, "--run-dir", run, "--api", "classic", "--cpus-per-learner", 0.7)
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("cycle 1 "):
                break
        family = tree(process.pid)
        assert len(family) > 5  # engine, Ray, actors
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)
    assert process.returncode == 130, "".join(lines) + rest
    assert "what was finished is kept" in rest
    assert "interrupted" in rest
    assert not [p for p in family if p in tree(p.pid)]
    assert (run / "report.html").exists()
    return run, (run / "records.jsonl").read_text(), records(run)


@pytest.fixture(scope="module")
def resumed(interrupted, env, cluster) -> Path:
    """The same run, gone on with on two machines."""
    run, *_ = interrupted
    again = ("--run-dir", run, "--resume", "--api", "message", "--ray-address", cluster.address)
    assert "cycle 1 " not in command_line("simulate", *again, env=env).output  # it is done
    return run


def test_interrupted_and_resumed_elsewhere(interrupted, resumed, straight, cluster):
    """Begun by one API here, gone on with by the other on two machines: the bits are the same."""
    run, before, kept = interrupted
    assert 1 <= len(kept) < CYCLES
    assert kept == records(straight)[: len(kept)]
    assert (run / "records.jsonl").read_text().startswith(before)
    assert json.loads((run / "config.json").read_text())["config"]["api"] == "message"
    assert cluster.machines() == 2
    assert_same(run, straight)


def test_a_run_and_what_it_leaves(resumed):
    names = {p.name for p in resumed.iterdir()}
    assert names == {
        *("checkpoints", "config.json", "flower.log", "ledger.csv", "metrics.csv", "model.npz"),
        *("records.jsonl", "report.html", "summary.json"),
    }
    found = records(resumed)
    assert [r["cycle"] for r in found] == list(range(1, CYCLES + 1))
    assert all(r["total_samples"] == 4000 and len(r["learners"]) == 20 for r in found)
    assert all(row["outcome"] == "used" for r in found for row in r["learners"])
    assert found[-1]["metrics"]["accuracy"] > 0.88
    assert found[0]["learners"][0]["energy_limit_j"] != found[1]["learners"][0]["energy_limit_j"]
    with (resumed / "ledger.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 * CYCLES
    for row in rows:
        assert float(row["busy_s"]) <= 10
        assert float(row["busy_s"]) + float(row["idle_s"]) == pytest.approx(10, abs=1e-12)
        assert float(row["energy_j"]) <= float(row["energy_limit_j"])
        assert float(row["battery_share"]) == float(row["energy_j"]) / 36_000
    with (resumed / "metrics.csv").open() as file:
        assert all(float(row["wall_s"]) > 0 for row in csv.DictReader(file))
    assert json.loads((resumed / "summary.json").read_text())["cycles"] == CYCLES
    assert "EMBEDDED SUBSET" in (resumed / "report.html").read_text()


@pytest.mark.slow
def test_a_run_on_a_ray_of_its_own_that_nobody_interrupts(space, call, straight):
    call("simulate", "--cycles", CYCLES, "--run-dir", space / "alone")
    assert_same(space / "alone", straight)


def test_a_run_that_fails_inside_says_why(space, env, cluster):
    data = space / "data"
    data.mkdir()
    d = embedded()
    for name, array in zip(FILES, (d.train_x, d.train_y, d.test_x, d.test_y), strict=True):
        images = array.reshape(-1, 28, 28) if array.ndim == 2 else array
        (data / name).write_bytes(idx_bytes(images))
    run = space / "failing"
    what = ("--data-dir", data, "--samples", 2000, "--sample-cost", 20)
    process = begin(env, *what, "--run-dir", run, "--ray-address", cluster.address)
    try:
        for line in process.stdout:
            if "starting" in line:
                break
        shutil.rmtree(data)
        rest, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)
    assert process.returncode == 5, rest
    assert "the run failed" in rest
    assert "data_dir must be an existing directory" in rest
    assert "flower.log" in rest
    assert "Traceback" not in rest


@contextmanager
def superlink(space: Path, address: str):
    """Flower's SuperLink as a user has it, with a home of its own."""
    home, log = space / "home", space / "superlink.log"
    home.mkdir()
    port = free_port()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "mel"\n\n[superlink.mel]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = {
        **os.environ,
        **{"FLWR_HOME": str(home), "RAY_ADDRESS": address, "FLWR_MEL_OFFLINE": "1"},
        **{"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"},
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        # The SuperLink looks for its executor there.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    command = [flower("flower-superlink"), "--insecure", "--simulation", "--isolation", "subprocess"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--disable-runtime-dependency-installation"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while True:  # the test's own limit ends this
            assert process.poll() is None, log.read_text()
            with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    break
            time.sleep(0.2)
        yield environment, port
    finally:
        end(process)


def flower(tool: str) -> str:
    return str(Path(sys.executable).parent / tool)


def status_of(run: int, port: int) -> RunStatus:
    """Ask as `flwr ls` does, without the seconds that a new process takes."""
    client = ControlHttpClient.from_server_address(
        server_address=f"127.0.0.1:{port}",
        insecure=True,
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    try:
        return client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
    finally:
        client.close()


def test_flwr_run_as_a_flower_user(short, straight, cluster):
    space = short
    app, run = space / "app", space / "run"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if (ROOT / name).is_file():
            (app / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, app / name)
    with warnings.catch_warnings():  # of a library that Flower uses
        warnings.simplefilter("ignore", DeprecationWarning)
        assert len(build_fab_from_disk(app / "simulation")) < 10e6  # as `flwr build` does
    with superlink(space, cluster.address) as (environment, port):
        done = subprocess.run(
            [
                *(flower("flwr"), "run", "simulation", "mel", "--stream", "--federation-config"),
                *("num-supernodes=20 client-resources-num-cpus=1", "-c", f'cycles=1 run-dir="{run}"'),
            ],
            cwd=app,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        said = done.stdout
        assert done.returncode == 0, said + done.stderr
        number = int(re.search(r"started run (\d+)", said).group(1))
        status = status_of(number, port)
    assert (status.status, status.sub_status) == ("finished", "completed"), said
    assert records(run) == records(straight)[:1]
    # The bundle has no style sheet, so that the report may be left to the installed command.
    assert (run / "report.html").exists() or f"flwr-mel report {run}" in said
