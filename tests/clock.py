"""A virtual clock for both sides: flwr_mel's own modules read and wait on it, so no test takes real time."""

import sys
import time
from contextlib import contextmanager
from heapq import heappop, heappush
from types import SimpleNamespace

_TICK_S = 1e-6


class Clock:
    """Time that passes only when work or waiting makes it pass.

    `due` are the times of coming events: whoever waits wakes up at the first of them.
    """

    def __init__(self):
        self.now, self.due = 0.0, []

    def read(self):
        return self.now

    def date(self):
        return 1.7e9 + self.now

    def spend(self, seconds):
        """Let the one who works take time."""
        self.now += seconds

    def sleep(self, seconds):
        """Wait, at most until the next event. Time passes however short the wait is."""
        end = self.now + max(seconds, _TICK_S)
        while self.due and self.due[0] <= self.now:
            heappop(self.due)
        self.now = min(end, self.due[0]) if self.due else end

    def expect(self, at):
        """Note an event to come."""
        heappush(self.due, at)

    @contextmanager
    def at(self, moment):
        """Let someone else's time pass from a moment on; afterwards it is as late as it was."""
        before, self.now = self.now, moment
        try:
            yield
        finally:
            self.now = before

    @contextmanager
    def running(self):
        """Let every module of flwr_mel that is loaded use this clock."""
        real = {time.monotonic: self.read, time.perf_counter: self.read, time.time: self.date}
        real |= {time.sleep: self.sleep}
        module = SimpleNamespace(**{**vars(time), **{x.__name__: fake for x, fake in real.items()}})
        fakes = {id(x): fake for x, fake in real.items()} | {id(time): module}
        homes = [home for name, home in list(sys.modules.items()) if name.partition(".")[0] == "flwr_mel"]
        changed = [
            (home, key, value) for home in homes for key, value in vars(home).items() if id(value) in fakes
        ]
        for home, key, value in changed:
            setattr(home, key, fakes[id(value)])
        try:
            yield self
        finally:
            for home, key, value in changed:
                setattr(home, key, value)
