"""The server: FedAvg, evaluated on the server's own test data."""

from logging import INFO

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from sklearnexample.task import get_initial_params, get_model, load_split

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federated training."""
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_initial_params()),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the global model."""
    model = get_model(arrays.to_numpy_ndarrays())
    x, y = load_split()
    accuracy = float(model.score(x[1400:], y[1400:]))
    log(INFO, "round %s: accuracy %.4f", server_round, accuracy)
    return MetricRecord({"accuracy": accuracy})
