"""``flwr-mel arena`` from its start to the page: whatever interrupts it, it makes the same bytes."""

import json

import pytest
from mel_simulation.arena.bout import fight
from mel_simulation.arena.page import write
from mel_simulation.arena.run import Store, planned
from mel_simulation.arena.setting import read_profile
from mel_simulation.arena.verdict import Arena

from tests.arena.test_command import PROFILE
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


def test_interrupted_it_continues_on_a_cluster_to_the_same_bytes(tiny, alone, tmp_path, call, cluster):
    lines = (alone / "arena.jsonl").read_text().splitlines(keepends=True)
    assert json.loads(lines[0])["about"]["bouts"] == 10 == len(lines) - 1
    assert any(json.loads(line).get("cut_short") for line in lines)
    out = tmp_path / "out"
    out.mkdir()
    (out / "arena.jsonl").write_text("".join(lines[1:4]) + lines[4][:40])
    call("arena", tiny, "--out", out, "--workers", 1, "--ray-address", cluster.address)
    found, wanted = files(out), files(alone)
    assert found.items() <= wanted.items()
    assert {path for path in wanted if path.parts[0] != "logs"} <= set(found)


def test_of_a_file_that_has_all_bouts_none_is_held(tiny, alone, tmp_path):
    out = tmp_path / "known"
    said = run("arena", tiny, "--out", out, "--from", alone / "arena.jsonl")
    assert "starting Ray" not in said.stderr
    assert files(out).items() <= files(alone).items()
    assert (out / "ARENA.md").exists()
