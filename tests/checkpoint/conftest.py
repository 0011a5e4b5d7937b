"""Messages can only be made inside a run; and a clock that no other load can slow down."""

from itertools import count

import pytest
from flwr.supercore.task_identity import TaskIdentity

_ROOMS = (
    *("server.proxy", "server.strategy", "server.asking", "flower.strategy"),
    *("serverapp.asking", "serverapp.timing", "serverapp.tasks"),
)


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Pretend to be inside one."""
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Let the server's clock go on by a microsecond per look at it.

    What Flower takes of T is measured, and a note says when it is much: on a busy machine it was, in one of
    two trainings that were to be equal.
    """
    ticks = count(1)

    def now():
        return 1e-6 * next(ticks)

    for room in _ROOMS:
        monkeypatch.setattr(f"flwr_mel.{room}.monotonic", now)
