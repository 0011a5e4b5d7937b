"""Costs that are known, time that only moves when told to, a link server in a thread."""

import threading
from contextlib import contextmanager

from flwr_mel.devices import Measured
from flwr_mel.profiling import ComputeCosts, EnergyCosts, LinkServer, Profile, Run, measure_link
from flwr_mel.profiling.energy import MeterName
from flwr_mel.profiling.link_server import Limits
from tests.waiting import PATIENCE_S


def costs(c2=1e-3, c1=0.0, c0=0.0, joules=None):
    points = [(1, 100), (1, 400), (4, 100), (2, 200), (4, 400)]
    runs = [
        Run(e, d, c2 * e * d + c1 * d + c0, None if joules is None else joules(e, d)) for e, d in points * 2
    ]
    seconds = sum(run.seconds for run in runs)
    total = None if joules is None else sum(run.joules for run in runs)
    return ComputeCosts(c2, c1, c0, (1e-5, 0.0, 0.0), 0.01, 400, 4, tuple(runs), seconds, total)


NO_ENERGY = EnergyCosts(0.0, 0.0, 0.0, MeterName.NONE, "not measured")


FULL = Profile(
    Measured(1.2345678901234567e-4, 1e-300, 0.1 + 0.2, 1e-9, 0.0, 7.0, 12.5, 4000, 'pi "1" ü'),
    {"meter": "declared", "runs": 25, "error": 0.012, "text": 'a "b" \\ c\t\x7f'},
)


class Clock:
    """Seconds that pass only when somebody says so: nothing measured with it depends on this machine."""

    def __init__(self):
        self.now = 0.0
        self._lock = threading.Lock()

    def __call__(self):
        with self._lock:
            return self.now

    def sleep(self, seconds):
        with self._lock:
            self.now += seconds


def limits(**settings):
    """What a server gives away; it closes no connection because this machine is slow."""
    return Limits(**{"connection_s": PATIENCE_S, **settings})


def measured(port, **settings):
    """Measure a link that nobody may give up because this machine is slow."""
    return measure_link("127.0.0.1", port, **{"timeout_s": PATIENCE_S, "seconds": 0.3, **settings})


@contextmanager
def served(**settings):
    server = LinkServer(**{"limits": limits(), **settings})
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
