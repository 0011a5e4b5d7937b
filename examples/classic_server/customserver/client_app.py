"""The client: reads the run config, and reports its batches as examples, as many projects do."""

from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from customserver.task import batches, load_data, train


class FlowerClient(NumPyClient):
    """Trains on its own data."""

    def __init__(self, data, local_epochs):
        self.data = data
        self.local_epochs = local_epochs

    def fit(self, parameters, config):
        """Train the model."""
        x, y = self.data
        trainloader = batches(x, y)
        parameters, losses = train(parameters, trainloader, self.local_epochs)
        metrics = {"train_loss": float(losses[-1]), "epochs-run": len(losses), "rows": len(x)}
        return parameters, len(trainloader), metrics


def client_fn(context: Context):
    """Return this node's client."""
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    return FlowerClient(data, context.run_config["num-epochs"]).to_client()


app = ClientApp(client_fn=client_fn)
