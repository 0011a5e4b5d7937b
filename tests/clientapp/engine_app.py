"""Clients of both APIs on Flower's engine. The server sends what a planning strategy would send."""

import json
import os
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from flwr_mel import Device, wire
from flwr_mel.clientapp import Assignment, MelMod, PrivateSteps

FLEET = [Device(1e9 * (k + 1), 1e7, 0.1) for k in range(20)]
MODS = [MelMod(FLEET, private=PrivateSteps(batch_size=1, sampling_rate=1.0, steps=1000))]
TASK = {wire.CYCLE: 1, wire.EPOCHS: 7, wire.SAMPLES: 20, wire.SEED: 3}


def train(task, context):
    """Count the calls of this client, and return what it was asked to do."""
    calls = context.state.config_records.setdefault("calls", ConfigRecord({"n": 0}))
    calls["n"] += 1
    chosen = len(task.choose(50))
    return {"epochs": context.run_config["local-epochs"], "num-examples": chosen, "calls": calls["n"]}


message_app = ClientApp(mods=MODS)


@message_app.train()
def train_message(message, context):
    metrics = MetricRecord(train(Assignment.from_message(message), context))
    return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)


class Learner(NumPyClient):
    def __init__(self, context):
        self.own = context

    def fit(self, parameters, config):
        metrics = train(Assignment.from_config(config), self.own)
        return parameters, metrics["num-examples"], metrics


classic_app = ClientApp(lambda context: Learner(context).to_client(), mods=MODS)


def client_app(message, context):
    """Serve both APIs."""
    classic = any(name.startswith(("fitins.", "getpropertiesins.")) for name in message.content)
    return (classic_app if classic else message_app)(message, context)


def contents(words):
    """Yield a message's type and records in each API."""
    model = ArrayRecord([np.zeros(2)])
    if wire.PROBE in words:
        yield "message", "train", {wire.RECORD: ConfigRecord(words)}
        yield "classic", "query.get_properties", {"getpropertiesins.config": ConfigRecord(words)}
    else:
        yield "message", "train", {"arrays": model, "config": ConfigRecord(words)}
        yield "classic", "train", {"fitins.parameters": model, "fitins.config": ConfigRecord(words)}


def ask(grid, node, words):
    """Return what one client replies in each API: all its words, or its error."""
    found = {}
    for api, kind, records in contents(words):
        (reply,) = grid.send_and_receive([Message(RecordDict(records), node, kind)])
        if reply.has_error():
            found[api] = {"error": reply.error.reason}
            continue
        said = (*reply.content.metric_records.values(), *reply.content.config_records.values())
        found[api] = {key: value for record in said for key, value in record.items()}
    return found


server_app = ServerApp()


@server_app.main()
def main(grid, context):
    node = next(iter(grid.get_node_ids()))
    replies = {
        "probe": ask(grid, node, {wire.PROBE: 1}),
        "baseline": ask(grid, node, {wire.CYCLE: 1, wire.BASELINE: 1, wire.SEED: 1}),
        "task": ask(grid, node, TASK),
        "private": ask(grid, node, {**TASK, wire.EPOCHS: 51}),
    }
    stock = FedAvg(fraction_train=0.1, min_train_nodes=2, fraction_evaluate=0.0)
    result = stock.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=1)
    replies["stock"] = dict(result.train_metrics_clientapp[1])
    Path(os.environ["LAB_OUT"]).write_text(json.dumps(replies))
