"""The example app's device, slowed down: MEL_TEST_PACE is a file with seconds per sample and epoch."""

import os
import time
from pathlib import Path

from mel_fleet.client_app import make_app
from mel_fleet.model import train


def paced(weights, x, y, epochs, **options):
    done = train(weights, x, y, epochs, **options)
    time.sleep(float(Path(os.environ["MEL_TEST_PACE"]).read_text()) * epochs * len(y))
    return done


app = make_app(paced)
