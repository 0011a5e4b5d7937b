"""Checkpoints: a killed server continues after its last complete round.

``Checkpointed(MelStrategy(FedAvg()), "checkpoints/mnist")`` takes the place of the strategy, in both APIs.
After each round it writes one file: the model, `State`, the last records, snapshots of the callbacks, and
the state of the wrapped strategy (FedAdam's moments, an adaptive clipping norm). flwr_mel has no random state
to keep: all its randomness follows from the seed, the round and the client.
"""

from flwr_mel.checkpoint.strategies import Checkpointed

__all__ = ["Checkpointed"]
