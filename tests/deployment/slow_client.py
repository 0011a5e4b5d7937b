"""The example app's device at a pace of its own.

MEL_TEST_PACE is a file with seconds per sample and epoch: a list with one number for each training to come,
of which the last one stays; a negative one: until a file named .go beside it exists. Beside it the device
notes the pace at which it works. Unless the seconds are real, the device's own clock jumps by them and stands
still otherwise: what it says of itself does not depend on this machine.
"""

import json
import os
import time
from pathlib import Path

from mel_fleet import client_app
from mel_fleet.model import train

from flwr_mel.clientapp import mod

PACE = Path(os.environ["MEL_TEST_PACE"])


class Clock:
    """Reads this machine's clock, or the one that trainings set."""

    now = 0.0

    def __call__(self):
        return time.perf_counter() if json.loads(PACE.read_text())["real"] else self.now


clock = mod.perf_counter = client_app.perf_counter = Clock()


def paced(weights, x, y, epochs, **options):
    done = train(weights, x, y, epochs, **options)
    pace = json.loads(PACE.read_text())
    seconds, *later = pace["seconds"]
    if later:
        PACE.write_text(json.dumps(pace | {"seconds": later}))
    PACE.with_suffix(".now").write_text(repr(seconds))
    while seconds < 0 and not PACE.with_suffix(".go").exists():
        time.sleep(0.1)
    if pace["real"]:
        time.sleep(max(seconds, 0) * epochs * len(y))
    clock.now += max(seconds, 0) * epochs * len(y)
    return done


app = client_app.make_app(paced)
