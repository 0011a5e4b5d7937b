"""The server: the project's own strategy."""

from logging import INFO

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid, ServerApp

from advancedexample.strategy import CustomFedAvg
from advancedexample.task import Net, load_testset, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federated training."""
    torch.manual_seed(0)
    strategy = CustomFedAvg(fraction_train=context.run_config["fraction-train"], fraction_evaluate=0.0)
    strategy.set_save_path(context.run_config["save-path"])
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": 0.05}),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )
    rounds = len(result.evaluate_metrics_serverapp)
    log(INFO, "best accuracy %.4f of %s rounds", strategy.best_accuracy, rounds)


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the global model."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(model, load_testset(), torch.device("cpu"))
    log(INFO, "round %s: accuracy %.4f", server_round, accuracy)
    return MetricRecord({"accuracy": accuracy, "loss": loss})
