"""All bouts of a profile, side by side as Ray tasks; each is on disk as soon as it is over.

First every rival's settings are tried on the tuning seed, which is never reported; the one that reaches the
last target soonest is taken for the reported seeds. The list of bouts follows from outcomes alone, so
results are the same for any number of workers and after any interruption.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from flwr_mel._files import atomically
from mel_simulation.app.run_dir import versions
from mel_simulation.arena.bout import Bout, BrokenBout, fight
from mel_simulation.arena.rivals import RIVALS
from mel_simulation.arena.setting import Profile, Setting
from mel_simulation.ray_session import Show, side_by_side
from mel_simulation.sweep.results import Results

Outcome = dict[str, Any]


class Store(Results):
    """The directory of an arena: ``arena.jsonl``, and a log of each bout."""

    name, key = "arena.jsonl", "bout"

    def outcome(self, bout: Bout) -> Outcome | None:
        """Return a finished bout."""
        return self.rows.get(bout.key)

    def keep(self, bout: Bout, outcome: Outcome, log: Sequence[Any]) -> None:
        """Append a finished bout; its log comes first, so that no outcome is without one."""
        if outcome["bout"] != bout.key:
            raise BrokenBout(f"{bout.rival} differs in its worker: the code was changed meanwhile")
        events = [{k: v for k, v in asdict(event).items() if v not in (-1, 0, 0.0)} for event in log]
        text = "".join(json.dumps(event) + "\n" for event in events)
        atomically(self.path / "logs" / f"{bout.key}.jsonl", lambda f: f.write(text))
        self.add(outcome)

    def collect(self, profile: Profile) -> Path:
        """Rewrite ``arena.jsonl``: a line about the arena, then the finished bouts in their order."""
        bouts, later = planned(profile, self)
        settings = [
            {key: value for key, value in asdict(setting).items() if key != "data_dir"}
            for setting in profile.settings
        ]
        about = {
            "profile": profile.name,
            "versions": versions(),
            "notice": " ".join(sorted({n for s in profile.settings if (n := s.job.notice)})),
            "bouts": len(bouts) + later,
            "settings": settings,
            "rivals": list(names_of(profile)),
            "seeds": list(profile.seeds),
            "tuning_seed": profile.tuning_seed,
        }
        return self.rewrite(about, [bout.key for bout in bouts])


def read_outcomes(path: Path) -> tuple[Outcome, list[Outcome]]:
    """Read an ``arena.jsonl``, or the directory that holds it: the line about the arena, and its bouts."""
    return Store.read(path)


def names_of(profile: Profile) -> Sequence[str]:
    """Return the rivals of a profile."""
    return profile.rivals or tuple(RIVALS)


def tuning(profile: Profile, setting: Setting, rival: str, store: Store) -> tuple[list[Bout], int | None]:
    """Return the bouts that choose a rival's setting, as far as they are known by now, and the choice.

    One after the other: where one has reached the last target, those that follow are cut short at that time,
    because they would not be chosen. So the choice is the same as without the cut.
    """
    if profile.tuning_seed is None:
        return [], 0
    bouts: list[Bout] = []
    marks: list[tuple[float, ...]] = []
    until_s: float | None = None
    for choice in range(len(RIVALS[rival])):
        bouts.append(Bout(setting, rival, choice, profile.tuning_seed, until_s))
        outcome = store.outcome(bouts[-1])
        if outcome is None:
            return bouts, None
        marks.append(mark(outcome))
        if (last := outcome["reached"][-1]) is not None:
            until_s = float(last["time_s"])
    return bouts, marks.index(min(marks))


def mark(outcome: Outcome) -> tuple[float, ...]:
    """Return what a choice is made by: time to the last target, to the one before, ..., then the accuracy."""
    times = [inf if r is None else float(r["time_s"]) for r in reversed(outcome["reached"])]
    return (*times, -float(outcome["curve"][-1][1]))


def planned(profile: Profile, store: Store) -> tuple[list[Bout], int]:
    """Return the bouts that are known by now, and how many more will follow."""
    bouts: list[Bout] = []
    later = 0
    for setting in profile.settings:
        for rival in names_of(profile):
            tried, choice = tuning(profile, setting, rival, store)
            bouts += tried
            if choice is None:
                later += len(RIVALS[rival]) - len(tried) + len(profile.seeds)
            else:
                bouts += [Bout(setting, rival, choice, seed) for seed in profile.seeds]
    return bouts, later


def hold(profile: Profile, store: Store, show: Show, workers: int = 0, address: str = "") -> None:
    """Hold the missing bouts of an arena.

    Parameters
    ----------
    profile : Profile
        Its bouts.
    store : Store
        Where they go.
    show, workers, address
        As for `side_by_side`.
    """

    def left() -> tuple[list[Bout], int, int]:
        bouts, later = planned(profile, store)
        todo = [bout for bout in bouts if store.outcome(bout) is None]
        return todo, len(bouts) - len(todo), len(bouts) + later

    side_by_side(fight, left, lambda bout, done: store.keep(bout, *done), show, workers, address)
