"""What the commands for servers and devices share: how to run, and how to tell."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import typer

from flwr_mel.cli.drawing import facts
from flwr_mel.cli.shared import console
from flwr_mel.deployment import units

T = TypeVar("T")
#: Seconds after which a server or a device that does not get ready is given up. A busy machine needs some.
PATIENCE_S = 600.0
_LOOK_S = 0.3


class Run(StrEnum):
    """How a program runs."""

    AUTO = "auto"
    SERVICE = "service"
    BACKGROUND = "background"
    FOREGROUND = "foreground"

    def chosen(self) -> Run:
        """Return what "auto" means here."""
        if self is not Run.AUTO:
            return self
        return Run.SERVICE if units.can_install() else Run.BACKGROUND


RUN_HELP = (
    "service: with systemd, now and at every boot. background: until it is stopped or the machine ends. "
    "foreground: in this terminal, container or unit. auto: a service as root where systemd runs the "
    "machine, else in the background."
)


def wait_for(ready: Callable[[], T], alive: Callable[[], bool], patience_s: float = PATIENCE_S) -> T | None:
    """Ask until the answer is true, and return it; None if nobody can give it any more.

    Parameters
    ----------
    ready : callable
        The question.
    alive : callable
        Whether it makes sense to go on.
    patience_s : float
        After which it does not.
    """
    give_up = time.monotonic() + patience_s
    while time.monotonic() < give_up:
        goes_on = alive()
        if answer := ready():
            return answer
        if not goes_on:
            break
        time.sleep(_LOOK_S)
    return None


def tell(as_json: bool, told: Mapping[str, Any], pairs: Sequence[tuple[str, str]]) -> None:
    """Print the result, for programs or for people."""
    if as_json:
        typer.echo(json.dumps(told))
    else:
        facts(console(), pairs)
