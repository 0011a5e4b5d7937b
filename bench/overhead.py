"""What a cycle takes beside the work on real processes: ``python -m bench.overhead [--before CHECKOUT]``.

Four SuperNodes on loopback and a client that does nothing, so that all time is overhead. Flower's own loop
(plain FedAvg) and MelStrategy around it, with the deployment's settings, on devices started in three ways:
where Python must compile Flower again for every message (some installers compile nothing, and on a read-only
system nothing is kept), where it need not, and as `flwr-mel device start` does. CHECKOUT is the source of an
earlier version, whose strategy and mod are measured as Flower starts processes: that version's documents had
no other way. Writes a section of docs/BENCHMARKS.md and bench/results/overhead.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.loopback import Loopback, write_app
from bench.tables import PAGE, table, write_section
from flwr_mel.deployment.running import environment

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results" / "overhead.json"
NODES = 4
_STRATEGIES = {
    "fedavg": "FedAvg, Flower's own loop",
    "mel": "MelStrategy around it",
    "before": "MelStrategy of the version before",
}
_WAYS = {
    "uncompiled": "as Flower starts them, nothing compiled",
    "compiled": "as Flower starts them, compiled",
    "ours": "as `flwr-mel device start` does",
}

_CLIENT = """from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flwr_mel.clientapp import mel_mod

app = ClientApp(mods=[mel_mod])


@app.train()
def train(message, context):
    arrays, said = message.content["arrays"], MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": arrays, "metrics": said}), reply_to=message)
"""
_SERVER = """import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import flwr_mel
from flwr_mel.learning import Learning
from flwr_mel.serverapp import MelStrategy

app = ServerApp()


@app.main()
def main(grid, context):
    config, times = context.run_config, []

    def evaluate(cycle, arrays):
        times.append(time.monotonic())
        return MetricRecord({"cycle": cycle})

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES)
    if config["strategy"] != "fedavg":
        strategy = MelStrategy(strategy, cycle_time_s=600.0, max_epochs=1, learning=Learning())
    rounds = config["cycles"]
    strategy.start(grid, ArrayRecord([np.zeros(10)]), num_rounds=rounds, evaluate_fn=evaluate)
    told = {"times": times, "source": flwr_mel.__file__}
    Path(config["out"]).write_text(json.dumps(told))
"""
_CONFIG = """strategy = ""
cycles = 1
out = ""
mel-c2 = 0.001
mel-c1 = 0.0
mel-c0 = 0.0
mel-g2 = 0.0
mel-g1 = 0.0
mel-g0 = 0.0
mel-max-samples = 1
"""


class Run(NamedTuple):
    """What one run took.

    Parameters
    ----------
    seconds : list of float
        Of all cycles but the first, in which processes are loaded.
    devices_s, server_s : float
        Processor seconds per cycle, the start of the run and what is asked there included.
    """

    seconds: list[float]
    devices_s: float
    server_s: float


Found = dict[str, dict[str, Run]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=6)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="source of an earlier version")
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended, whoever ends us
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"):
        os.environ.pop(name, None)
    found: Found = {}
    loads: list[float] = []
    for way in _WAYS:
        with tempfile.TemporaryDirectory(prefix="b-") as scratch:
            found[way] = measure(Path(scratch), way, ("fedavg", "mel"), args.cycles, loads)
        if args.before and way != "ours":
            with tempfile.TemporaryDirectory(prefix="b-") as scratch:
                source = args.before.resolve()
                found[way] |= measure(Path(scratch), way, ("before",), args.cycles, loads, source)
    load = median(loads)
    print(report(found, load))
    if not args.no_write:
        write_section(PAGE, "overhead", report(found, load))
        runs = {way: {name: run._asdict() for name, run in some.items()} for way, some in found.items()}
        told = {"load": load, "runs": runs}
        RESULTS.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def variables(way: str, scratch: Path) -> dict[str, str]:
    """Return the environment of all processes."""
    # A place of their own, where nothing is compiled at first, however Flower was installed here.
    kept = {"PYTHONPYCACHEPREFIX": str(scratch / "pycache")}
    if way == "uncompiled":
        return kept | {"PYTHONDONTWRITEBYTECODE": "1"}
    if way == "compiled":
        return kept
    return {key: value for key, value in environment(scratch / "home").items() if key != "FLWR_HOME"} | kept


def measure(
    scratch: Path, way: str, strategies: Sequence[str], cycles: int, loads: list[float], source: Path = ROOT
) -> dict[str, Run]:
    """Run a training with each strategy on one fleet."""
    found: dict[str, Run] = {}
    with Loopback(scratch / "f", PYTHONPATH=str(source), **variables(way, scratch)) as fleet:
        files = {"client_app.py": _CLIENT, "server_app.py": _SERVER.replace("NODES", str(NODES))}
        app = write_app(scratch / "app", "idle", files, _CONFIG)
        for k in range(NODES):
            config = f"partition-id={k} num-partitions={NODES}"
            fleet.start_node(f"node-{k}", config, ours=way == "ours")
        fleet.wait_for_nodes()
        out = scratch / "times.json"
        for name in strategies:
            before = fleet.cpu_s()
            fleet.run(app, {"strategy": name, "cycles": cycles, "out": str(out)})
            told = json.loads(out.read_text(encoding="utf-8"))
            if not Path(told["source"]).is_relative_to(source):
                raise RuntimeError(f"{told['source']} was run, not what is in {source}")
            cpu = [(b - a) / cycles for a, b in zip(before, fleet.cpu_s(), strict=True)]
            found[name] = Run([b - a for a, b in pairwise(told["times"][1:])], *cpu)
            loads.append(os.getloadavg()[0])
            print(way, name, found[name], loads[-1], file=sys.stderr, flush=True)
    return found


def report(found: Found, load: float) -> str:
    """Return the section."""
    cores = os.cpu_count() or 1
    # Its own processes are one per core or so.
    busy = ": **the machine was busy**, so an idle one takes less" if load > 4 * cores else ""
    runs = {(way, name): run for way, some in found.items() for name, run in some.items()}
    middle = {key: median(run.seconds) for key, run in runs.items()}
    rows = [
        [
            _WAYS[way],
            _STRATEGIES[name],
            f"{middle[way, name]:.1f} s",
            f"{min(run.seconds):.1f} to {max(run.seconds):.1f} s",
            f"{run.devices_s:.1f} s",
            f"{run.server_s:.1f} s",
            f"{len(run.seconds)}",
        ]
        for (way, name), run in runs.items()
    ]
    now = middle["ours", "mel"]
    whose = {"fedavg": "Flower's own", "mel": "ours", "before": "that of the version before"}
    where = {"uncompiled": "where nothing is compiled", "compiled": "where all is"}
    told = ", ".join(
        f"{now / middle[way, name]:.2f} of {whose[name]} {where[way]}" for way, name in middle if way in where
    )
    return (
        "## What a cycle takes beside the work, on real processes\n\n"
        f"A SuperLink and {NODES} SuperNodes on loopback, a client that does nothing: all of it is Flower's "
        f"and ours. Load {load:.1f} on {cores} cores, median{busy}. The first cycle of each run is "
        "left out, but in the processor seconds per cycle, which hardly depend on the load: there all of a "
        "run counts, in ours a question to every device before its first cycle. The last line's median is "
        f"{told}. As Flower starts them, devices look for messages every three seconds and start a process "
        f"for each, {NODES} at once on these cores; `flwr-mel device start` looks sooner and forks from a "
        "process that has loaded everything.\nGenerated by `python -m bench.overhead`.\n\n"
        + table(["processes", "strategy", "median", "range", "devices' CPU", "server's CPU", "cycles"], rows)
    )


if __name__ == "__main__":
    main()
