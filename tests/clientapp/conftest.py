import pytest

from flwr_mel.clientapp import assignment
from tests import identity


@pytest.fixture(autouse=True)
def _warn_again():
    """What is logged once per process is logged once per test."""
    assignment._warn_once.cache_clear()


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """Messages can be built outside of a run."""
    identity.pretend(monkeypatch.setattr)
