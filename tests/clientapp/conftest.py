import pytest
from flwr.supercore.task_identity import TaskIdentity

from flwr_mel.clientapp import assignment


@pytest.fixture(autouse=True)
def _warn_again():
    """What is logged once per process is logged once per test."""
    assignment._warn_once.cache_clear()


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """Messages can be built outside of a run."""
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
