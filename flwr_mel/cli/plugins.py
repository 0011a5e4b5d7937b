"""Commands and functions that other packages add, found by their entry points.

The simulation adds `simulate`, `sweep` and the trials of `recommend` in this way: flwr_mel itself never
imports it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

COMMANDS, TRIALS = "flwr_mel.commands", "flwr_mel.trials"


def found(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by their names."""
    return {point.name: point for point in entry_points(group=group)}


def load(group: str, name: str) -> Any:
    """Import what an entry point names.

    Parameters
    ----------
    group, name : str
        Which.

    Raises
    ------
    ImportError
        If it is not there, or needs packages that are not there.
    """
    points = found(group)
    if name not in points:
        raise ImportError(f"no installed package has {name!r} in the group {group}")
    return points[name].load()
