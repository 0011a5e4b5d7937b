"""Strategies for Flower's Message API."""

from flwr_mel.orchestrator.settings import Stopping
from flwr_mel.serverapp.fedavg import MelFedAvg, MelFedNova
from flwr_mel.serverapp.strategy import MelResult, MelStrategy

__all__ = ["MelFedAvg", "MelFedNova", "MelResult", "MelStrategy", "Stopping"]
