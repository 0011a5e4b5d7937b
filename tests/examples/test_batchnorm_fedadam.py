"""The example's FedAdam: weights as in Flower's, statistics as in FedAvg."""

import numpy as np

from examples.batchnorm_fedadam import FedAdamBatchNorm
from tests.cycle.tools import App
from tests.strategies.fleet import Fleet, MessageApi, moves

NAMES = ("conv.weight", "bn.weight", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked")
STATISTICS = NAMES[2:]


def trained(kind, **options):
    """Return the arrays after two rounds with the same updates."""
    fleet = Fleet([App(), App(held=300)], moves=moves)
    return MessageApi.train(
        MessageApi.inner(kind, **options), fleet, rounds=2, model=dict.fromkeys(NAMES, np.zeros(3))
    )


def test_weights_are_stepped_and_statistics_averaged():
    adam = {"eta": 0.01, "beta_1": 0.8, "beta_2": 0.99, "tau": 1e-6}
    ours, flowers, average = trained(FedAdamBatchNorm, **adam), trained("FedAdam", **adam), trained("FedAvg")
    for name in NAMES:
        expected = average if name in STATISTICS else flowers
        np.testing.assert_allclose(ours[name], expected[name])
        assert not np.allclose(flowers[name], average[name])
