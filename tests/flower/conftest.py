"""The simulations of these tests: started together as far as they are needed, run once per session."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.flower.harness import Run, run_python

APPS = {"message": "tests.flower.message_app", "classic": "tests.flower.classic_app"}


def simulate(module, directory):
    from simulation.data import embedded

    (directory / "calls").mkdir(parents=True)
    data = embedded()
    np.savez(directory / "digits.npz", x=data.train_x, y=data.train_y)
    start = time.perf_counter()
    run_python(["-m", module], directory)
    (directory / "seconds").write_text(f"{time.perf_counter() - start:.1f}")
    return Run(directory)


@pytest.fixture(scope="session")
def simulations(tmp_path_factory):
    """Both apps at once: most of a simulation's time is Ray waiting for itself."""
    with ThreadPoolExecutor(len(APPS)) as pool:
        yield {
            api: pool.submit(simulate, module, tmp_path_factory.mktemp(api) / "run")
            for api, module in APPS.items()
        }


@pytest.fixture(params=list(APPS))
def run(request, simulations):
    """The simulation of each API in turn."""
    return simulations[request.param].result()


@pytest.fixture
def message_run(simulations):
    return simulations["message"].result()


@pytest.fixture
def classic_run(simulations):
    return simulations["classic"].result()
