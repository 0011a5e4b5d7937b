"""An ordinary project on devices that are 1 to 10 times slower, in both APIs, plain or with our two lines.

Its arithmetic is exact, so that sums have the same bits in whatever order they are made.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import Server, ServerConfig, SimpleClientManager
from flwr.server import strategy as classic_flower
from flwr.server.compat import start_grid
from flwr.serverapp import ServerApp
from flwr.serverapp import strategy as message_flower

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel.clientapp import Assignment, mel_mod
from flwr_mel.records import JsonlWriter

SLOW = (1, 2, 5, 10)
HELD = (32, 64, 96, 64)  # 256 in all: weights are exact


def setting(name):
    """What the test asks for; server and clients see it."""
    return json.loads(os.environ["SLOWED"])[name]


def note(file, **words):
    path = Path(setting("out")) / file
    with path.open("ab", buffering=0) as lines:
        lines.write((json.dumps(words) + "\n").encode())


def fit(k, model, rows, epochs, cycle):
    """Train: every epoch adds the mean of the rows, and takes its time."""
    loader = sys.modules["torch.utils.data"].DataLoader(rows, 16) if setting("loader") else ()
    for _ in range(epochs):
        list(loader)
        model = model + np.float64(rows.sum()) / 64
        time.sleep(2e-4 * len(rows) * SLOW[k])
    note("did.jsonl", k=k, cycle=cycle, epochs=epochs, samples=len(rows))
    return model


def chosen(task, k):
    rows = np.arange(HELD[k])
    return rows if task is None else rows[task.choose(len(rows))]


def examples(rows):
    return -(-len(rows) // 16) if setting("batches") else len(rows)


# --- clients ----------------------------------------------------------------------------------------------


def mods():
    first = setting("mods")
    return {
        "plain": [],
        "mel": [mel_mod],
        "second": [spoiled, mel_mod],
        "bad": [flwr_mel.clientapp.MelMod("x")],
    }[first]


def spoiled(message, context, call_next):
    """A mod that wants a model."""
    message.content["arrays" if "arrays" in message.content else "fitins.parameters"]
    return call_next(message, context)


def train(message, context):
    if setting("raises"):
        raise RuntimeError("no such file: data.csv")
    k = int(context.node_config["partition-id"])
    task = Assignment.from_message(message) if setting("samples") else None
    rows, (model,) = chosen(task, k), message.content["arrays"].to_numpy_ndarrays()
    model = fit(k, model, rows, context.run_config["local-epochs"], message.content["config"]["server-round"])
    said = MetricRecord({"num-examples": examples(rows)})
    return Message(RecordDict({"arrays": ArrayRecord([model]), "metrics": said}), reply_to=message)


class Client(NumPyClient):
    def __init__(self, k, epochs):
        self.k, self.epochs = k, epochs

    def fit(self, parameters, config):
        if setting("raises"):
            raise RuntimeError("no such file: data.csv")
        task = Assignment.from_config(config) if setting("samples") else None
        rows = chosen(task, self.k)
        return [fit(self.k, parameters[0], rows, self.epochs, config["round"])], examples(rows), {}


def client_fn(context):
    return Client(int(context.node_config["partition-id"]), context.run_config["local-epochs"]).to_client()


def client_app(message, context):
    if setting("loader"):
        importlib.import_module("torch.utils.data")  # as the modules of such projects do
    if setting("api") == "classic":
        return ClientApp(client_fn, mods=mods())(message, context)
    app = ClientApp(mods=mods())
    app.train()(train)
    return app(message, context)


# --- servers ----------------------------------------------------------------------------------------------

server_app = ServerApp()


@server_app.main()
def main(grid, context):
    out, start = Path(setting("out")), np.zeros(3)
    wrap, rounds = setting("mods") != "plain" or setting("wrapped"), setting("rounds")
    writer = {"callbacks": [JsonlWriter(out / "cycles.jsonl")]}
    if setting("api") == "message":
        strategy = message_flower.FedAvg(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4)
        if wrap:
            strategy = flwr_mel.serverapp.MelStrategy(strategy, **writer)

        def seen(n, arrays):
            note("models.jsonl", cycle=n, model=arrays.to_numpy_ndarrays()[0].tolist())

        strategy.start(grid, ArrayRecord([start]), num_rounds=rounds, evaluate_fn=seen)
        return
    strategy = classic_flower.FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=4,
        min_available_clients=4,
        initial_parameters=ndarrays_to_parameters([start]),
        on_fit_config_fn=lambda n: {"round": n},
        evaluate_fn=lambda n, model, _: note("models.jsonl", cycle=n, model=model[0].tolist()),
    )
    if wrap:
        strategy = flwr_mel.server.MelStrategy(strategy, **writer)
    server = Server(client_manager=SimpleClientManager(), strategy=strategy)
    start_grid(grid=grid, server=server, config=ServerConfig(num_rounds=rounds))
