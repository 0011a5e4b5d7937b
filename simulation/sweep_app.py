"""All cells of a sweep in one Flower run: one start of Ray for the lot."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common import log
from flwr.serverapp import Grid, ServerApp

from flwr_mel.orchestrator import check_update, weighted_average
from flwr_mel.orchestrator.messages import task_words
from simulation.cells import Average, Baseline, Cell, read_sweep
from simulation.config import LAYERS
from simulation.network import Weights, evaluate, initial_weights
from simulation.results import Results
from simulation.script import Act, Script, facts, write_script
from simulation.task import batch_size, dataset_of

INFO = 20

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train every cell that is not there yet."""
    config = context.run_config
    cells = read_sweep(Path(str(config["sweep"])), str(config["data-dir"]))
    results = Results(Path(str(config["out"])))
    nodes = sorted(grid.get_node_ids())
    for cell in cells:
        if not results.has(cell):
            results.add(cell, run_cell(cell, nodes, grid, results))
            log(INFO, "cell %s done", cell.key)


def run_cell(cell: Cell, nodes: list[int], grid: Grid, results: Results) -> dict[str, Any]:
    """Compute one cell, or take over the training of a cell that is the same.

    Parameters
    ----------
    cell : Cell
        What to run.
    nodes : list of int
        Flower's nodes; any of them can stand for any virtual learner.
    grid : Grid
        Flower's connection to them.
    results : Results
        Where finished trainings are.
    """
    script = write_script(cell, len(nodes))
    outcome: dict[str, Any] = {"acts": [facts(act) for act in script.acts], "trouble": script.trouble}
    if script.trouble:
        return {**outcome, "signature": "", "accuracy": [], "loss": []}
    signature = script.signature(cell)
    curve = results.training(signature)
    if curve is None:
        curve = train_script(cell, script, nodes, grid, results)
        results.add_training(signature, curve)
    return {**outcome, "signature": signature, **curve}


def train_script(
    cell: Cell, script: Script, nodes: list[int], grid: Grid, results: Results
) -> dict[str, list[float]]:
    """Play a script on Flower's engine and return accuracy and loss after every cycle."""
    data, weights = dataset_of(cell.config), initial_weights(cell.config.seed, LAYERS)
    curve: dict[str, list[float]] = {"accuracy": [], "loss": []}
    start = time.monotonic()
    for act in script.acts:
        updates = _play(cell, script, act, weights, nodes, grid)
        weights = combine(cell.average, weights, updates, act) if updates else weights
        loss, accuracy = evaluate(weights, data.test_x, data.test_y)
        curve["accuracy"].append(accuracy)
        curve["loss"].append(loss)
    work = sum(t.epochs * t.samples for act in script.acts for t in act.tasks)
    results.note_time(cell, time.monotonic() - start, work)
    return curve


def _play(
    cell: Cell, script: Script, act: Act, weights: Weights, nodes: list[int], grid: Grid
) -> list[Weights]:
    index = {name: k for k, name in enumerate(script.names)}
    asked: dict[str, Any] = {
        "cell": json.dumps({**cell.config.as_dict(), "resume": False, "run-dir": ""}),
        "batch-size": batch_size(cell.config),
        "learners": len(nodes),
        "proximal": cell.proximal if cell.baseline is Baseline.PROX else 0.0,
    }
    arrays = ArrayRecord(weights)
    messages = {
        nodes[index[task.learner]]: Message(
            RecordDict(
                {
                    "arrays": arrays,
                    "config": ConfigRecord(
                        {**asked, "learner": index[task.learner], **task_words(task, script.settings)}
                    ),
                }
            ),
            dst_node_id=nodes[index[task.learner]],
            message_type=MessageType.TRAIN,
        )
        for task in act.tasks
    }
    replies = {reply.metadata.src_node_id: reply for reply in grid.send_and_receive(list(messages.values()))}
    updates = []
    for node in messages:
        reply = replies.get(node)
        if reply is None or reply.has_error():
            reason = "no reply" if reply is None else reply.error.reason
            raise RuntimeError(f"cell {cell.key}: a learner failed: {reason}")
        updates.append(check_update(reply.content.array_records["arrays"].to_numpy_ndarrays(), weights))
    return updates


def combine(average: Average, old: Weights, updates: list[Weights], act: Act) -> Weights:
    """Make one model of the learners'.

    Parameters
    ----------
    average : Average
        The rule.
    old : list of ndarray
        The global model the learners began with.
    updates : list of lists of ndarray
        Theirs, in the order of the tasks.
    act : Act
        The tasks.
    """
    samples = [task.samples for task in act.tasks]
    if average is Average.UNIFORM:
        samples = [1] * len(samples)
    if average is not Average.NOVA:
        return weighted_average(updates, samples)
    # FedNova: everybody's change per step, times the average number of steps.
    steps = np.array([task.epochs * task.samples for task in act.tasks], dtype=float)
    share = np.array(samples) / sum(samples)
    effective = float((share * steps).sum())
    scale = effective * share / steps
    new = []
    for i, w in enumerate(old):
        change = sum(s * (u[i].astype(np.float64) - w) for s, u in zip(scale, updates, strict=True))
        new.append((w + change).astype(w.dtype))
    return new
