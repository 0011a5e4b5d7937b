import pytest

from flwr_mel.clientapp import assignment


@pytest.fixture(autouse=True)
def _warn_again():
    """What is logged once per process is logged once per test."""
    assignment._warn_once.cache_clear()
