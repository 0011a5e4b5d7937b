"""One bout: one rival in one setting with one seed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from math import inf
from typing import Any

from mel_simulation.arena.audit import audit
from mel_simulation.arena.rivals import RIVALS
from mel_simulation.arena.setting import Setting
from mel_simulation.arena.world import Event, World
from mel_simulation.ray_session import TaskError


class BrokenBout(TaskError):
    """The log of a bout contradicts itself: a bug of ours."""


@dataclass(frozen=True, slots=True)
class Bout:
    """Which bout it is.

    Parameters
    ----------
    setting : Setting
        Where it takes place.
    rival : str
        Its name.
    choice : int
        Which of the rival's settings.
    seed : int
        Of the world.
    until_s : float, optional
        When it is cut short: by then another of the rival's settings had reached the last target.
    """

    setting: Setting
    rival: str
    choice: int
    seed: int
    until_s: float | None = None

    @property
    def key(self) -> str:
        """A short name that depends on what is computed alone."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """Return all that the result depends on."""
        where = asdict(self.setting)
        for key in ("data_dir", "title"):
            del where[key]
        # What is off is left out, so that keys of bouts outlive new fields.
        for key in ("throttled", "jitter"):
            if not where[key]:
                del where[key]
        rival = RIVALS[self.rival][self.choice]
        whole = {"setting": where, "rival": self.rival, "with": _described(rival), "seed": self.seed}
        return whole if self.until_s is None else {**whole, "until_s": self.until_s}


def _described(rival: Any) -> dict[str, Any]:
    """Return a rival's class and settings, those of a rival inside it included."""
    values = ((field.name, getattr(rival, field.name)) for field in fields(rival))
    described = {name: _described(value) if is_dataclass(value) else value for name, value in values}
    return {"class": type(rival).__name__, **described}


def fight(bout: Bout) -> tuple[dict[str, Any], list[Event]]:
    """Let a rival learn until the last target, the end of the time or the cut, and check the books.

    Parameters
    ----------
    bout : Bout
        Which.

    Returns
    -------
    outcome, log
        Times and energies to the targets (None: not reached, or cut short before),
        the curve; and what happened.
    """
    world = World(bout.setting, bout.seed, inf if bout.until_s is None else bout.until_s)
    RIVALS[bout.rival][bout.choice].run(world)
    if wrong := audit(bout.setting, bout.seed, world.log, world.looks):
        raise BrokenBout(f"{bout.rival} in {bout.setting.name}, seed {bout.seed}: {'; '.join(wrong[:3])}")
    reached = [world.reached(target) for target in bout.setting.targets]
    outcome = {
        "bout": bout.key,
        **bout.as_dict(),
        "horizon_s": world.horizon_s,
        "round_s": world.round_s,
        "reached": reached,
        "jobs": sum(event.what == "send" for event in world.log),
        "models": world.version,
        "curve": [list(look) for look in world.looks],
    }
    if bout.until_s is not None:
        outcome["cut_short"] = reached[-1] is None
    return outcome, world.log
