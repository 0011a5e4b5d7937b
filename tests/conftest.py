"""What a test starts decides when and where it runs; the engine that all tests share.

pytest-xdist runs one file on one worker. Files that start SuperLinks, and files that start Flower's engine,
run one after the other on one worker each, so that they can share what they start and never start much at
once. They come first, because they take longest; the other workers run all other tests meanwhile.

With FLWR_MEL_SLOW=1 (`make test-slow`) tests marked slow run as well, and hypothesis searches deeper.
"""

import gc
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from tests import identity
from tests.search import SLOW

# Tests start Python hundreds of times: what is compiled is kept, whatever the environment says.
sys.dont_write_bytecode = False
sys.pycache_prefix = str(Path(__file__).parents[1] / "build" / "pycache")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# Started in the background of a script, tests would hand on that SIGINT is ignored, and wait for ever for the
# processes that they end with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Which files share a worker, by the mark of their tests, in which order: the last that fits counts. What is
#: started for many tests costs while it waits: whoever uses it comes together, and whoever kills it last.
LANES = {
    "deployment": ("tests/deployment/",),
    "engine": (
        "tests/nets/test_three_cycles.py",
        "tests/simulation/test_modes.py",
        "tests/engine/",
        "tests/examples/",
        "tests/checkpoint/test_engine.py",
        "tests/simulation/test_arena_runs.py",
        "tests/simulation/test_runs.py",
        "tests/tools/test_trial.py",
        "tests/simulation/test_sweep.py",
    ),
}


def path_of(item):
    return item.nodeid.partition("::")[0]


def lane_of(path):
    return next((name for name, places in LANES.items() if path.startswith(places)), None)


def pytest_itemcollected(item):
    if "engine" in item.fixturenames:
        item.add_marker(pytest.mark.engine)
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker(pytest.mark.fuzz)


def pytest_collection_modifyitems(config, items):
    for item in items:
        for name in LANES:
            if item.get_closest_marker(name) and lane_of(path_of(item)) != name:
                raise pytest.UsageError(
                    f"{item.nodeid} is marked {name}: add its file to LANES in tests/conftest.py"
                )

    def place(item):
        path = path_of(item)
        lane = lane_of(path)
        fits = [n for n, start in enumerate(LANES.get(lane, ())) if path.startswith(start)]
        return [*LANES, None].index(lane), fits[-1:]

    items.sort(key=place)
    if not SLOW:
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)


@pytest.fixture(autouse=True)
def _messages_outside_of_a_run(monkeypatch):
    """Flower builds messages inside a run only."""
    identity.pretend(monkeypatch.setattr)


@pytest.fixture(autouse=True)
def _loggers_speak():
    """Parts of Flower silence its logger, and with it ours, for whatever comes after them in a process."""
    for name in ("flwr", "flwr.mel"):
        logger = logging.getLogger(name)
        logger.disabled, logger.propagate = False, True
        logger.setLevel(logging.DEBUG if name == "flwr" else logging.NOTSET)


@pytest.fixture(autouse=True, scope="module")
def _keep_what_is_there():
    """What is there stays: Flower collects garbage after every array, which would look at all of it."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        """One file on one worker, and a lane on one."""

        def _split_scope(self, nodeid):
            path = super()._split_scope(nodeid)
            return lane_of(path) or path

    return ByFile(config, log)


@pytest.fixture(scope="session")
def engine():
    """Flower's engine: see `tests.engine.harness`."""
    from tests.engine.harness import Engine

    shared = Engine()
    yield shared
    shared.stop()
