"""A Flower app of the classic API as anybody would write it: softmax regression on local data."""

import json

import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation

# --- client ------------------------------------------------------------------------------------------------


def local_data(partition):
    rng = np.random.default_rng(partition)
    y = rng.integers(0, 4, size=300)
    return rng.normal(size=(300, 8)) + 3 * np.eye(4, 8)[y], y


def gradient_steps(w, x, y, epochs):
    for _ in range(epochs):
        z = np.exp(x @ w - (x @ w).max(axis=1, keepdims=True))
        w = w - 0.1 * x.T @ (z / z.sum(axis=1, keepdims=True) - np.eye(4)[y]) / len(x)
    return w


class Client(NumPyClient):
    def __init__(self, partition):
        self.data = local_data(partition)

    def fit(self, parameters, config):
        x, y = self.data
        w = gradient_steps(parameters[0], x, y, config["local-epochs"])
        return [w], len(x), {"epochs": config["local-epochs"]}


def client_fn(context):
    return Client(int(context.node_config["partition-id"])).to_client()


client_app = ClientApp(client_fn)

# --- server ------------------------------------------------------------------------------------------------


def show(pairs):
    work = [(metrics["epochs"], examples) for examples, metrics in pairs]
    print("WORK", json.dumps(sorted(work)), flush=True)
    return {"clients": len(work)}


def server_fn(context):
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=8,
        min_available_clients=8,
        initial_parameters=ndarrays_to_parameters([np.zeros((8, 4))]),
        on_fit_config_fn=lambda server_round: {"local-epochs": 5},
        fit_metrics_aggregation_fn=show,
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))


server_app = ServerApp(server_fn=server_fn)

if __name__ == "__main__":
    backend = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    run_simulation(server_app, client_app, num_supernodes=8, backend_config=backend)
