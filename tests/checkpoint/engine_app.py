"""The project on Flower's engine: `tests.checkpoint.project` in both APIs at once.

The server kills itself when both trainings have come to a given round.
"""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np

from tests.checkpoint.project import CLIENT_APPS, Training
from tests.waiting import PATIENCE_S


def client_app(message, context):
    classic = any(name.startswith(("fitins.", "getpropertiesins.")) for name in message.content)
    return CLIENT_APPS["classic" if classic else "message"](message, context)


def server_app(grid, context):
    place, kill_in = Path(os.environ["LAB_OUT"]), int(os.environ["LAB_KILL_IN"])
    both = Barrier(2)

    def kill(record):
        if record.cycle == kill_in:
            both.wait(PATIENCE_S)
            os.kill(os.getpid(), signal.SIGKILL)

    def train(api):
        training = Training(api, place / api, callbacks=[kill]).run(grid=grid)
        np.savez(place / f"{api}.npz", *training.final)

    with ThreadPoolExecutor() as threads:
        list(threads.map(train, CLIENT_APPS))
