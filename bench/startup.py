"""How long a short simulation takes to start and to end: ``python -m bench.startup``.

Ours (`flwr-mel simulate`, three cycles on the embedded digits) against an empty Flower app with as many nodes
that imports torch and sends three rounds of empty messages, run out of the box by `flwr run`. One after the
other, several times, in one run; the fastest of each counts, and the ratios matter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from bench.tables import arguments, save

NODES, CYCLES, _TRIES = 20, 3, 5
Times = dict[str, float]

_PROJECT = f"""[project]
name = "empty"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["flwr[simulation]", "torch"]
[tool.flwr.app]
publisher = "nobody"
[tool.flwr.app.components]
serverapp = "empty.apps:server"
clientapp = "empty.apps:client"
[tool.flwr.app.config]
cycles = {CYCLES}
"""
_APPS = """import torch
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()


@client.train()
def train(message, context):
    metrics = MetricRecord({"threads": torch.get_num_threads()})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@server.main()
def main(grid, context):
    import time

    nodes = []
    while len(nodes) < NODES:
        nodes = list(grid.get_node_ids())
        time.sleep(0.1)
    for cycle in range(1, int(context.run_config["cycles"]) + 1):
        content = RecordDict({"config": ConfigRecord({"cycle": cycle})})
        replies = list(grid.send_and_receive([Message(content, n, "train") for n in nodes]))
        assert len(replies) == NODES and not any(reply.has_error() for reply in replies)
        print("cycle", cycle, flush=True)
"""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    ways: dict[str, Callable[[Path], Times]] = {"empty": empty, "ours": ours}
    runs: dict[str, list[Times]] = {name: [] for name in ways}
    for _ in range(args.repeats):
        for name, run in ways.items():
            with tempfile.TemporaryDirectory(prefix="b-") as scratch:
                runs[name].append(run(Path(scratch)))
                print(name, {k: round(v, 1) for k, v in runs[name][-1].items()}, file=sys.stderr, flush=True)
    print(section({"runs": runs}))
    if not args.no_write:
        save("startup", {"runs": runs})


def ours(scratch: Path) -> Times:
    """Return the seconds to the first line, the end of each cycle and the end of `flwr-mel simulate`."""
    env = {**os.environ, "FLWR_MEL_OFFLINE": "1", "FLWR_MEL_DATA": str(scratch / "cache")}
    command = [sys.executable, "-m", "flwr_mel.tools.cli", "simulate", "--cycles", str(CYCLES)]
    return _timed([*command, "--learners", str(NODES), "--run-dir", str(scratch / "run")], env, scratch)


def empty(scratch: Path) -> Times:
    """Return the same of the empty app. Its SuperLink outlives the command; it is ended afterwards."""
    app = scratch / "app"
    (app / "empty").mkdir(parents=True)
    (app / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    (app / "empty" / "__init__.py").write_text("", encoding="utf-8")
    (app / "empty" / "apps.py").write_text(_APPS.replace("NODES", str(NODES)), encoding="utf-8")
    home = str(scratch / "home")
    env = {**os.environ, "FLWR_HOME": home, "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    env |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    # `flwr run` looks for `flower-superlink` there.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    federation = f"num-supernodes={NODES} client-resources-num-cpus=1"
    flwr = str(Path(sys.executable).parent / "flwr")
    command = [flwr, "run", str(app), "--stream", "--federation-config", federation]
    for _ in range(_TRIES):
        try:
            return _timed(command, env, scratch)
        except RuntimeError as error:
            # It gives its SuperLink 15 s, which a busy machine may not grant.
            if "Failed to start local SuperLink" not in str(error):
                raise
        finally:
            _end(home)
    raise RuntimeError("this machine is too busy for `flwr run`")


def _end(home: str) -> None:
    """End the SuperLink of an app, and what it started: all have its home in their environment."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("FLWR_HOME") == home:
                process.kill()


def _timed(command: list[str], env: dict[str, str], scratch: Path) -> Times:
    start, found = time.monotonic(), Times()
    process = subprocess.Popen(
        command, env=env, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        found.setdefault("first word", time.monotonic() - start)
        for name in (f"cycle {c}" for c in range(1, CYCLES + 1)):
            if line.startswith(name):
                found.setdefault(name, time.monotonic() - start)
    found["end"] = time.monotonic() - start
    if process.wait() or f"cycle {CYCLES}" not in found:
        raise RuntimeError(f"{command[0]} failed: {' '.join(lines[-10:])}")
    return found


def section(found: dict[str, Any]) -> str:
    """Return the section of the page."""
    runs: dict[str, list[Times]] = found["runs"]
    ours, empty = ({k: min(t[k] for t in runs[name]) for k in runs[name][0]} for name in ("ours", "empty"))
    first, end = (ours[phase] / empty[phase] for phase in ("cycle 1", "end"))
    return f"""## Start of a simulation

The first cycle of `flwr-mel simulate` ends after {ours["cycle 1"]:.0f} s, {first:.2f} times as long as in an
empty Flower app with {NODES} nodes that imports torch and runs with `flwr run`. {CYCLES} cycles take
{ours["end"]:.0f} s in all, {end:.2f} times as long as with that app (best of {len(runs["ours"])} runs).
"""


if __name__ == "__main__":
    main()
