"""The server: FedAvg over adapters."""

from logging import INFO

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from loraexample.task import get_model, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federated training."""
    model = get_model(context.run_config["lora.r"])

    def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        set_peft_model_state_dict(model, arrays.to_torch_state_dict())
        accuracy = test(model)
        log(INFO, "round %s: accuracy %.4f", server_round, accuracy)
        return MetricRecord({"accuracy": accuracy})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_peft_model_state_dict(model)),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )
