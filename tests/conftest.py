"""Marks the tests that start Flower's engine: they run alone, the others share the cores."""

from pathlib import Path

import pytest

ENGINE = ("test_simulation_runs", "test_sweep")


def pytest_itemcollected(item):
    if Path(item.path).parent.name == "flower" or Path(item.path).stem in ENGINE:
        item.add_marker(pytest.mark.engine)
