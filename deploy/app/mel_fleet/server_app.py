"""The server: allocates every cycle's work, averages, keeps records, checkpoints and the model.

The run directory has what `flwr-mel watch` and `flwr-mel report` read: records.jsonl, config.json and, when
the run is over, summary.json.
"""

from __future__ import annotations

import json
import logging
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid import InMemoryGrid

from flwr_mel import Workload
from flwr_mel._files import atomically, check_room
from flwr_mel.learning import Learning
from flwr_mel.records import JsonlWriter
from flwr_mel.serverapp import MelFedAvg, MelResult, MelStrategy
from mel_fleet.data import draw, draw_test, load, load_test
from mel_fleet.lock import alone_in
from mel_fleet.model import evaluate, initial_weights

log = logging.getLogger("flwr")
app = ServerApp()
#: Free bytes for records and summary.
_ROOM = 1 << 20


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one training."""
    run_dir = Path(str(context.run_config["run-dir"]))
    with alone_in(run_dir):
        train(grid, context.run_config, run_dir)


def train(grid: Grid, config: Any, run_dir: Path) -> None:
    """Train, or go on with the training in `run_dir`."""
    simulated = isinstance(grid, InMemoryGrid)
    # Flower's own minimum would hold for every cycle: one dead device would stop the training for ever.
    inner = MelFedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy = MelStrategy(
        inner,
        callbacks=[JsonlWriter(run_dir / "records.jsonl")],
        checkpoints=run_dir / "checkpoints",
        **settings(config, simulated=simulated),
    )
    rng = np.random.default_rng(int(config["seed"]))
    weights = initial_weights(*layers(config), rng)
    # What cannot be kept is told before anybody works: two models, one in the place of the other.
    check_room(run_dir, 2 * sum(w.nbytes for w in weights) + _ROOM)
    facts = {"config": dict(config)}
    atomically(run_dir / "config.json", lambda file: json.dump(facts, file, indent=2))
    wait_for_devices(grid, int(config["devices"]))
    rounds, evaluate_fn = int(config["cycles"]), evaluation(config, simulated)
    finish(run_dir, strategy.start(grid, ArrayRecord(weights), num_rounds=rounds, evaluate_fn=evaluate_fn))


def finish(run_dir: Path, result: MelResult) -> None:
    """Write the model and the summary, each whole or not at all."""
    arrays = result.arrays.to_numpy_ndarrays()
    try:
        atomically(run_dir / "model.npz", lambda file: np.savez(file, *arrays), "wb")
        summary = summary_of(result)
        atomically(run_dir / "summary.json", lambda file: json.dump(summary, file, indent=2))
    except OSError as error:
        raise RuntimeError(
            f"training is done, but its model could not be written: {error}. It is safe in the last "
            "checkpoint: free some space and repeat the same command, which writes it without training again"
        ) from error
    took = "" if summary["duration_s"] is None else f" in {summary['duration_s']:.0f} s"
    plan = f"planned {summary['planned_s']:.0f} s"
    log.info("%d cycles done%s, %s: %s", result.cycles, took, plan, run_dir / "model.npz")


def summary_of(result: MelResult) -> dict[str, Any]:
    """Say how a training ended: by the server's clock, and by the plan beside it."""
    records = result.records
    last = records[-1] if records else None
    took = [record.duration_s for record in records]
    kept = [r.waited_s <= r.cycle_time_s for r in records if r.waited_s is not None]
    return {
        "cycles": result.cycles,
        "accuracy": last.metrics.get("accuracy") if last else None,
        "stopped": last.stopped if last else "",
        "ended_at": told(last.ended_at) if last else None,
        # Of the cycles that are kept in memory: records.jsonl has all.
        "duration_s": sum(x for x in took if x is not None) if any(took) else None,
        "planned_s": sum(record.makespan_s for record in records),
        "cycles_within_t": f"{sum(kept)} of {len(kept)}",
        "flower_s": last.flower_s if last else None,
        "energy_j": last.total_energy_j if last else 0.0,
    }


def told(seconds: float | None) -> str | None:
    """Return a time of day as people read it, with the server's time zone."""
    return None if seconds is None else datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")


def wait_for_devices(grid: Grid, devices: int) -> None:
    """Wait until so many devices are connected; later cycles go on with those who are there."""
    while (here := len(list(grid.get_node_ids()))) < devices:
        log.info("%d of %d devices are here", here, devices)
        time.sleep(3)


def layers(config: Any) -> tuple[int, int, int]:
    """Return the network's features, hidden units and classes."""
    return int(config["features"]), int(config["hidden"]), int(config["classes"])


def settings(config: Any, *, simulated: bool = False) -> dict[str, Any]:
    """Translate the run configuration into keyword arguments of `MelStrategy`."""
    mode = str(config["mode"])
    return {
        # Only for devices that give clock and link rate in place of measured seconds.
        "workload": Workload.mlp(layers(config), ship_data=mode == "parallelized"),
        "cycle_time_s": float(config["cycle-time"]),
        "total_samples": int(config["samples"]) or None,
        "staleness": int(config["staleness"]),
        "max_epochs": int(config["max-epochs"]) or None,
        "mode": mode,
        "dataset": _shipped(config, simulated) if mode == "parallelized" else None,
        "learning": Learning() if config["learning"] else None,
        "enforce_deadline": bool(config["enforce-deadline"]),
        "stragglers": str(config["stragglers"]),
        "quorum": float(config["quorum"]),
        "seed": int(config["seed"]),
        "allow_insecure_shards": bool(config["allow-insecure-shards"]),
        "names": names(str(config["devices-file"])),
        "max_norm_ratio": float(config["max-norm-ratio"]) or None,
        "max_share": float(config["max-share"]) or "auto",
    }


def names(devices_file: str) -> Path | None:
    """Return the file that says which node is which device, if there is one."""
    path = Path(devices_file)
    return path if devices_file and path.is_file() else None


def _shipped(config: Any, simulated: bool) -> Any:
    directory = str(config["data-dir"])
    return draw(config, 1, 4000) if simulated and not directory else load(directory)


def evaluation(config: Any, simulated: bool) -> Any:
    """Return the evaluation on the server's test data, drawn ones in a simulation; None if it has none."""
    directory = str(config["data-dir"])
    test = draw_test(config) if simulated and not directory else load_test(directory)
    if test is None:
        return None
    x, y = (np.asarray(part) for part in test)

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord:  # noqa: ARG001
        loss, accuracy = evaluate(arrays.to_numpy_ndarrays(), x, y)
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    return evaluate_fn
