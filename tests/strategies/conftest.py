"""Both APIs without an engine: messages can only be made inside a run, so the run is pretended."""

import pytest

from tests import attacks
from tests.strategies.fleet import APIS


@pytest.fixture(autouse=True)
def _outside_of_flowers_runtime(monkeypatch):
    attacks.outside_runtime(monkeypatch)


@pytest.fixture(params=list(APIS))
def start(request, monkeypatch):
    """Return a function that wraps a fleet in each API's strategy in turn."""
    return lambda fleet, **options: APIS[request.param](fleet, monkeypatch, **options)
