"""FedAdam for models with BatchNorm.

FedAdam moves every array by about eta per round, whatever it holds. That suits weights, but the running
statistics of BatchNorm have to follow the activations, which may be far away. Here they are averaged.
"""

from flwr.serverapp.strategy import FedAdam, FedAvg

#: How the names of statistics end in a state dict of PyTorch.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class FedAdamBatchNorm(FedAdam):
    """FedAdam that averages the statistics of BatchNorm."""

    def aggregate_train(self, server_round, replies):
        """Step the weights and average the statistics."""
        replies = list(replies)
        averaged, _ = FedAvg.aggregate_train(self, server_round, replies)
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            for name in arrays:
                if name.endswith(STATISTICS):
                    arrays[name] = averaged[name]
        return arrays, metrics
