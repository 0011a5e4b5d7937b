"""The server: FedAvg of the classic API."""

from logging import INFO

import torch
from flwr.app import Context
from flwr.common import log, ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

from classicexample.task import Net, get_weights, set_weights, test


def evaluate(server_round, parameters, config):
    """Evaluate the global model."""
    net = Net()
    set_weights(net, parameters)
    loss, accuracy = test(net)
    log(INFO, "round %s: accuracy %.4f", server_round, accuracy)
    return loss, {"accuracy": accuracy}


def server_fn(context: Context):
    """Put the server together."""
    torch.manual_seed(0)
    local_epochs = context.run_config["local-epochs"]
    strategy = FedAvg(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=4,
        min_available_clients=4,
        initial_parameters=ndarrays_to_parameters(get_weights(Net())),
        evaluate_fn=evaluate,
        on_fit_config_fn=lambda server_round: {"local_epochs": local_epochs, "round": server_round},
    )
    config = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    return ServerAppComponents(strategy=strategy, config=config)


app = ServerApp(server_fn=server_fn)
