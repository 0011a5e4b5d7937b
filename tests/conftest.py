"""Which tests share a worker: a file's own, and all that share the simulations of tests/flower."""

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        folder, name = Path(item.path).parent.name, Path(item.path).stem
        shared = folder == "flower" and name != "test_five_lines"
        item.add_marker(pytest.mark.xdist_group("flower" if shared else name))
