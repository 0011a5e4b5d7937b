"""The client: fits a scikit-learn model for a fixed number of epochs."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from sklearnexample.task import fit, get_model, load_data

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = get_model(msg.content["arrays"].to_numpy_ndarrays())

    x, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    losses = fit(model, x, y)

    metrics = {"train-loss": losses[-1], "epochs-run": len(losses), "num-examples": len(x)}
    arrays = ArrayRecord([model.coef_, model.intercept_])
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=msg)
