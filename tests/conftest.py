"""Which tests share a worker: a file's own, and all that start Flower's engine, one after the other."""

from pathlib import Path

import pytest

ENGINE = ("test_simulation_runs", "test_sweep")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        folder, name = Path(item.path).parent.name, Path(item.path).stem
        item.add_marker(pytest.mark.xdist_group("engine" if folder == "flower" or name in ENGINE else name))
