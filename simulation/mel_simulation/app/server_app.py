"""The server of the simulation: builds the strategy, evaluates every cycle, fills the run directory."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.common import Scalar, log, ndarrays_to_parameters
from flwr.server import Server, ServerAppComponents, ServerConfig, SimpleClientManager
from flwr.server.strategy import FedAdam as ClassicAdam
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg

from flwr_mel import server as classic
from flwr_mel import serverapp as message
from flwr_mel.checkpoint import Checkpointed
from flwr_mel.cycle.options import Rounds, Shards
from flwr_mel.records import JsonlWriter, Stopping
from flwr_mel.tools.report import write_report
from mel_simulation.app.message_window import Windowed
from mel_simulation.app.run_dir import RunDir
from mel_simulation.scenario.config import ADAM, RATE, RunConfig
from mel_simulation.scenario.job import (
    batch_size,
    check_feasible,
    dataset_of,
    min_samples,
    total_samples,
    workload_of,
)
from mel_simulation.scenario.network import Weights, evaluate, initial_weights

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one simulation as `flwr run` configures it."""
    config = RunConfig.parse(context.run_config)
    simulate(replace(config, learners=count_nodes(grid, config.learners)), grid, context)


def count_nodes(grid: Grid, wanted: int, patience_s: float = 60.0) -> int:
    """Return the number of nodes once all are there: they connect while this app starts.

    Parameters
    ----------
    grid : Grid
        Flower's connection to the nodes.
    wanted : int
        How many there must be. 0: as many as there are.
    patience_s : float
        How long to wait for them.
    """
    end = time.monotonic() + patience_s
    seen, before = len(list(grid.get_node_ids())), 0
    while time.monotonic() < end and not (seen and seen == (wanted or before)):
        # Without a number to wait for, the same number must be seen twice, some time apart.
        time.sleep(0.02 if wanted else 0.5)
        seen, before = len(list(grid.get_node_ids())), seen
    if not seen or (wanted and seen != wanted):
        raise ValueError(
            f"the federation must have as many nodes as learners ({wanted or 'any'}), got {seen}. "
            f"Try: flwr run simulation --federation-config 'num-supernodes={wanted or 20}'"
        )
    return seen


def settings_of(config: RunConfig, run: RunDir) -> dict[str, Any]:
    """Return the keyword arguments of either `MelStrategy`: the paper's costs, limits and weights."""
    data = dataset_of(config)
    if config.scheme == RATE:
        planned = {"cycle_time_s": "best", "solver": config.rate(), "average": "nova"}
    else:
        scheme = config.scheme_object()
        planned = {"cycle_time_s": config.cycle_time, "solver": scheme.solver, "staleness": scheme.staleness}
        planned["total_samples"] = total_samples(config)
    return planned | {
        "min_samples": min_samples(config),
        "workload": workload_of(config),
        "shards": Shards((data.train_x, data.train_y)) if config.mode == "pl" else None,
        "seed": config.seed,
        # The first replies wait for Ray to start. A result must not depend on the wall clock.
        "rounds": Rounds(probe_timeout_s=3600.0),
        # In this order, so that the last record has the reason for the end.
        "callbacks": [Stopping(target=config.target_accuracy or None), JsonlWriter(run.records_file)],
    }


class Model:
    """The newest global model, measured on the test set after every cycle."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.first = initial_weights(config.seed)
        self.newest: Weights | None = None

    def evaluate(self, weights: Weights) -> tuple[float, float]:
        """Return loss and accuracy of the model after a cycle."""
        self.newest = [np.asarray(w, dtype=np.float32) for w in weights]
        data = dataset_of(self.config)
        return evaluate(self.newest, data.test_x, data.test_y)


def simulate(config: RunConfig, grid: Grid, context: Context) -> Path:
    """Run the configured cycles and write a report; return the run directory.

    Parameters
    ----------
    config : RunConfig
        The run; `learners` is K.
    grid : Grid
        Flower's connection to the nodes.
    context : Context
        Of the ServerApp.
    """
    check_feasible(config)  # before it trains
    data, run, model = dataset_of(config), RunDir.of(config), Model(config)
    if data.notice:
        log(WARNING, data.notice)
    run.start(config)
    if config.cycles > run.cycles_done():
        drive = _by_message if config.api == "message" else _by_classic
        drive(config, grid, context, run, model)
    _conclude(config, run, model)
    return run.path


def _asked(config: RunConfig) -> dict[str, Any]:
    """Return what every learner receives besides its task."""
    return {"batch-size": batch_size(config), "train-samples": len(dataset_of(config).train_y)}


def _by_message(config: RunConfig, grid: Grid, _: Context, run: RunDir, model: Model) -> None:
    k = config.learners
    nodes: dict[str, Any] = {"fraction_evaluate": 0.0, "min_train_nodes": k, "min_available_nodes": k}
    inner: FedAvg = message.MelFedAvg(**nodes)
    if config.optimizer == "adam":
        inner = FedAdam(**nodes, eta=config.eta, **ADAM)
    planned = message.MelStrategy(inner, **settings_of(config, run))
    strategy = Checkpointed(planned, run.checkpoints)

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round == 0:
            return None
        loss, accuracy = model.evaluate(arrays.to_numpy_ndarrays())
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    strategy.start(
        Windowed(grid),
        ArrayRecord(model.first),
        num_rounds=config.cycles,
        train_config=ConfigRecord(_asked(config)),
        evaluate_fn=evaluate_fn,
    )


def _by_classic(config: RunConfig, grid: Grid, context: Context, run: RunDir, model: Model) -> None:
    def evaluate_fn(
        server_round: int, parameters: list[Any], _: dict[str, Scalar]
    ) -> tuple[float, dict[str, Scalar]] | None:
        if server_round == 0:
            return None
        loss, accuracy = model.evaluate(parameters)
        return loss, {"accuracy": accuracy}

    adam = config.optimizer == "adam"
    kind = partial(ClassicAdam, eta=config.eta, **ADAM) if adam else classic.MelFedAvg
    inner = kind(
        fraction_evaluate=0.0,
        min_fit_clients=config.learners,
        min_available_clients=config.learners,
        initial_parameters=ndarrays_to_parameters(model.first),
        evaluate_fn=evaluate_fn,
        on_fit_config_fn=lambda _: _asked(config),
        fit_metrics_aggregation_fn=_mean_loss,
    )
    planned = classic.MelStrategy(inner, **settings_of(config, run))
    strategy = Checkpointed(planned, run.checkpoints)
    server = Server(client_manager=SimpleClientManager(), strategy=strategy)
    server.set_max_workers(config.learners)
    rounds = ServerConfig(num_rounds=strategy.rounds_left(config.cycles))
    components = ServerAppComponents(server=server, config=rounds)
    ServerApp(server_fn=lambda _: components)(grid, context)


def _mean_loss(metrics: list[tuple[int, dict[str, Scalar]]]) -> dict[str, Scalar]:
    """Average the learners' losses as the Message API does, to the last bit."""
    total = sum(samples for samples, _ in metrics)
    return {"loss": sum(float(each["loss"]) * (samples / total) for samples, each in metrics)}


def _conclude(config: RunConfig, run: RunDir, model: Model) -> None:
    """Write model, summary and report; a run with cycles that are not on record has failed."""
    records = run.records()
    last = records[-1] if records else None
    if last is None or last.cycle != len(records) or (last.cycle < config.cycles and not last.stopped):
        raise RuntimeError(f"{len(records)} of {config.cycles} cycles are on record; the log says why")
    summary = {
        "cycles": last.cycle,
        "accuracy": last.metrics.get("accuracy"),
        "virtual_time_s": last.clock_s,
        "energy_j": last.total_energy_j,
        "stopped": last.stopped,
        "best_accuracy": max(record.metrics.get("accuracy", 0.0) for record in records),
        "scheme": config.scheme,
    }
    log(INFO, "report: %s", write_report([run.path], run.path / "report.html"))
    run.finish(summary, model.newest)
