"""The example's FedAdam: weights as in Flower's, statistics as in FedAvg."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg

from examples.batchnorm_fedadam import FedAdamBatchNorm
from tests import identity

NAMES = ("conv.weight", "bn.weight", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked")
STATISTICS = NAMES[2:]


class Grid:
    def get_node_ids(self):
        return [1, 2]


def record(rng, scale):
    return ArrayRecord({name: Array(scale * rng.random(3)) for name in NAMES})


def stepped(strategy):
    """Return the arrays after two rounds with the same updates."""
    rng = np.random.default_rng(0)
    arrays = record(rng, 1.0)
    for number in (1, 2):
        messages = list(strategy.configure_train(number, arrays, ConfigRecord(), Grid()))
        replies = [
            Message(
                RecordDict({"arrays": record(rng, 9.0), "metrics": MetricRecord({"num-examples": k + 1})}),
                reply_to=message,
            )
            for k, message in enumerate(messages)
        ]
        arrays, _ = strategy.aggregate_train(number, replies)
    return {name: array.numpy() for name, array in arrays.items()}


def test_weights_are_stepped_and_statistics_averaged(monkeypatch):
    identity.pretend(monkeypatch.setattr)
    adam = {"eta": 0.01, "beta_1": 0.8, "beta_2": 0.99, "tau": 1e-6}
    ours, flowers, average = (stepped(s) for s in (FedAdamBatchNorm(**adam), FedAdam(**adam), FedAvg()))
    for name in NAMES:
        expected = average if name in STATISTICS else flowers
        np.testing.assert_allclose(ours[name], expected[name])
        assert not np.allclose(flowers[name], average[name])
