"""The app for real devices, as the engine takes apps."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy" / "app"))

from mel_fleet.client_app import app as client_app
from mel_fleet.server_app import app as server_app

__all__ = ["client_app", "server_app"]
