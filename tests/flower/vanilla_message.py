"""A Flower app of the Message API as anybody would write it: softmax regression on local data."""

import json

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

# --- client ------------------------------------------------------------------------------------------------

client_app = ClientApp()


def local_data(partition):
    rng = np.random.default_rng(partition)
    y = rng.integers(0, 4, size=300)
    return rng.normal(size=(300, 8)) + 3 * np.eye(4, 8)[y], y


def fit(w, x, y, epochs):
    for _ in range(epochs):
        z = np.exp(x @ w - (x @ w).max(axis=1, keepdims=True))
        w = w - 0.1 * x.T @ (z / z.sum(axis=1, keepdims=True) - np.eye(4)[y]) / len(x)
    return w


@client_app.train()
def train(message, context):
    x, y = local_data(int(context.node_config["partition-id"]))
    epochs = message.content["config"]["local-epochs"]
    w = fit(message.content["arrays"].to_numpy_ndarrays()[0], x, y, epochs)
    metrics = MetricRecord({"num-examples": len(x), "epochs": epochs})
    return Message(RecordDict({"arrays": ArrayRecord([w]), "metrics": metrics}), reply_to=message)


# --- server ------------------------------------------------------------------------------------------------

server_app = ServerApp()


def show(contents, weighted_by):
    work = [(c["metrics"]["epochs"], c["metrics"][weighted_by]) for c in contents]
    print("WORK", json.dumps(sorted(work)), flush=True)
    return MetricRecord({"clients": len(work)})


@server_app.main()
def main(grid, context):
    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=8, min_available_nodes=8, train_metrics_aggr_fn=show
    )
    start = ArrayRecord([np.zeros((8, 4))])
    strategy.start(grid, start, num_rounds=2, train_config=ConfigRecord({"local-epochs": 5}))


if __name__ == "__main__":
    backend = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    run_simulation(server_app, client_app, num_supernodes=8, backend_config=backend)
