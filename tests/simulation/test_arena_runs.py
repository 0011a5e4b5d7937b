"""``flwr-mel arena`` from its start to the page: whatever interrupts it, it makes the same bytes."""

import json
import shutil
import signal

import pytest
from mel_simulation.arena.bout import fight
from mel_simulation.arena.page import write
from mel_simulation.arena.run import Store, planned
from mel_simulation.arena.setting import read_profile
from mel_simulation.arena.verdict import Arena

from tests.arena.test_command import PROFILE
from tests.simulation.tools import command, interrupted
from tests.tools.commands import run

pytestmark = pytest.mark.engine


def files(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("arena") / "tiny.toml"
    path.write_text(PROFILE)
    return path


@pytest.fixture(scope="module")
def alone(tiny):
    """The whole arena in one process without Ray."""
    profile, store = read_profile(tiny), Store(tiny.with_name("alone"))
    for _ in range(10):
        bouts, _ = planned(profile, store)
        bout = next(bout for bout in bouts if store.outcome(bout) is None)
        store.keep(bout, *fight(bout))
    write(Arena.read(store.collect(profile)), store.path)
    return store.path


def test_begun_elsewhere_it_goes_on_and_makes_the_same_bytes(tiny, alone, tmp_path, call, cluster):
    lines = (alone / "arena.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 2 * (4 + 1)
    assert json.loads(lines[0])["about"]["bouts"] == 10
    assert any(json.loads(line).get("cut_short") for line in lines)
    out = tmp_path / "out"
    for kind in ("bouts", "logs"):
        (out / kind).mkdir(parents=True)
        for path in sorted((alone / kind).iterdir())[::3]:
            shutil.copy(path, out / kind)
    call("arena", tiny, "--out", out, "--workers", 1, "--ray-address", cluster.address)
    assert files(alone).items() <= files(out).items()


@pytest.mark.slow
def test_killed_it_goes_on_and_makes_the_same_bytes(tiny, alone, tmp_path, env, call):
    out = tmp_path / "killed"
    again = ("arena", tiny, "--out", out, "--workers")
    interrupted(command(*again, 2), out / "bouts", env, signal.SIGKILL)
    call(*again, 1)
    assert files(alone).items() <= files(out).items()


def test_of_a_file_that_has_all_bouts_none_is_held(tiny, alone, tmp_path):
    out = tmp_path / "known"
    said = run("arena", tiny, "--out", out, "--from", alone / "arena.jsonl")
    assert "starting Ray" not in said.stderr
    assert files(out).items() <= files(alone).items()
    assert (out / "ARENA.md").exists()
