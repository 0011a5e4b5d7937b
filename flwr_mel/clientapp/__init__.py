"""The client kit, for ClientApps and NumPyClients alike. It needs no torch."""

from flwr_mel.clientapp.assignment import Assignment
from flwr_mel.clientapp.mod import MelMod, describe, mel_mod

__all__ = ["Assignment", "MelMod", "describe", "mel_mod"]
