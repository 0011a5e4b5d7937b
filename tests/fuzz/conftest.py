import pytest

from tests import attacks


@pytest.fixture(autouse=True)
def _outside_of_flowers_runtime(monkeypatch):
    attacks.outside_runtime(monkeypatch)
