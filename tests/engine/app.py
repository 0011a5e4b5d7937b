"""Both APIs on Flower's engine: the scenarios of one play, one after the other.

The play's config names the mode. In "measured" clients declare nothing and the last one is slow; in
"declared" they declare costs. The client with partition-id 3 has no mod.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import Server, ServerConfig, SimpleClientManager
from flwr.server.compat import start_grid
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel import Measured, Shards
from flwr_mel.clientapp import Assignment, MelMod

NODES, MODLESS, SLOW, BROKEN, HELD = 6, 3, 5, 1, 100
COSTS = [Measured(1e-3 * (k + 1), 1e-4, 0.01, 0, 0, 0, max_samples=HELD) for k in range(NODES)]
MODEL = [np.zeros((3, 2), np.float32), np.zeros(2, np.float32)]
X, Y = np.arange(240.0, dtype=np.float32).reshape(120, 2), np.arange(120)


def declared():
    return os.environ["LAB_MODE"] == "declared"


def capability(context, _cycle):
    return COSTS[int(context.node_config["partition-id"])] if declared() else None


def work(config, task, context, weights):
    """Return new weights and what was done; every value depends on the task alone."""
    k, epochs = int(context.node_config["partition-id"]), int(context.run_config["local-epochs"])
    rows = task.choose(HELD) if task.shard is None else task.shard[1]
    if k == BROKEN and config.get("scenario") == "faults" and task.cycle == 2:
        raise RuntimeError("broken on purpose")
    if not declared():
        time.sleep(1e-2 * epochs * len(rows) if k == SLOW else 0.0)
    rng = np.random.default_rng([task.seed, epochs])
    step = [rng.normal(size=w.shape).astype(w.dtype) * np.float32(rows.mean() + 1) for w in weights]
    calls = context.state.config_records.setdefault("calls", ConfigRecord({"n": 0}))
    calls["n"] += 1
    metrics = {"epochs": epochs, "calls": calls["n"]}
    return [w + s for w, s in zip(weights, step, strict=True)], len(rows), metrics


def train_message(msg, context):
    config = next(iter(msg.content.config_records.values()))
    arrays = msg.content["arrays"]
    weights, n, metrics = work(config, Assignment.from_message(msg), context, arrays.to_numpy_ndarrays())
    content = {
        "arrays": ArrayRecord({key: Array(w) for key, w in zip(arrays, weights, strict=True)}),
        "metrics": MetricRecord({"num-examples": n, **metrics}),
    }
    return Message(RecordDict(content), reply_to=msg)


class Learner(NumPyClient):
    def __init__(self, context):
        self.own = context

    def fit(self, parameters, config):
        return work(config, Assignment.from_config(config), self.own, parameters)


def apps(mods):
    app = ClientApp(mods=mods)
    app.train()(train_message)
    return app, ClientApp(lambda context: Learner(context).to_client(), mods=mods)


WITH, WITHOUT = apps([MelMod(capability)]), apps([])


def client_app(msg, context):
    """Serve both APIs; one client has no mod."""
    is_classic = any(name.startswith(("fitins.", "getpropertiesins.")) for name in msg.content)
    return (WITHOUT if context.node_config["partition-id"] == MODLESS else WITH)[is_classic](msg, context)


def by_message(grid, scenario, rounds, **options):
    inner = flwr_mel.serverapp.MelFedAvg(
        fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES
    )
    mel = flwr_mel.serverapp.MelStrategy(inner, **options)
    config = ConfigRecord({"scenario": scenario})
    result = mel.start(grid, ArrayRecord(MODEL), num_rounds=rounds, train_config=config)
    return mel, result.arrays.to_numpy_ndarrays()


def by_classic(grid, scenario, rounds, **options):
    inner = flwr_mel.server.MelFedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=NODES,
        min_available_clients=NODES,
        initial_parameters=ndarrays_to_parameters(MODEL),
        on_fit_config_fn=lambda _: {"scenario": scenario},
    )
    mel = flwr_mel.server.MelStrategy(inner, **options)
    server = Server(client_manager=SimpleClientManager(), strategy=mel)
    start_grid(grid=grid, server=server, config=ServerConfig(rounds))
    return mel, parameters_to_ndarrays(server.parameters)


PLANNED = {"cycle_time_s": 1.0, "staleness": 3}
SCENARIOS = {
    "measured": {"slow": (3, {})},
    "declared": {
        "federated": (3, {**PLANNED, "total_samples": 300}),
        "parallelized": (2, {**PLANNED, "shards": Shards((X, Y))}),
        "faults": (3, PLANNED),
    },
}
server_app = ServerApp()


@server_app.main()
def main(grid, context):
    found = {}
    for scenario, (rounds, options) in SCENARIOS[os.environ["LAB_MODE"]].items():
        for api, run in (("message", by_message), ("classic", by_classic)):
            mel, arrays = run(grid, scenario, rounds, **options)
            records = [record.as_dict() for record in mel.records]
            found[f"{scenario}-{api}"] = {"records": records, "bits": [w.tobytes().hex() for w in arrays]}
    stock = FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES)
    result = stock.start(grid, ArrayRecord(MODEL), num_rounds=1)
    found["stock"] = dict(result.train_metrics_clientapp[1])
    Path(os.environ["LAB_OUT"]).write_text(json.dumps(found))
