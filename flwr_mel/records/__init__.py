"""Typed records of every cycle, and the callbacks that keep them."""

from flwr_mel.records.cycle import CycleRecord, Echo, LearnerRecord, Outcome, Standing
from flwr_mel.records.writers import Callback, JsonlWriter, TensorBoardWriter, read_jsonl

__all__ = [
    "Callback",
    "CycleRecord",
    "Echo",
    "JsonlWriter",
    "LearnerRecord",
    "Outcome",
    "Standing",
    "TensorBoardWriter",
    "read_jsonl",
]
