"""The simulation as the tests' engine plays it."""

from mel_simulation.app.client_app import app as client_app
from mel_simulation.app.server_app import app as server_app

__all__ = ["client_app", "server_app"]
