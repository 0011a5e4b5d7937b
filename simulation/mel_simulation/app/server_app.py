"""The orchestrator of the simulation: builds the strategy, evaluates, keeps the run directory."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.common import Parameters, Scalar, log, ndarrays_to_parameters
from flwr.server import Server, ServerConfig, SimpleClientManager
from flwr.server.compat.app import start_grid
from flwr.serverapp import Grid, ServerApp

from flwr_mel import server as classic
from flwr_mel import serverapp as message
from flwr_mel.orchestrator import Stopped
from flwr_mel.records import CycleRecord
from flwr_mel.tools.report import write_report
from mel_simulation.app.message_window import Windowed, introduce
from mel_simulation.app.run_dir import RunDir
from mel_simulation.scenario.config import LAYERS, RunConfig
from mel_simulation.scenario.dry_run import rehearse, settings_of
from mel_simulation.scenario.fleet import VirtualFleet
from mel_simulation.scenario.job import batch_size, dataset_of
from mel_simulation.scenario.network import Weights, evaluate, initial_weights

INFO, WARNING = 20, 30
# The first answers wait for Ray to start, on a busy machine for minutes. Without them the first cycle, and
# without those of learners that had no task the next one, would depend on the wall clock.
_PATIENT: dict[str, Any] = {"probe_timeout_s": 3600.0, "idle_timeout_s": 3600.0}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one simulation."""
    config = RunConfig.parse(context.run_config)
    learners = count_nodes(grid, config.learners)
    simulate(replace(config, learners=learners), learners, grid)


def count_nodes(grid: Grid, wanted: int, patience_s: float = 60.0) -> int:
    """Return how many nodes the federation has, once all are there: they come while this app starts.

    Parameters
    ----------
    grid : Grid
        Flower's connection to the nodes.
    wanted : int
        How many there must be. 0: take as many as come.
    patience_s : float
        How long to wait for them.
    """
    end = time.monotonic() + patience_s
    seen, before = len(list(grid.get_node_ids())), 0
    while time.monotonic() < end and not (seen and seen == (wanted or before)):
        # Without a number to wait for, two looks at the same number must lie apart.
        time.sleep(0.02 if wanted else 0.5)
        seen, before = len(list(grid.get_node_ids())), seen
    if not seen or (wanted and seen != wanted):
        raise ValueError(
            f"the federation must have as many nodes as learners ({wanted or 'any'}), got {seen}. "
            f"Try: flwr run simulation --federation-config 'num-supernodes={wanted or 20}'"
        )
    return seen


@dataclass(slots=True)
class Keeper:
    """Evaluates after every cycle and keeps what must outlive the run."""

    config: RunConfig
    run: RunDir
    weights: Weights
    strategy: message.MelStrategy | classic.MelStrategy | None = None
    since: float = field(default_factory=time.monotonic)
    failure: Exception | None = None

    def evaluate(self, weights: Weights) -> tuple[float, float]:
        """Return loss and accuracy on the test set."""
        self.weights = weights
        data = dataset_of(self.config)
        return evaluate(weights, data.test_x, data.test_y)

    def keep(self, record: CycleRecord) -> None:
        """Take a finished cycle. The files are what a simulation is for: without them it does not go on."""
        try:
            self._keep(record)
        except Exception as error:
            self.failure = error
            if self.strategy is not None:
                brain = self.strategy.orchestrator
                brain.state = replace(brain.state, stopped=Stopped(record.cycle, str(error)))
            raise

    def _keep(self, record: CycleRecord) -> None:
        """Write the record; the strategy's checkpoint, which says that it is complete, comes after it."""
        now = time.monotonic()
        self.run.add(record, now - self.since)
        self.since = now
        accuracy = record.metrics.get("accuracy", float("nan"))
        text = "cycle %d: accuracy %.2f %%, epochs %s, %.1f s virtual, %.0f J"
        used = [r.epochs for r in record.learners if r.epochs]
        epochs = f"{min(used)}-{max(used)}" if used else "none"
        log(INFO, text, record.cycle, 100 * accuracy, epochs, record.clock_s, record.total_energy_j)


def simulate(config: RunConfig, learners: int, grid: Grid) -> Path:
    """Run the configured cycles and leave a report.

    Parameters
    ----------
    config : RunConfig
        The run.
    learners : int
        K.
    grid : Grid
        Flower's connection to the nodes.
    """
    rehearse(config, learners)
    data, run = dataset_of(config), RunDir.of(config)
    if data.notice:
        log(WARNING, data.notice)
    weights: Weights = initial_weights(config.seed, LAYERS)
    run.start(config, VirtualFleet(learners, config).devices(1), data)
    found = run.checkpoint()
    done, best = (0, None) if found is None else (found.cycle, found.state.get("best"))
    if found is not None and done:
        weights = list(found.model.values())
        log(INFO, "resuming %s after cycle %d", run.path, done)
    keeper = Keeper(config, run, weights)
    drive = _by_message if config.api == "message" else _by_classic
    reached = bool(config.target_accuracy) and (best or 0.0) >= config.target_accuracy
    if config.cycles > done and not reached:
        drive(config, learners, grid, keeper, done)
    if keeper.failure is not None:
        raise keeper.failure
    _conclude(run, keeper)
    return run.path


def _asked(config: RunConfig) -> dict[str, Any]:
    """Return what every learner is told besides its task."""
    return {"batch-size": batch_size(config), "train-samples": len(dataset_of(config).train_y)}


def _kept(config: RunConfig, keeper: Keeper) -> dict[str, Any]:
    """Return the keyword arguments of either `MelStrategy`."""
    keeping = {"callbacks": [keeper.keep], "checkpoints": keeper.run.checkpoints}
    return {**keeping, **_PATIENT, **settings_of(config)}


def _by_message(config: RunConfig, learners: int, grid: Grid, keeper: Keeper, done: int) -> None:
    inner = message.MelFedAvg(fraction_evaluate=0.0, min_train_nodes=learners, min_available_nodes=learners)
    strategy = keeper.strategy = message.MelStrategy(inner, **_kept(config, keeper))

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round == 0:
            return None
        loss, accuracy = keeper.evaluate(arrays.to_numpy_ndarrays())
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    grid = cast(Grid, Windowed(grid))
    introduce(strategy, done + 1, grid)
    asked = ConfigRecord(_asked(config))
    strategy.start(
        grid,
        ArrayRecord(keeper.weights),
        num_rounds=config.cycles,
        train_config=asked,
        evaluate_fn=evaluate_fn,
    )


def _by_classic(config: RunConfig, learners: int, grid: Grid, keeper: Keeper, _: int) -> None:
    def evaluate_fn(
        server_round: int,
        parameters: list[Any],
        _: dict[str, Scalar],
    ) -> tuple[float, dict[str, Scalar]] | None:
        if server_round == 0:
            return None
        loss, accuracy = keeper.evaluate(parameters)
        return loss, {"accuracy": accuracy}

    start: Parameters = ndarrays_to_parameters(keeper.weights)
    inner = classic.MelFedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=learners,
        min_available_clients=learners,
        initial_parameters=start,
        evaluate_fn=evaluate_fn,
        on_fit_config_fn=lambda _: _asked(config),
        fit_metrics_aggregation_fn=_mean_loss,
    )
    strategy = keeper.strategy = classic.MelStrategy(inner, **_kept(config, keeper))
    server = Server(client_manager=SimpleClientManager(), strategy=strategy)
    server.set_max_workers(learners)
    left = ServerConfig(num_rounds=strategy.rounds_left(config.cycles))
    start_grid(grid=grid, server=server, config=left)


def _mean_loss(metrics: list[tuple[int, dict[str, Scalar]]]) -> dict[str, Scalar]:
    """Average the learners' losses as the Message API does, to the last bit."""
    total = sum(samples for samples, _ in metrics)
    return {"loss": sum(float(said["loss"]) * (samples / total) for samples, said in metrics)}


def _conclude(run: RunDir, keeper: Keeper) -> None:
    records = run.records()
    last = records[-1] if records else None
    summary = {
        "cycles": last.cycle if last else 0,
        "accuracy": last.metrics.get("accuracy") if last else None,
        "virtual_time_s": last.clock_s if last else 0.0,
        "energy_j": last.total_energy_j if last else 0.0,
        "stopped": last.stopped if last else "",
        "best_accuracy": max((r.metrics.get("accuracy", 0.0) for r in records), default=None),
        "scheme": keeper.config.scheme,
    }
    run.finish(summary, keeper.weights)
    log(INFO, "report: %s", write_report([run.path], run.path / "report.html"))
