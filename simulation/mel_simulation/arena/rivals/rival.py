"""What a rival is."""

from __future__ import annotations

from typing import Protocol

from mel_simulation.arena.world import World


class Rival(Protocol):
    """A frozen dataclass whose fields are its hyper-parameters."""

    def run(self, world: World) -> None:
        """Send jobs, wait, publish models until `world.over`."""
        ...
