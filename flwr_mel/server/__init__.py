"""Strategies for Flower's classic API."""

from flwr_mel.orchestrator.settings import Stopping
from flwr_mel.server.fedavg import MelFedAvg, MelFedNova
from flwr_mel.server.strategy import MelStrategy

__all__ = ["MelFedAvg", "MelFedNova", "MelStrategy", "Stopping"]
