"""The server: FedAvg with momentum, the epochs in its train config."""

from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvgM

from numpyexample.task import accuracy, init_params, load_split

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federated training."""
    strategy = FedAvgM(fraction_train=1.0, fraction_evaluate=0.0, server_momentum=0.2)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(init_params()),
        train_config=ConfigRecord({"epochs": 2, "lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the global model."""
    x, y = load_split()
    share = accuracy(arrays.to_numpy_ndarrays(), x[1400:], y[1400:])
    log(INFO, "round %s: accuracy %.4f", server_round, share)
    return MetricRecord({"accuracy": share})
