"""The server: FedAvg, evaluated on the server's own test data."""

from logging import INFO

import pytorch_lightning as pl
import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from lightningexample.task import LitNet, load_testset

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federated training."""
    pl.seed_everything(0, verbose=False)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(LitNet().state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the global model."""
    model = LitNet()
    model.load_state_dict(arrays.to_torch_state_dict())
    x, y = load_testset()
    with torch.no_grad():
        accuracy = float((model(x).argmax(1) == y).float().mean())
    log(INFO, "round %s: accuracy %.4f", server_round, accuracy)
    return MetricRecord({"accuracy": accuracy})
