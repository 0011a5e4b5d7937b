"""Runs that several files report on."""

from pathlib import Path

import pytest

from tests.report.helpers import make_run


@pytest.fixture(scope="session")
def paper(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "ha-asyn", staleness=2)


@pytest.fixture(scope="session")
def several(tmp_path_factory, paper) -> list[Path]:
    base = tmp_path_factory.mktemp("several")
    # HU-Sync cannot carry equal batches under these limits: nobody works in any cycle.
    return [paper, make_run(base / "b", "ha-sync", seed=1), make_run(base / "c", "hu-sync", cycles=5)]
