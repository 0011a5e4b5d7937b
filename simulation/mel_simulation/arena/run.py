"""All bouts of a profile, side by side as Ray tasks; each is on disk as soon as it is over.

First every rival's settings are tried on the tuning seed, which is never reported; the one that reaches the
last target soonest is taken for the reported seeds. Which bouts there are follows from outcomes alone, so
results are the same for any number of workers and after any interruption.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from flwr_mel._files import atomically
from flwr_mel._processes import orderly, undisturbed
from flwr_mel._validate import complain
from mel_simulation.app.run_dir import versions
from mel_simulation.arena.bout import Bout, BrokenBout, fight
from mel_simulation.arena.rivals import RIVALS
from mel_simulation.arena.setting import Profile, Setting
from mel_simulation.engine.ray_start import start_ray

_TICK_S = 0.5
Outcome = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Store:
    """The directory of an arena.

    Parameters
    ----------
    path : Path
        Made when first written to.
    known : sequence of Path
        Files of results, or their directories, whose bouts need not be held again; the directory's own
        ``arena.jsonl`` is one of them. What was held here comes first, then the first file that has it.
    """

    path: Path
    known: Sequence[Path] = ()
    _elsewhere: dict[str, Outcome] = field(init=False, default_factory=dict, compare=False)
    #: Bouts that were read: each is asked for whenever another one ends.
    _read: dict[str, Outcome] = field(init=False, default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        own = [self.path] if (self.path / "arena.jsonl").exists() else []
        for row in (row for file in (*own, *self.known) for row in read_outcomes(file)[1]):
            self._elsewhere.setdefault(row["bout"], row)

    def outcome(self, bout: Bout) -> Outcome | None:
        """Return a finished bout."""
        key = bout.key
        if key not in self._read:
            file = self.path / "bouts" / f"{key}.json"
            if not file.exists():
                return self._elsewhere.get(key)
            self._read[key] = json.loads(file.read_text(encoding="utf-8"))
        return self._read[key]

    def keep(self, bout: Bout, outcome: Outcome, log: Sequence[Any]) -> None:
        """Keep a finished bout: its log first, so that no outcome is without one."""
        if outcome["bout"] != bout.key:
            raise BrokenBout(f"{bout.rival} was another one in its worker: the code was changed meanwhile")
        lines = [
            json.dumps({k: v for k, v in asdict(event).items() if v not in (-1, 0, 0.0)}) for event in log
        ]
        where = self.path / "logs" / f"{bout.key}.jsonl"
        atomically(where, lambda f: f.write("\n".join(lines) + "\n"))
        text = json.dumps(outcome, allow_nan=False)
        atomically(self.path / "bouts" / f"{bout.key}.json", lambda f: f.write(text))

    def collect(self, profile: Profile) -> Path:
        """Write ``arena.jsonl``: a line about the arena, then the finished bouts in their order."""
        bouts, settings = planned(profile, self)
        done = [found for bout in bouts if (found := self.outcome(bout)) is not None]
        notices = sorted({n for s in profile.settings if (n := s.job.notice)})
        about = {
            "profile": profile.name,
            "versions": versions(),
            "notice": " ".join(notices),
            "bouts": len(bouts) + settings,
            "settings": [_described(setting) for setting in profile.settings],
            "rivals": list(names_of(profile)),
            "seeds": list(profile.seeds),
            "tuning_seed": profile.tuning_seed,
        }
        lines = [
            json.dumps({"about": about}, allow_nan=False),
            *(json.dumps(o, allow_nan=False) for o in done),
        ]
        path = self.path / "arena.jsonl"
        atomically(path, lambda f: f.write("\n".join(lines) + "\n"))
        return path


def read_outcomes(path: Path) -> tuple[Outcome, list[Outcome]]:
    """Read an ``arena.jsonl``: what it says about the arena, and its bouts.

    Parameters
    ----------
    path : Path
        The file, or the directory that holds it.
    """
    file = path / "arena.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise complain("results", "an arena.jsonl, or a directory that holds one", str(path))
    first, *rest = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return first["about"], rest


def _described(setting: Setting) -> dict[str, Any]:
    return {key: value for key, value in asdict(setting).items() if key != "data_dir"}


def names_of(profile: Profile) -> tuple[str, ...]:
    """Return the rivals of a profile."""
    return profile.rivals or tuple(RIVALS)


def tuning_bouts(profile: Profile, setting: Setting, rival: str, store: Store) -> list[Bout]:
    """Return the bouts by which a rival's setting is chosen, as far as they can be named by now.

    One after the other: where one has reached the last target, those that follow are cut short at that time
    (the look at it included), for whoever is not there by then is not chosen. So the choice is the same as
    without the cut, and every bout depends on the ones before it alone, not on who was quicker.
    """
    bouts: list[Bout] = []
    if profile.tuning_seed is None:
        return bouts
    until_s: float | None = None
    for choice in range(len(RIVALS[rival])):
        bouts.append(Bout(setting, rival, choice, profile.tuning_seed, until_s))
        outcome = store.outcome(bouts[-1])
        if outcome is None:
            break
        if (last := outcome["reached"][-1]) is not None:
            until_s = float(last["time_s"])
    return bouts


def chosen(profile: Profile, setting: Setting, rival: str, store: Store) -> int | None:
    """Return which of a rival's settings is reported; None while that is not known."""
    if profile.tuning_seed is None:
        return 0
    outcomes = [store.outcome(bout) for bout in tuning_bouts(profile, setting, rival, store)]
    marks = [mark(outcome) for outcome in outcomes if outcome is not None]
    return marks.index(min(marks)) if len(marks) == len(RIVALS[rival]) else None


def mark(outcome: Outcome) -> tuple[float, ...]:
    """Return what a choice is made by: time to the last target, to the one before, ..., then the accuracy.

    Of a bout that was cut short the first is infinite: what cut it has a better mark.
    """
    times = [inf if r is None else float(r["time_s"]) for r in reversed(outcome["reached"])]
    return (*times, -float(outcome["curve"][-1][1]))


def planned(profile: Profile, store: Store) -> tuple[list[Bout], int]:
    """Return the bouts that can be named by now, and how many more will follow."""
    bouts: list[Bout] = []
    later = 0
    for setting in profile.settings:
        for rival in names_of(profile):
            tuning = tuning_bouts(profile, setting, rival, store)
            bouts += tuning
            choice = chosen(profile, setting, rival, store)
            if choice is None:
                later += len(RIVALS[rival]) - len(tuning) + len(profile.seeds)
            else:
                bouts += [Bout(setting, rival, choice, seed) for seed in profile.seeds]
    return bouts, later


def hold(
    profile: Profile,
    store: Store,
    show: Callable[[str, int, int], None],
    workers: int = 0,
    address: str = "",
) -> None:
    """Hold what is missing of an arena; SIGTERM ends it as Ctrl-C does.

    Parameters
    ----------
    profile : Profile
        Which bouts.
    store : Store
        Where they go.
    show : callable
        Told phase, bouts done and bouts in all.
    workers : int
        Bouts at a time; 0: one per CPU.
    address : str
        An existing Ray cluster; empty: Ray on this machine.
    """
    bouts, later = planned(profile, store)
    if not later and all(store.outcome(bout) is not None for bout in bouts):
        return
    show("starting Ray", *_count(profile, store))
    scratch = tempfile.mkdtemp(prefix="mel-")
    with orderly():
        ray: Any = None
        try:
            ray = start_ray(workers, address, scratch)
            with orderly():  # Ray takes SIGTERM for itself when it starts
                _hold(profile, store, show, ray)
        finally:
            with undisturbed():
                if ray is not None:
                    ray.shutdown()
                shutil.rmtree(scratch, ignore_errors=True)


def _hold(profile: Profile, store: Store, show: Callable[[str, int, int], None], ray: Any) -> None:
    remote = ray.remote(num_cpus=1)(fight)
    slots = int(ray.cluster_resources().get("CPU", 1))
    flying: dict[Any, Bout] = {}
    while True:
        bouts, later = planned(profile, store)
        busy = set(flying.values())
        todo = [bout for bout in bouts if bout not in busy and store.outcome(bout) is None]
        if not todo and not flying and not later:
            return
        for bout in todo[: slots - len(flying)]:
            flying[remote.remote(bout)] = bout
        ready: list[Any] = []
        while not ready:  # a plan takes a while to make, and nothing is new before a bout ends
            ready, _ = ray.wait(list(flying), num_returns=1, timeout=_TICK_S)
        for reference in ready:
            bout = flying.pop(reference)
            store.keep(bout, *ray.get(reference))
        show("fighting", *_count(profile, store))


def _count(profile: Profile, store: Store) -> tuple[int, int]:
    bouts, later = planned(profile, store)
    done = sum(store.outcome(bout) is not None for bout in bouts)
    return done, len(bouts) + later
