"""Memory, files and code: nothing that a learner sends reaches them."""

import resource
import sys
import tracemalloc

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message

from flwr_mel import wire
from flwr_mel.flower.arrays import decode
from flwr_mel.orchestrator import RefusedUpdate
from tests import attacks
from tests.attacks import COSTS, EVIL
from tests.fuzz.tools import classic_cycle, fail, message_cycle


@pytest.mark.parametrize(
    "data",
    [
        attacks.npy_claiming("<f4", "(100000000000,)", b"\x00" * 24),
        attacks.npy_claiming("|S0", "(100000000000,)", b""),
        attacks.npy_claiming("<f4", "(" * 4000, b""),
        attacks.ARCHIVE,
        *attacks.PICKLES,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
    ],
    ids=["huge", "nothing-often", "nested", "archive", "pickle", "objects", "header"],
)
def test_bombs_do_not_go_off(data):
    tracemalloc.start()
    try:
        with pytest.raises(RefusedUpdate, match=r"decoded|bytes"):
            decode("a", data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


WATCHED = ("open", "os.", "shutil.", "subprocess.", "socket.", "pickle.", "exec", "import", "ctypes.")
_seen = []
_watching = [False]


def _watch(event, args):
    if _watching[0] and event.startswith(WATCHED):
        _seen.append((event, str(args)[:200]))


def test_nothing_a_learner_sends_reaches_the_disk_or_is_executed():
    message_cycle(fail)
    classic_cycle(None)  # what is imported late is imported now
    sys.addaudithook(_watch)
    rng = np.random.default_rng(1)
    for _ in range(60):
        content, result = attacks.evil_content(rng), attacks.evil_result(rng)
        content[wire.RECORD] = ConfigRecord({wire.LEARNER: EVIL, **COSTS})
        _watching[0] = True
        try:
            message_cycle(lambda m, c=content: [Message(c, reply_to=m)])
            classic_cycle(result)
        finally:
            _watching[0] = False
    touched = [seen for seen in _seen if seen[0] != "exec" or EVIL in seen[1]]
    # Python's own: numpy evaluates the header of the checked arrays, threads are started for the probes.
    assert [seen for seen in touched if seen[0] not in ("import",)] == []
    _watching[0] = True
    with open(__file__, encoding="utf-8"):
        _watching[0] = False
    assert any(event == "open" for event, _ in _seen)  # the watch works


def test_memory_stays_bounded():
    """The peak of this process after all the inputs above, whichever of them ran here."""
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = np.random.default_rng(2)
    for _ in range(50):
        content = attacks.evil_content(rng)
        message_cycle(lambda m, c=content: [Message(c, reply_to=m)])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb < 100_000
