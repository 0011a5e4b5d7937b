"""A device: trains on its own samples, or on those that the server sent."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flwr_mel.clientapp import Assignment, mel_mod
from mel_fleet.data import own_data
from mel_fleet.model import sgd

app = ClientApp(mods=[mel_mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for one round: `local-epochs` and the samples are what the server planned for this device."""
    config, task = context.run_config, Assignment.from_message(message)
    if task.shard is not None:
        x, y = task.shard
    else:
        x, y = own_data(context)
        rows = task.choose(len(y))
        x, y = x[rows], y[rows]
    weights, loss = sgd(
        message.content.array_records["arrays"].to_numpy_ndarrays(),
        x,
        y,
        int(config["local-epochs"]),
        batch=int(config["batch-size"]),
        rate=float(config["learning-rate"]),
        rng=np.random.default_rng(task.seed),
    )
    metrics = MetricRecord({"num-examples": len(y), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(weights), "metrics": metrics}), reply_to=message)
