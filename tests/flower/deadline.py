"""A deadline that comes when all others have answered, however long this machine takes for that."""

import copy
import threading
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import patch

from flwr.server.superlink.linkstate import in_memory_linkstate, utils

from flwr_mel.server import proxy
from flwr_mel.serverapp import timing


@contextmanager
def after_replies(grid, replies, seconds):
    """Give a grid whose user finds `seconds` gone by when it still waits after so many trainings came back.

    Only the thread that waits sees its clocks jump, those of Flower and of the strategies: the times of
    those who have answered are as they were. They jump once.

    Parameters
    ----------
    grid : Grid
        Flower's.
    replies : int
        How many trainings come back in time.
    seconds : float
        More than the deadline.
    """
    own, came, jumped = threading.local(), [], threading.Event()
    pull = grid.pull_messages

    def pull_messages(ids):
        if len(came) >= replies and not jumped.is_set():
            jumped.set()
            own.lag = seconds
        found = list(pull(ids))
        came.extend(reply for reply in found if reply.has_content() and reply.content.array_records)
        return found

    def lag():
        return getattr(own, "lag", 0.0)

    def late(clock, jump=lag):
        return lambda: clock() + jump()

    watched = copy.copy(grid)
    watched.pull_messages = pull_messages
    date = late(utils.now, lambda: timedelta(seconds=lag()))
    with (
        patch.object(in_memory_linkstate, "now", date),
        patch.object(utils, "now", date),
        patch.object(timing, "monotonic", late(timing.monotonic)),
        patch.object(proxy, "monotonic", late(proxy.monotonic)),
    ):
        yield watched
