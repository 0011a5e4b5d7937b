"""The server: FedAvg."""

from logging import INFO

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from opacusexample.task import Net, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federated training."""
    torch.manual_seed(0)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the global model."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    accuracy = test(model)
    log(INFO, "round %s: accuracy %.4f", server_round, accuracy)
    return MetricRecord({"accuracy": accuracy})
