"""The client kit, for ClientApps and NumPyClients alike. It needs no torch."""

from flwr_mel.clientapp.assignment import Assignment
from flwr_mel.clientapp.capability import describe
from flwr_mel.clientapp.client import MelClient
from flwr_mel.clientapp.mod import MelMod, mel_mod
from flwr_mel.clientapp.private import PrivateSteps

__all__ = ["Assignment", "MelClient", "MelMod", "PrivateSteps", "describe", "mel_mod"]
