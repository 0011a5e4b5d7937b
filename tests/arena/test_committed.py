"""The committed bouts are those that the present code would hold."""

from collections import Counter
from pathlib import Path

import pytest
from mel_simulation.arena import setting
from mel_simulation.arena.bout import Bout
from mel_simulation.arena.rivals import RIVALS
from mel_simulation.arena.run import Store, planned, read_outcomes

RESULTS = Path(__file__).parents[2] / "results" / "arena.jsonl"


@pytest.fixture(scope="module")
def profile():
    return setting.read_profile(Path(setting.__file__).parent / "profiles" / "full.toml")


def test_keys_of_all_bouts_recompute_to_the_same_keys(profile):
    settings = {setting.name: setting for setting in profile.settings}
    _, rows = read_outcomes(RESULTS)
    assert len(rows) == 1980
    for row in rows:
        place = settings[row["setting"]["name"]], row["rival"]
        bouts = [Bout(*place, i, row["seed"], row.get("until_s")) for i in range(len(RIVALS[row["rival"]]))]
        assert [bout.key for bout in bouts].count(row["bout"]) == 1, row["bout"]


def test_no_bout_of_the_profile_is_missing(profile, tmp_path):
    store = Store(tmp_path, [RESULTS])
    bouts, later = planned(profile, store)
    assert later == 0
    assert Counter(store.outcome(bout) is not None for bout in bouts) == {True: 1980}
