"""The committed bouts are those that the present code would hold."""

import json
from collections import Counter
from pathlib import Path

import pytest
from mel_simulation.arena.bout import Bout
from mel_simulation.arena.cover import METHODS, PLACE, RIVAL, table
from mel_simulation.arena.rivals import RIVALS
from mel_simulation.arena.run import Store, planned
from mel_simulation.arena.setting import profiles, read_profile
from mel_simulation.arena.verdict import Arena

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def profile():
    return read_profile(profiles()["full"])


def test_keys_of_all_bouts_recompute_to_the_same_keys(profile):
    settings = {setting.name: setting for setting in profile.settings}
    rows = Arena.read(RESULTS / "arena.jsonl").rows
    assert len(rows) == 1980
    for row in rows:
        place = settings[row["setting"]["name"]], row["rival"]
        bouts = [Bout(*place, i, row["seed"], row.get("until_s")) for i in range(len(RIVALS[row["rival"]]))]
        same = [bout for bout in bouts if bout.key == row["bout"]]
        assert len(same) == 1, (row["setting"]["name"], row["rival"], row["seed"])


def test_no_bout_of_the_profile_is_missing(profile, tmp_path):
    store = Store(tmp_path, [RESULTS / "arena.jsonl"])
    bouts, later = planned(profile, store)
    assert later == 0
    assert Counter(store.outcome(bout) is not None for bout in bouts) == {True: 1980}


def test_the_method_that_is_rate_on_phones_has_the_costs_of_the_arena():
    """Accuracies depend on the processor, so a target may be reached one look earlier or later."""
    lines = (RESULTS / "cover.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    rows = [json.loads(line) for line in lines]
    bouts = Arena.read(RESULTS / "arena.jsonl").reported(PLACE, "rate")
    name = next(iter(METHODS))
    assert len(rows) == len(METHODS) * len(bouts)
    for row in (row for row in rows if row["rival"] == name):
        times = {at_s: energy_j for at_s, _, energy_j in bouts[row["seed"]]["curve"]}
        assert all(energy_j == pytest.approx(times.get(at_s, energy_j)) for at_s, _, energy_j in row["curve"])
        assert len(times.keys() & {look[0] for look in row["curve"]}) > 10


def test_the_table_of_phones_names_all_methods():
    text = table(RESULTS / "cover.jsonl", Arena.read(RESULTS / "arena.jsonl"))
    assert all(f"| {name} |" in text for name in METHODS)
    assert RIVAL in RIVALS
