"""One bout: one rival in one setting with one seed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from mel_simulation.arena.audit import audit
from mel_simulation.arena.rivals import RIVALS
from mel_simulation.arena.setting import Setting
from mel_simulation.arena.world import Event, World


class BrokenBout(RuntimeError):
    """The log of a bout contradicts itself: a bug of ours."""


@dataclass(frozen=True, slots=True)
class Bout:
    """Which bout it is.

    Parameters
    ----------
    setting : Setting
        Where.
    rival : str
        Who.
    choice : int
        Which of the rival's settings.
    seed : int
        Of the world.
    """

    setting: Setting
    rival: str
    choice: int
    seed: int

    @property
    def key(self) -> str:
        """A short name that depends on what is computed alone."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """Return all that the result depends on."""
        where = {
            key: value for key, value in asdict(self.setting).items() if key not in ("data_dir", "title")
        }
        rival = RIVALS[self.rival][self.choice]
        about = {"class": type(rival).__name__, **asdict(rival)}  # type: ignore[call-overload]
        return {"setting": where, "rival": self.rival, "with": about, "seed": self.seed}


def fight(bout: Bout) -> tuple[dict[str, Any], list[Event]]:
    """Let a rival learn until the last target or the end of the time, and check the books.

    Parameters
    ----------
    bout : Bout
        Which.

    Returns
    -------
    outcome, log
        Times and energies to the targets (None: not reached), the curve; and what happened.
    """
    world = World(bout.setting, bout.seed)
    RIVALS[bout.rival][bout.choice].run(world)
    if wrong := audit(world.costs, world.log, world.looks):
        raise BrokenBout(f"{bout.rival} in {bout.setting.name}, seed {bout.seed}: {'; '.join(wrong[:3])}")
    reached = []
    for target in bout.setting.targets:
        look = next((look for look in world.looks if look.accuracy >= target), None)
        reached.append(None if look is None else {"time_s": look.at_s, "energy_j": look.energy_j})
    outcome = {
        "bout": bout.key,
        **bout.as_dict(),
        "horizon_s": world.horizon_s,
        "round_s": world.round_s,
        "reached": reached,
        "jobs": sum(event.what == "send" for event in world.log),
        "models": world.version,
        "curve": [[look.at_s, look.accuracy, look.energy_j] for look in world.looks],
    }
    return outcome, world.log
