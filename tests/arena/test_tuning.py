"""Tuning is cut short where a choice cannot win any more: the choice stays, whatever the order of bouts."""

import random
from dataclasses import replace

import pytest
from mel_simulation.arena.bout import Bout, fight
from mel_simulation.arena.rivals import RIVALS
from mel_simulation.arena.run import Store, mark, planned, tuning
from mel_simulation.arena.setting import Profile, Setting
from mel_simulation.arena.verdict import Arena

SEED = 5
SETTING = Setting("s", "S", "digits", samples=200, learners=5, targets=(0.2, 0.35), rounds=6)
PROFILE = Profile(
    "p", (SETTING, replace(SETTING, name="far", targets=(0.3, 0.97))), (0,), SEED, ("tifl", "ha-asyn")
)


@pytest.fixture(scope="module")
def whole():
    """Every choice's bout to its own end."""
    return {
        (setting.name, rival): [fight(Bout(setting, rival, i, SEED))[0] for i in range(len(RIVALS[rival]))]
        for setting in PROFILE.settings
        for rival in PROFILE.rivals
    }


def held(profile, store, seed, at_a_time, most=10**6):
    """Hold an arena as workers would: bouts end in an order by chance, and may never end."""
    rng = random.Random(seed)
    for _ in range(most):
        bouts, later = planned(profile, store)
        todo = [bout for bout in bouts if store.outcome(bout) is None][:at_a_time]
        if not todo:
            assert not later
            break
        bout = rng.choice(todo)
        store.keep(bout, *fight(bout))
    return store.collect(profile).read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("alone"))
    held(PROFILE, store, 0, 1)
    return store


def test_the_choice_is_that_of_bouts_that_are_not_cut(whole, alone):
    for setting in PROFILE.settings:
        for rival in PROFILE.rivals:
            marks = [mark(outcome) for outcome in whole[setting.name, rival]]
            assert tuning(PROFILE, setting, rival, alone)[1] == marks.index(min(marks))


def test_a_bout_is_the_same_up_to_its_cut_and_says_that_it_was_cut(whole, alone):
    cut = 0
    for row in (row for row in Arena.read(alone.path).rows if row["seed"] == SEED and "until_s" in row):
        full = next(
            each for each in whole[row["setting"]["name"], row["rival"]] if each["with"] == row["with"]
        )
        looks = [look for look in full["curve"] if look[0] <= row["until_s"]]
        assert row["curve"] == looks
        assert row["cut_short"] == (row["reached"][-1] is None)
        assert row["reached"][:-1] == [
            reached if reached and reached["time_s"] <= row["until_s"] else None
            for reached in full["reached"][:-1]
        ]
        if row["cut_short"]:
            cut += 1
            assert row["curve"][-1][0] == row["until_s"]
            assert row["jobs"] <= full["jobs"]
        else:
            assert row["reached"] == full["reached"]
    assert cut > 1


def test_nothing_is_cut_where_nobody_reaches_the_last_target_nor_with_reported_seeds(alone):
    rows = Arena.read(alone.path).rows
    assert all("until_s" not in row for row in rows if row["setting"]["name"] == "far" or row["seed"] != SEED)


def test_results_do_not_depend_on_the_number_of_workers_nor_on_kills(alone, tmp_path):
    wanted = (alone.path / "arena.jsonl").read_bytes()
    held(PROFILE, Store(tmp_path), 1, 3, most=7)
    # Another process finds what is on disk, and holds what was under way again.
    assert held(PROFILE, Store(tmp_path), 9, 3) == wanted


def test_a_tie_at_the_cut_goes_to_whom_it_would_without(tmp_path):
    """Looks come at even times, so two choices often reach a target at the same one."""
    store = Store(tmp_path)
    profile = replace(PROFILE, settings=(SETTING,), rivals=("tifl",))
    for time_s, earlier in ((30.0, 20.0), (30.0, 10.0), (30.0, 10.0), (30.0, 15.0)):
        bout = planned(profile, store)[0][-1]
        assert bout.until_s in (None, 30.0)
        reached = [{"time_s": earlier, "energy_j": 1.0}, {"time_s": time_s, "energy_j": 1.0}]
        store.keep(bout, {"bout": bout.key, "reached": reached, "curve": [[30.0, 0.5, 0.0]]}, [])
    assert tuning(profile, SETTING, "tifl", store)[1] == 1
