"""What ``flwr-mel arena`` keeps and need not hold again."""

import json

import pytest
from mel_simulation.arena.bout import BrokenBout
from mel_simulation.arena.run import Store, planned
from mel_simulation.arena.setting import read_profile

PROFILE = """seeds = [0]
tuning-seed = 5
rivals = ["fedavg", "ha-asyn"]
[[setting]]
name = "tiny"
title = "Tiny"
task = "digits"
samples = 300
learners = 4
targets = [0.2, 0.3]
rounds = 2
"""


def test_bouts_of_a_file_are_not_held_again_and_own_ones_come_first(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(PROFILE)
    profile = read_profile(path)
    row = {"reached": [None, None], "curve": [[0.0, 0.1, 0.0]]}
    there, here = Store(tmp_path / "there"), Store(tmp_path / "here")
    for held in range(4):  # of one rival, one after the other
        bouts, later = planned(profile, there)
        assert len(bouts) + later == 10
        assert [there.outcome(bout) is not None for bout in bouts] == [*held * [True], False, False]
        there.keep(bouts[held], {"bout": bouts[held].key, **row}, [])
    bouts, _ = planned(profile, there)
    here.keep(bouts[0], {"bout": bouts[0].key, **row, "mine": True}, [])
    known = Store(tmp_path / "here", [there.collect(profile)])
    assert [known.outcome(bout) is not None for bout in bouts] == 4 * [True] + 2 * [False]
    assert known.outcome(bouts[0])["mine"]
    assert json.loads(known.collect(profile).read_text().splitlines()[0])["about"]["bouts"] == 10
    # Killed while a line was written.
    with known.file.open("a") as file:
        file.write('{"bout": "cut o')
    left = Store(tmp_path / "here")
    assert sum(left.outcome(bout) is not None for bout in bouts) == 4
    with pytest.raises(BrokenBout, match="fedavg differs in its worker"):
        left.keep(bouts[0], {"bout": bouts[1].key, **row}, [])
    with pytest.raises(ValueError, match=r"results must be a file like arena\.jsonl"):
        Store(tmp_path, [tmp_path / "nothing.jsonl"])
