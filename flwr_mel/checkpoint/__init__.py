"""Checkpoints: a killed server loses at most the cycle in flight."""

from flwr_mel.checkpoint.files import Refused
from flwr_mel.checkpoint.store import Checkpoint, Checkpoints

__all__ = ["Checkpoint", "Checkpoints", "Refused"]
