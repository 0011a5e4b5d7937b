"""The client: a NumPyClient; the server's config says how many epochs."""

from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from classicexample.task import Net, get_weights, load_data, set_weights, train


class FlowerClient(NumPyClient):
    """Trains on its own data."""

    def __init__(self, trainloader):
        self.net = Net()
        self.trainloader = trainloader

    def fit(self, parameters, config):
        """Train the model."""
        set_weights(self.net, parameters)
        losses = train(self.net, self.trainloader, config["local_epochs"])
        metrics = {"train_loss": losses[-1], "epochs-run": len(losses)}
        return get_weights(self.net), len(self.trainloader.dataset), metrics


def client_fn(context: Context):
    """Return this node's client."""
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    return FlowerClient(load_data(partition_id, num_partitions)).to_client()


app = ClientApp(client_fn)
