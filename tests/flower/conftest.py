"""The scenarios of both APIs, on the engine that all tests share."""

import numpy as np
import pytest

from tests.flower.harness import Run

APPS = {"message": "tests.flower.message_app", "classic": "tests.flower.classic_app"}


@pytest.fixture(scope="session")
def runs(engine, tmp_path_factory):
    from mel_simulation.scenario.data import embedded

    data = embedded()
    found = {}
    for api, app in APPS.items():
        path = tmp_path_factory.mktemp(api)
        (path / "calls").mkdir()
        np.savez(path / "digits.npz", x=data.train_x, y=data.train_y)
        found[api] = Run(engine, app, path)
    return found


@pytest.fixture(params=list(APPS))
def run(request, runs):
    """The scenarios of each API in turn."""
    return runs[request.param]


@pytest.fixture
def message_run(runs):
    return runs["message"]


@pytest.fixture
def classic_run(runs):
    return runs["classic"]
