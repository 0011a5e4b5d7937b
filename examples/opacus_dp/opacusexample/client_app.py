"""The client: trains with DP-SGD and tells what it spent."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from opacusexample.task import Net, load_data
from opacusexample.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    cfg = context.run_config
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())

    partition_id = context.node_config["partition-id"]
    trainloader = load_data(partition_id, context.node_config["num-partitions"], cfg["batch-size"])

    epochs, steps, epsilon = train_fn(
        model,
        trainloader,
        cfg["local-epochs"],
        cfg["noise-multiplier"],
        cfg["max-grad-norm"],
        cfg["target-delta"],
    )

    metrics = {
        "epsilon": epsilon,
        "steps": steps,
        "epochs-run": epochs,
        "num-examples": len(trainloader.dataset),
    }
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
