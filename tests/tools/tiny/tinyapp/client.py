"""The client: noise from global generators shows whether tasks disturb one another."""

import random

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flwr_mel.clientapp import Assignment, mel_mod
from tinyapp import data

app = ClientApp(mods=[mel_mod])


@app.train()
def train(message, context):
    w = message.content["arrays"].to_numpy_ndarrays()[0].copy()
    x, y = data(context.node_config["partition-id"], context.node_config["num-partitions"])
    chosen = Assignment.from_message(message).choose(len(y))
    x, y = x[chosen], y[chosen]
    for _ in range(context.run_config["local-epochs"]):
        for i in np.random.permutation(len(y)):  # noqa: NPY002
            p = 1 / (1 + np.exp(-(x[i] @ w[:4] + w[4])))
            w -= context.run_config["optimizer.lr"] * (p - y[i]) * np.append(x[i], 1.0)
    w += 1e-3 * random.random()
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord([w]), "metrics": metrics}), reply_to=message)
