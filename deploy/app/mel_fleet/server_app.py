"""The server: allocates every cycle's work, averages, keeps records, checkpoints and the model."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid import InMemoryGrid

from flwr_mel import Workload
from flwr_mel._files import atomically
from flwr_mel.learning import Learning
from flwr_mel.records import JsonlWriter
from flwr_mel.serverapp import MelFedAvg, MelStrategy
from mel_fleet.data import draw, draw_test, load, load_test
from mel_fleet.lock import alone_in
from mel_fleet.model import evaluate, initial_weights

log = logging.getLogger("flwr")
app = ServerApp()


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
    start = ArrayRecord(initial_weights(*layers(config), rng))
    wait_for_devices(grid, int(config["devices"]))
    result = strategy.start(
        grid, start, num_rounds=int(config["cycles"]), evaluate_fn=evaluation(config, simulated)
    )
    arrays = result.arrays.to_numpy_ndarrays()
    atomically(run_dir / "model.npz", lambda file: np.savez(file, *arrays), "wb")


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
    }


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
