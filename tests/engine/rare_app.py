"""Labels that only slow clients hold, as a Flower app with the guide's recipe (`cycle_time_s="best"`).

The clients are those of the arena's setting "rare": speeds 40 times apart, and the slowest quarter alone
holds two of the ten labels. Costs are declared, so that time and energy are those of the cost model.
"""

import json
import os
from functools import cache
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAdam
from mel_simulation.arena.setting import RARE, RARE_LABELS, Setting
from mel_simulation.scenario.network import evaluate

from flwr_mel import Measured, Stopping
from flwr_mel.clientapp import Assignment, MelMod
from flwr_mel.records import Outcome
from flwr_mel.serverapp import MelStrategy
from flwr_mel.solvers import Rate


def scene():
    """Return what is learnt, each client's rows, and its costs."""
    return _scene(os.environ["RARE_TASK"], os.environ["RARE_DATA"], int(os.environ["RARE_SEED"]))


@cache
def _scene(task, data_dir, seed):
    setting = Setting("rare", "rare", task, fleet="spread", split=RARE, power_w=0.0, data_dir=data_dir)
    costs, parts = setting.coefficients(seed), setting.parts(seed)
    rows = zip(costs.c2, costs.c1, costs.c0, costs.g2, costs.g1, costs.g0, strict=True)
    devices = [
        Measured(*map(float, row), max_samples=len(part)) for row, part in zip(rows, parts, strict=True)
    ]
    return setting.job, parts, devices


def capability(context, _cycle):
    return scene()[2][int(context.node_config["partition-id"])]


client_app = ClientApp(mods=[MelMod(capability)])


@client_app.train()
def train(msg, context):
    job, parts, _ = scene()
    held = parts[int(context.node_config["partition-id"])]
    task = Assignment.from_message(msg)
    rows = held[task.choose(len(held))]
    weights = [w.astype(np.float32) for w in msg.content["arrays"].to_numpy_ndarrays()]
    new, loss = job.train(weights, rows, task.epochs, task.rng(), 0.0)
    metrics = MetricRecord({"num-examples": len(rows), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(new), "metrics": metrics}), reply_to=msg)


server_app = ServerApp()


@server_app.main()
def main(grid, context):
    job, parts, _ = scene()
    data = job.data
    rare = data.test_y > data.test_y.max() - RARE_LABELS

    def accuracies(_round, arrays):
        weights = [w.astype(np.float32) for w in arrays.to_numpy_ndarrays()]
        everything = evaluate(weights, data.test_x, data.test_y)[1]
        return MetricRecord(
            {"accuracy": everything, "rare": evaluate(weights, data.test_x[rare], data.test_y[rare])[1]}
        )

    nodes = {"min_train_nodes": len(parts), "min_available_nodes": len(parts), "fraction_evaluate": 0.0}
    curve = []

    def keep(record):
        curve.append(
            {
                "clock_s": record.clock_s,
                "energy_j": record.total_energy_j,
                "cycle_time_s": record.cycle_time_s,
                "makespan_s": record.makespan_s,
                "used": record.count(Outcome.USED),
                "accuracy": record.metrics["accuracy"],
                "rare": record.metrics["rare"],
            }
        )

    strategy = MelStrategy(
        FedAdam(**nodes, eta=0.004, beta_1=0.8, beta_2=0.99, tau=1e-6),
        cycle_time_s="best",
        solver=Rate(frugality=float(os.environ["RARE_FRUGALITY"])),
        average="nova",
        callbacks=[keep, Stopping(time_s=float(os.environ["RARE_SECONDS"]))],
    )
    first = ArrayRecord(job.initial(int(os.environ["RARE_SEED"])))
    strategy.start(grid, first, num_rounds=10_000, evaluate_fn=accuracies)
    Path(os.environ["RARE_OUT"]).write_text(json.dumps(curve))
