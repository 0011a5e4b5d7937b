"""Which tests share a worker: a file's own, and all that start Flower's engine, one after the other."""

from pathlib import Path

import pytest

ENGINE = ("test_simulation_runs", "test_sweep")


def pytest_itemcollected(item):
    folder, name = Path(item.path).parent.name, Path(item.path).stem
    item.add_marker(pytest.mark.xdist_group("engine" if folder == "flower" or name in ENGINE else name))
