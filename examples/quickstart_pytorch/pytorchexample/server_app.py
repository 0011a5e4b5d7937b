"""The server: FedAvg, evaluated on the server's own test data."""

from logging import INFO

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from pytorchexample.task import Net, load_testset, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federated training."""
    torch.manual_seed(0)
    arrays = ArrayRecord(Net().state_dict())
    strategy = FedAvg(fraction_train=context.run_config["fraction-train"], fraction_evaluate=0.0)
    strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the global model."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(model, load_testset(), torch.device("cpu"))
    log(INFO, "round %s: accuracy %.4f", server_round, accuracy)
    return MetricRecord({"accuracy": accuracy, "loss": loss})
