import pytest

from tests import attacks


def pytest_itemcollected(item):
    # `make test-slow` repeats them with all inputs.
    item.add_marker(pytest.mark.fuzz)


@pytest.fixture(autouse=True)
def _outside_of_flowers_runtime(monkeypatch):
    attacks.outside_runtime(monkeypatch)
