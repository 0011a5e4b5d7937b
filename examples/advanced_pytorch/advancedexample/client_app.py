"""The client: remembers how often it was asked, as advanced clients do."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from advancedexample.task import Net, load_data
from advancedexample.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())

    calls = context.state.config_records.setdefault("calls", ConfigRecord({"count": 0}))
    calls["count"] += 1

    trainloader = load_data(context.node_config["partition-id"], context.node_config["num-partitions"], 32)
    losses = train_fn(
        model,
        trainloader,
        epochs=context.run_config.get("local-epochs", 1),
        lr=msg.content["config"]["lr"],
        device=torch.device("cpu"),
    )

    metrics = {
        "train-loss": losses[-1],
        "epochs-run": len(losses),
        "num-examples": len(trainloader.dataset),
        "calls": calls["count"],
    }
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
