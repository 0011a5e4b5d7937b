"""The client: the server says in every message how to train."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from numpyexample.task import load_data
from numpyexample.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    partition_id = context.node_config["partition-id"]
    x, y = load_data(partition_id, context.node_config["num-partitions"])
    config = msg.content["config"]
    rng = np.random.default_rng([partition_id, config["server-round"]])

    params = msg.content["arrays"].to_numpy_ndarrays()
    params, losses = train_fn(params, x, y, config["epochs"], config["lr"], rng)

    metrics = {"train-loss": losses[-1], "epochs-run": len(losses), "num-examples": len(x)}
    content = RecordDict({"arrays": ArrayRecord(params), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
