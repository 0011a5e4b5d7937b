"""Whole runs on Flower's engine, by the command line: same bits, resume, interruption, failure, cluster."""

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from simulation import launch
from simulation.data import embedded
from simulation.flower_app import write_connection
from simulation.idx import FILES
from simulation.processes import end, tree
from tests.test_data import idx_bytes

ROOT = Path(__file__).parents[1]
CYCLES = 6
#: Seconds; a run takes about 20 on an idle machine.
PATIENCE_S = 500
# The wall clock is not reproducible, and Flower draws its node ids at random.
NOT_COMPARED = ("node", "reported_time_s")

pytestmark = pytest.mark.timeout(3 * PATIENCE_S)


@pytest.fixture(scope="module")
def space(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short name: Ray's sockets may have 107 characters."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix="mel")))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def env(space) -> dict[str, str]:
    free = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "FLWR_"))}
    return {**free, "FLWR_MEL_OFFLINE": "1", "FLWR_MEL_DATA": str(space / "cache")}


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "flwr_mel.cli", "simulate", *(str(a) for a in args)]


@pytest.fixture(scope="module")
def simulate(env):
    """Run `flwr-mel simulate`; it must end with the given code and leave no process behind."""

    def run(*args: object, code: int = 0) -> str:
        done = subprocess.run(
            command(*args), env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return run


def records(run: Path) -> list[dict]:
    """What must be the same whenever a run is repeated."""
    found = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    for record in found:
        record["learners"] = [
            {k: v for k, v in row.items() if k not in NOT_COMPARED} for row in record["learners"]
        ]
    return found


def assert_same(run: Path, other: Path) -> None:
    assert records(run) == records(other)
    with np.load(run / "model.npz") as a, np.load(other / "model.npz") as b:
        assert a.files == b.files
        assert all(np.array_equal(a[name], b[name]) for name in a.files)
        assert {a[name].dtype.str for name in a.files if name != "about"} == {"<f4"}


def strays(word: str) -> list[str]:
    """Return the processes whose command line has a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text and path.parent.name != str(os.getpid()):
            found.append(text)
    return found


@pytest.fixture(scope="module")
def straight(space, simulate) -> Path:
    """The run that the others are compared with: Message API, as many actors as CPUs, not interrupted."""
    run = space / "straight"
    simulate("--cycles", CYCLES, "--run-dir", run)
    return run


def test_a_run_and_what_it_leaves(straight):
    names = {p.name for p in straight.iterdir()}
    assert names == {
        *("config.json", "flower.log", "ledger.csv", "metrics.csv", "model.npz"),
        *("records.jsonl", "report.html", "summary.json"),
    }
    found = records(straight)
    assert [r["cycle"] for r in found] == list(range(1, CYCLES + 1))
    assert all(r["total_samples"] == 4000 and len(r["learners"]) == 20 for r in found)
    assert all(row["outcome"] == "used" for r in found for row in r["learners"])
    assert found[-1]["metrics"]["accuracy"] > 0.88
    assert found[0]["learners"][0]["energy_limit_j"] != found[1]["learners"][0]["energy_limit_j"]
    with (straight / "ledger.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 * CYCLES
    for row in rows:
        assert float(row["busy_s"]) <= 10
        assert float(row["busy_s"]) + float(row["idle_s"]) == pytest.approx(10, abs=1e-12)
        assert float(row["energy_j"]) <= float(row["energy_limit_j"])
        assert float(row["battery_share"]) == float(row["energy_j"]) / 36_000
    with (straight / "metrics.csv").open() as file:
        assert all(float(row["wall_s"]) > 0 for row in csv.DictReader(file))
    assert json.loads((straight / "summary.json").read_text())["cycles"] == CYCLES
    assert "EMBEDDED SUBSET" in (straight / "report.html").read_text()


def test_same_bits_by_the_other_api_with_more_actors_and_a_break(space, simulate, straight):
    run = space / "classic"
    simulate("--cycles", 1, "--run-dir", run, "--api", "classic", "--cpus-per-learner", 0.5)
    assert records(run) == records(straight)[:1]
    before = (run / "records.jsonl").read_text()
    said = simulate("--cycles", CYCLES, "--run-dir", run, "--resume", "--cpus-per-learner", 0.5)
    assert "cycle 1 " not in said  # it is done
    assert (run / "records.jsonl").read_text().startswith(before)
    assert json.loads((run / "config.json").read_text())["config"]["api"] == "classic"
    assert_same(run, straight)


@pytest.mark.parametrize("how", [signal.SIGTERM])
def test_interrupted_and_resumed(space, env, simulate, straight, how):
    run = space / f"interrupted-{how.name}"
    process = subprocess.Popen(
        command("--cycles", CYCLES, "--run-dir", run),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("cycle 1 "):
                break
        family = tree(process.pid)
        assert len(family) > 8  # SuperLink, engine, Ray, actors
        process.send_signal(how)
        rest, _ = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 130, "".join(lines) + rest
    assert "what was finished is kept" in rest
    assert "interrupted" in rest
    assert not [p for p in family if p in tree(p.pid)]
    kept = records(run)
    assert 1 <= len(kept) < CYCLES
    assert kept == records(straight)[: len(kept)]
    assert (run / "report.html").exists()
    simulate("--run-dir", run, "--resume")
    assert_same(run, straight)


def test_federated_learning_on_uneven_data(space, simulate):
    run = space / "fl"
    simulate("--mode", "fl", "--alpha", 0.5, "--cycles", 2, "--run-dir", run, "--mobility", 20)
    first, second = records(run)
    assert first["total_samples"] == 2000
    assert {row["outcome"] for row in first["learners"]} <= {"used", "left out"}
    assert second["metrics"]["accuracy"] > 0.3
    assert len({row["samples"] for row in first["learners"]}) > 5


def test_a_run_that_fails_inside_says_why(space, env):
    data = space / "data"
    data.mkdir()
    d = embedded()
    for name, array in zip(FILES, (d.train_x, d.train_y, d.test_x, d.test_y), strict=True):
        images = array.reshape(-1, 28, 28) if array.ndim == 2 else array
        (data / name).write_bytes(idx_bytes(images))
    run = space / "failing"
    process = subprocess.Popen(
        command("--data-dir", data, "--samples", 2000, "--sample-cost", 20, "--run-dir", run),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        for line in process.stdout:
            if line.startswith("starting"):
                break
        shutil.rmtree(data)
        rest, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)
    assert process.returncode == 1, rest
    assert "the run failed" in rest
    assert "data_dir must be an existing directory" in rest
    assert "flower.log" in rest
    assert "Traceback" not in rest


@contextmanager
def superlink(space: Path):
    """Flower's SuperLink as a user has it, with a home of its own."""
    scratch = space / "user"
    scratch.mkdir()
    environment = launch._environment(scratch, launch.Engine(20, offline=True))
    port = launch.free_port()
    write_connection(Path(environment["FLWR_HOME"]), port)
    process = launch._superlink(port, environment, scratch / "superlink.log")
    try:
        launch._wait_until_up(port, process, scratch / "superlink.log")
        yield environment
    finally:
        end(process)


def test_flwr_run_as_a_flower_user(short, straight):
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
    flwr = launch._tool("flwr")
    with superlink(space) as environment:

        def call(*args: str) -> str:
            done = subprocess.run(
                [flwr, *args],
                cwd=app,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        call("build")
        [bundle] = app.glob("*.fab")
        assert bundle.stat().st_size < 10e6
        bundle.unlink()
        said = call(
            *("run", ".", "mel", "--stream", "--federation-config"),
            *("num-supernodes=20 client-resources-num-cpus=1", "-c", f'cycles=1 run-dir="{run}"'),
        )
        number = re.search(r"started run (\d+)", said).group(1)
        status = json.loads(call("ls", "mel", "--run-id", number, "--format", "json"))["runs"][0]["status"]
    assert status == "finished:completed", said
    assert records(run) == records(straight)[:1]
    # The bundle has no style sheet, so that the report may be left to the installed command.
    assert (run / "report.html").exists() or f"flwr-mel report {run}" in said


CLUSTER = """
import sys
import ray
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.connect()
from ray._private.state import actors
ours = [actor for actor in actors().values() if "ClientApp" in actor["ActorClassName"]]
print(len({actor["Address"]["NodeID"] for actor in ours}), flush=True)
ray.shutdown()
cluster.shutdown()
"""


def test_a_cluster_of_two_nodes(short, env, space, simulate, straight):
    home = short
    with (home / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLUSTER],
            env={**env, "RAY_TMPDIR": str(home), "RAY_USAGE_STATS_ENABLED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        address = process.stdout.readline().strip()
        assert address, (home / "errors").read_text()
        family = tree(process.pid)
        simulate("--cycles", 2, "--run-dir", space / "cluster", "--ray-address", address)
        process.stdin.write("who took part?\n")
        process.stdin.flush()
        machines = process.stdout.readline().strip()
        process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 0, (home / "errors").read_text()
    assert machines == "2"
    assert records(space / "cluster") == records(straight)[:2]
    assert not [p for p in family if p in tree(p.pid)]
    time.sleep(0.2)
    assert not strays(str(home))
