"""The project on Flower's engine: `tests.checkpoint.project` with a server that kills itself."""

import os
import signal
from pathlib import Path

import numpy as np

from tests.checkpoint.project import CLIENT_APPS, Training


def client_app(message, context):
    return CLIENT_APPS[os.environ["LAB_API"]](message, context)


def server_app(grid, context):
    place, kill_in = Path(os.environ["LAB_OUT"]), int(os.environ["LAB_KILL_IN"])

    def kill(record):
        if record.cycle == kill_in:
            os.kill(os.getpid(), signal.SIGKILL)

    training = Training(os.environ["LAB_API"], place / "checkpoints", callbacks=[kill]).run(grid=grid)
    np.savez(place / "final.npz", *training.final)
