"""The server of the simulation: builds the strategy, evaluates every cycle, fills the run directory."""

from __future__ import annotations

import time
from functools import partial
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.common import Scalar, log, ndarrays_to_parameters
from flwr.server import Server, ServerAppComponents, ServerConfig, SimpleClientManager
from flwr.server.strategy import FedAdam as ClassicAdam
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam

from flwr_mel import server as classic
from flwr_mel import serverapp as message
from flwr_mel.checkpoint import Checkpointed
from flwr_mel.cycle.options import Rounds
from flwr_mel.records import JsonlWriter, Stopping
from flwr_mel.tools.report import write_report
from mel_simulation.app.message_window import Windowed
from mel_simulation.app.run_dir import RunDir
from mel_simulation.scenario import job
from mel_simulation.scenario.config import ADAM, RunConfig
from mel_simulation.scenario.network import Weights, evaluate, initial_weights

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one simulation as `flwr run` configures it."""
    config = RunConfig.parse(context.run_config)
    wait_for_nodes(grid, config.learners)
    simulate(config, grid, context)


def wait_for_nodes(grid: Grid, learners: int, patience_s: float = 60.0) -> None:
    """Wait until the federation has as many nodes as learners: they connect while this app starts."""
    end = time.monotonic() + patience_s
    while (seen := len(list(grid.get_node_ids()))) < learners and time.monotonic() < end:
        time.sleep(0.02)
    if seen != learners:
        raise ValueError(
            f"the federation must have as many nodes as learners ({learners}), got {seen}. "
            f"Try: flwr run simulation --federation-config 'num-supernodes={learners}'"
        )


def settings_of(config: RunConfig, run: RunDir) -> dict[str, Any]:
    """Return the keyword arguments of either `MelStrategy`."""
    return job.settings_of(config) | {
        # The first replies wait for Ray to start. A result must not depend on the wall clock.
        "rounds": Rounds(probe_timeout_s=3600.0),
        # In this order, so that the last record has the reason for the end.
        "callbacks": [Stopping(target=config.target_accuracy or None), JsonlWriter(run.records_file)],
    }


class Model:
    """The newest global model, measured on the test set after every cycle."""

    def __init__(self, config: RunConfig) -> None:
        self.data = job.dataset_of(config)
        self.newest: Weights | None = None

    def measure(self, cycle: int, weights: Weights) -> dict[str, float] | None:
        """Return loss and accuracy of the model after a cycle; None before the first."""
        if not cycle:
            return None
        self.newest = [np.asarray(w, dtype=np.float32) for w in weights]
        loss, accuracy = evaluate(self.newest, self.data.test_x, self.data.test_y)
        return {"loss": loss, "accuracy": accuracy}


def simulate(config: RunConfig, grid: Grid, context: Context) -> None:
    """Run the configured cycles and write a report.

    Parameters
    ----------
    config : RunConfig
        The run; `learners` is K.
    grid : Grid
        Flower's connection to the nodes.
    context : Context
        Of the ServerApp.
    """
    job.check_feasible(config)  # before it trains
    run, model = RunDir.of(config), Model(config)
    if model.data.notice:
        log(WARNING, model.data.notice)
    run.start(config)
    if config.cycles > run.cycles_done():
        drive = _by_message if config.api == "message" else _by_classic
        drive(config, grid, context, run, model)
    _conclude(config, run, model)


def _asked(config: RunConfig) -> dict[str, Any]:
    """Return what every learner receives besides its task."""
    return {"batch-size": job.batch_size(config), "train-samples": len(job.dataset_of(config).train_y)}


def _by_message(config: RunConfig, grid: Grid, _: Context, run: RunDir, model: Model) -> None:
    adam = config.optimizer == "adam"
    kind = partial(FedAdam, eta=config.eta, **ADAM) if adam else message.MelFedAvg
    k = config.learners
    inner = kind(fraction_evaluate=0.0, min_train_nodes=k, min_available_nodes=k)
    planned = message.MelStrategy(inner, **settings_of(config, run))

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        metrics = model.measure(server_round, arrays.to_numpy_ndarrays())
        return None if metrics is None else MetricRecord({**metrics})

    Checkpointed(planned, run.checkpoints).start(
        Windowed(grid),
        ArrayRecord(initial_weights(config.seed)),
        num_rounds=config.cycles,
        train_config=ConfigRecord(_asked(config)),
        evaluate_fn=evaluate_fn,
    )


def _by_classic(config: RunConfig, grid: Grid, context: Context, run: RunDir, model: Model) -> None:
    def evaluate_fn(
        server_round: int, parameters: list[Any], _: dict[str, Scalar]
    ) -> tuple[float, dict[str, Scalar]] | None:
        metrics = model.measure(server_round, parameters)
        return None if metrics is None else (metrics["loss"], {"accuracy": metrics["accuracy"]})

    adam = config.optimizer == "adam"
    kind = partial(ClassicAdam, eta=config.eta, **ADAM) if adam else classic.MelFedAvg
    inner = kind(
        fraction_evaluate=0.0,
        min_fit_clients=config.learners,
        min_available_clients=config.learners,
        initial_parameters=ndarrays_to_parameters(initial_weights(config.seed)),
        evaluate_fn=evaluate_fn,
        on_fit_config_fn=lambda _: _asked(config),
        fit_metrics_aggregation_fn=_mean_loss,
    )
    strategy = Checkpointed(classic.MelStrategy(inner, **settings_of(config, run)), run.checkpoints)
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
