"""A long run with learners that come, go, dawdle and fail: ``python -m bench.soak --nodes 200 --cycles 200``.

On Flower's Ray engine. All that goes wrong is drawn from the seed. The command fails if a cycle's record
is incomplete, if somebody's trouble is not on record, or if memory grows; otherwise it writes a section of
docs/BENCHMARKS.md and bench/results/soak.json (unless --short).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from mel_simulation.app.message_window import Windowed

from bench.tables import PAGE, table, write_section
from flwr_mel.clientapp import Assignment, MelMod
from flwr_mel.devices import Measured
from flwr_mel.records import CycleRecord, JsonlWriter, Outcome, read_jsonl
from flwr_mel.serverapp import MelFedAvg, MelStrategy

RESULTS = Path(__file__).parent / "results" / "soak.json"
SIZE = 10_000
#: Shares of learner-cycles: away, raises, sends nonsense, dawdles.
AWAY, RAISES, NONSENSE, DAWDLES = 0.15, 0.03, 0.02, 0.05
_BACKEND: dict[str, Any] = {
    "client_resources": {"num_cpus": 1},
    "init_args": {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False},
}
#: Who is away is drawn by place among the nodes, from a stream of its own.
_PLACES = 1_000_000
#: Memory of the last quarter against the second, at most.
GROWTH = 1.05


def fate(seed: int, cycle: int, learner: int) -> str:
    """Return what happens to a learner in a cycle; server and clients agree without talking."""
    u = float(np.random.default_rng([seed, cycle, learner]).random())
    for name, share in (("away", AWAY), ("raises", RAISES), ("nonsense", NONSENSE), ("dawdles", DAWDLES)):
        if u < share:
            return name
        u -= share
    return ""


def _seed() -> int:
    return int(os.environ["SOAK_SEED"])


def capability(context: Context, _: int) -> Measured:
    """Return costs that differ by learner."""
    k = int(context.node_config["partition-id"])
    return Measured(
        c2=1e-3 * (1 + k % 7), c1=1e-3, c0=0.1, g2=0.0, g1=0.0, g0=0.0, name=str(k), max_samples=500
    )


client_app = ClientApp(mods=[MelMod(capability)])


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Move the model a little, or fail as the seed says."""
    task, k = Assignment.from_message(message), int(context.node_config["partition-id"])
    what = fate(_seed(), task.cycle, k)
    if what == "raises":
        raise RuntimeError("the learner broke down")
    if what == "dawdles":
        time.sleep(0.2)
    w = message.content.array_records["arrays"].to_numpy_ndarrays()[0]
    new = w + task.rng().standard_normal(w.shape).astype(np.float32) / 100
    if what == "nonsense":
        new[0] = np.nan
    metrics = MetricRecord({"num-examples": task.samples, "loss": float(np.abs(w).mean())})
    return Message(RecordDict({"arrays": ArrayRecord([new]), "metrics": metrics}), reply_to=message)


class Churn(MelFedAvg):
    """Learners come and go: who is away in a cycle is not there for the strategy."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Leave out who is away."""
        proposed = list(super().configure_train(server_round, arrays, config, grid))
        proposed.sort(key=lambda m: m.metadata.dst_node_id)
        return [m for i, m in enumerate(proposed) if fate(_seed(), server_round, _PLACES + i) != "away"]


server_app = ServerApp()


@server_app.main()
def main_(grid: Grid, _: Context) -> None:
    """Train, and note memory after every cycle."""
    nodes, cycles, out = (os.environ[f"SOAK_{x}"] for x in ("NODES", "CYCLES", "OUT"))
    inner = Churn(fraction_evaluate=0.0, min_train_nodes=int(nodes), min_available_nodes=int(nodes))
    strategy = MelStrategy(
        inner,
        cycle_time_s=10.0,
        staleness=2,
        total_samples=100 * int(nodes) // 2,
        seed=_seed(),
        probe_timeout_s=600.0,
        idle_timeout_s=600.0,
        callbacks=[JsonlWriter(Path(out) / "records.jsonl"), Memory(Path(out) / "memory.jsonl", int(cycles))],
    )
    start = ArrayRecord([np.zeros(SIZE, np.float32)])
    strategy.start(cast(Grid, Windowed(grid)), start, num_rounds=int(cycles))


class Memory:
    """A callback that notes the memory of this process and of Ray's, and shows progress."""

    def __init__(self, path: Path, cycles: int) -> None:
        self.path, self.cycles = path, cycles

    def __call__(self, record: CycleRecord) -> None:
        """Note."""
        me = psutil.Process()
        actors = [p for p in me.children(recursive=True) if "ClientAppActor" in p.name()]
        row = {"cycle": record.cycle, "server": _private(me), "actors": sum(map(_private, actors))}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"cycle {record.cycle} of {self.cycles}, {row['server'] >> 20} MB", file=sys.stderr, flush=True)


def _private(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def judge(out: Path, nodes: int, cycles: int, seed: int) -> dict[str, Any]:
    """Check every record against what the seed did, and memory; raise AssertionError on the first fault."""
    records = list(read_jsonl(out / "records.jsonl"))
    assert [r.cycle for r in records] == list(range(1, cycles + 1)), "a cycle's record is missing"
    outcomes: Counter[str] = Counter()
    for record in records:
        names = [row.learner for row in record.learners]
        assert len(set(names)) == len(names) <= nodes, f"cycle {record.cycle}: learners twice"
        assert sum(row.samples for row in record.learners) == record.total_samples
        assert record.makespan_s <= record.cycle_time_s
        for row in record.learners:
            outcomes[str(row.outcome)] += 1
            what = fate(seed, record.cycle, int(row.learner)) if row.samples else ""
            wanted = {"raises": Outcome.FAILED, "nonsense": Outcome.REFUSED}.get(what, Outcome.USED)
            if row.samples:
                assert row.outcome is wanted, f"cycle {record.cycle}, {row}: should be {wanted}"
    memory = [json.loads(line) for line in (out / "memory.jsonl").read_text(encoding="utf-8").splitlines()]
    quarter = max(cycles // 4, 1)
    growth = {}
    for who in ("server", "actors"):
        series = [row[who] for row in memory]
        before, after = series[quarter : 2 * quarter], series[-quarter:]
        growth[who] = statistics.median(after) / max(statistics.median(before), 1)
    return {
        "nodes": nodes,
        "cycles": cycles,
        "seed": seed,
        "present": statistics.mean(len(r.learners) for r in records),
        "outcomes": dict(outcomes),
        "growth": growth,
        "server_mb": memory[-1]["server"] / 2**20,
    }


def report(r: dict[str, Any]) -> str:
    """Return the section."""
    rows = [[name, f"{n:,}"] for name, n in sorted(r["outcomes"].items())]
    return (
        f"## Soak: {r['nodes']} nodes, {r['cycles']} cycles\n\n"
        f"On Flower's Ray engine; in a cycle {AWAY:.0%} of the learners are away, {RAISES:.0%} raise, "
        f"{NONSENSE:.0%} send NaN, {DAWDLES:.0%} dawdle, drawn from the seed. Every record was compared with "
        f"the draw. {r['present']:.0f} learners were there on average, in {r['wall_s'] / 60:.0f} minutes. "
        f"Memory of the server in the last quarter was {r['growth']['server']:.3f} times that in the second, "
        f"of the learners' processes {r['growth']['actors']:.3f} times. Generated by `python -m bench.soak`."
        "\n\n" + table(["outcome", "learner-cycles"], rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="print only; too short to judge memory")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        out = Path(name)
        about = {"NODES": args.nodes, "CYCLES": args.cycles, "SEED": args.seed, "OUT": out}
        os.environ |= {f"SOAK_{key}": str(value) for key, value in about.items()}
        start = time.monotonic()
        run_simulation(server_app, client_app, num_supernodes=args.nodes, backend_config=_BACKEND)
        result = judge(out, args.nodes, args.cycles, args.seed) | {"wall_s": time.monotonic() - start}
    print(json.dumps(result))
    if not args.short:
        if max(result["growth"].values()) > GROWTH:
            raise SystemExit(f"memory grows: {result['growth']}")
        write_section(PAGE, "soak", report(result))
        RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
