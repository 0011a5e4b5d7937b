"""The server: half of the clients in each round, chosen by Flower's own random numbers."""

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from flwr_mel.serverapp import MelStrategy
from tinyapp import data, loss_and_accuracy

app = ServerApp()
TEST = data(99, 2)


def evaluate(server_round, arrays):
    loss, accuracy = loss_and_accuracy(arrays.to_numpy_ndarrays()[0], *TEST)
    return MetricRecord({"loss": loss, "accuracy": accuracy})


@app.main()
def main(grid, context):
    strategy = MelStrategy(FedAvg(fraction_train=0.5, fraction_evaluate=0.0))
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(5)]),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=evaluate,
    )
