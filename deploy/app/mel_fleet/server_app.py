"""The server: plans each round's work, averages, and writes records, checkpoints and the model."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from flwr_mel import Estimation, JsonlWriter, Robust, Rounds, Shards
from flwr_mel.checkpoint import Checkpointed
from flwr_mel.serverapp import MelStrategy
from mel_fleet.data import server_data, test_data
from mel_fleet.model import evaluate, initial_weights

log = logging.getLogger("flwr")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, or resume the training in `run-dir`."""
    config = context.run_config
    run_dir = Path(str(config["run-dir"]))
    run_dir.mkdir(parents=True, exist_ok=True)
    # Flower's minimum applies to every round: with a larger one, a dead device would stop the training.
    strategy = planned(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1), config, run_dir
    )
    wait_for_devices(grid, int(config["devices"]))
    result = strategy.start(
        grid,
        ArrayRecord(initial_weights(config)),
        num_rounds=int(config["rounds"]),
        evaluate_fn=evaluation(config),
    )
    part = run_dir / "model.part.npz"
    np.savez(part, *result.arrays.to_numpy_ndarrays())
    part.replace(run_dir / "model.npz")
    log.info("model: %s", run_dir / "model.npz")


def planned(inner: Strategy, config: Mapping[str, Any], run_dir: Path) -> Checkpointed:
    """Wrap the strategy with flwr_mel. All of its settings are here; 0 in the config means none."""
    shards = None
    if config["ship-data"]:
        shards = Shards(server_data(config), over_tls=bool(config["over-tls"]))
    strategy = MelStrategy(
        inner,
        cycle_time_s=float(config["cycle-time"]) or None,
        total_samples=int(config["samples"]) or None,
        staleness=None if int(config["staleness"]) < 0 else int(config["staleness"]),
        max_epochs=int(config["max-epochs"]) or None,
        shards=shards,
        estimation=Estimation(),
        robust=Robust(
            max_samples=int(config["max-samples"]) or None,
            max_share=float(config["max-share"]) or None,
            max_norm_ratio=float(config["max-norm-ratio"]) or None,
        ),
        rounds=Rounds(deadline_slack=float(config["deadline-slack"]) or None),
        callbacks=[JsonlWriter(run_dir / "records.jsonl")],
        seed=int(config["seed"]),
    )
    return Checkpointed(strategy, run_dir / "checkpoints")


def wait_for_devices(grid: Grid, devices: int) -> None:
    """Wait until enough devices are connected to begin."""
    while (connected := len(list(grid.get_node_ids()))) < devices:
        log.info("waiting for devices: %d of %d connected", connected, devices)
        time.sleep(3)


def evaluation(config: Mapping[str, Any]) -> Callable[[int, ArrayRecord], MetricRecord] | None:
    """Return the evaluation on the server's test data; None if it has none."""
    test = test_data(config)
    if test is None:
        return None
    x, y = (np.asarray(part) for part in test)

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord:  # noqa: ARG001
        loss, accuracy = evaluate(arrays.to_numpy_ndarrays(), x, y)
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    return evaluate_fn
