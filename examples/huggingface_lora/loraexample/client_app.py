"""The client: trains the adapter only, and sends only the adapter."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from loraexample.task import get_model, load_data
from loraexample.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the adapter on local data."""
    cfg = context.run_config
    model = get_model(cfg["lora.r"])
    set_peft_model_state_dict(model, msg.content["arrays"].to_torch_state_dict())

    dataset = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    losses = train_fn(model, dataset, cfg["train.num-train-epochs"], cfg["train.learning-rate"])

    arrays = ArrayRecord(get_peft_model_state_dict(model))
    metrics = {"train-loss": losses[-1], "epochs-run": len(losses), "num-examples": len(dataset)}
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=msg)
