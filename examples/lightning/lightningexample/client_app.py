"""The client: lets Lightning's Trainer do the work."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from lightningexample.task import LitNet, load_data, make_trainer

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = LitNet()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())

    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    trainloader = load_data(partition_id, num_partitions)

    trainer = make_trainer(context.run_config["max-epochs"])
    trainer.fit(model, trainloader)

    metrics = {
        "train-loss": float(trainer.callback_metrics["train_loss"]),
        "epochs-run": trainer.current_epoch,
        "num-examples": len(trainloader.dataset),
    }
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
