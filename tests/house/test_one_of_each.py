"""One of each mechanism: what stands in one place does not come back in another."""

import re
from pathlib import Path

import pytest

from flwr_mel import wire

ROOT = Path(__file__).parents[2]
FILES = [
    path for room in ("flwr_mel", "simulation/mel_simulation") for path in sorted((ROOT / room).rglob("*.py"))
]
#: What only one file does, and how it shows there.
MECHANISMS = {
    "atomic writer": (r"\}\.tmp\b|mkstemp|NamedTemporaryFile", "flwr_mel/_files.py"),
    "text cleaner": (r"\.isprintable\(\) else|\\ufffd\"", "flwr_mel/_text.py"),
    "bisection": (
        r"0\.5 \* \(low \+ high\)|\(low \+ high\) / 2|\(low \+ high \+ 1\) // 2",
        "flwr_mel/allocation/bisection.py",
    ),
    "checkpoint": (r"^class Checkpointed\b", "flwr_mel/checkpoint/strategies.py"),
    "input error": (r"^class \w+\(ValueError\):\n    \"\"\"Input", "flwr_mel/_validate.py"),
    "trust": (r"^class Estimate\b", "flwr_mel/cycle/estimate.py"),
    "a run's options": (r"^class RunConfig\b", "simulation/mel_simulation/scenario/config.py"),
}


def places(pattern):
    """Return the files in which a pattern occurs."""
    found = re.compile(pattern, re.MULTILINE)
    return [str(p.relative_to(ROOT)) for p in FILES if found.search(p.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_stands_in_one_place(mechanism):
    pattern, home = MECHANISMS[mechanism]
    assert places(pattern) == [home]


def test_keys_of_the_wire_are_written_in_one_place():
    keys = {value for value in vars(wire).values() if isinstance(value, str) and value.startswith("mel-")}
    assert len(keys) > 20
    assert places("|".join(f"[\"']{re.escape(key)}[\"']" for key in sorted(keys))) == ["flwr_mel/wire.py"]
