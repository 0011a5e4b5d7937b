"""Shards leave the server only over TLS, to registered nodes, unless the user says otherwise.

A ServerApp is not told how its SuperLink serves the devices. It can see three things: what its own grid is
(in memory: a simulation, nothing leaves the machine), whether it reaches the SuperLink itself over TLS (one
port serves apps and devices alike), and, when the SuperLink started it on the same machine, the SuperLink's
command line. Where the last is out of sight the operator vouches for it in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flwr_mel.orchestrator.settings import Mode, Settings

#: Environment variable of the ServerApp's process; "tls": the operator vouches for TLS and registered nodes.
TRANSPORT_VARIABLE = "FLWR_MEL_TRANSPORT"
_VOUCHED = "tls"
_SUPERLINK = "flower-superlink"
_MOST_ANCESTORS = 32
_INNER = ("grid", "_grid")

_REMEDY = (
    "Start it with --ssl-certfile, --ssl-keyfile, --ssl-ca-certfile and --enable-supernode-auth "
    "(flwr-mel server up does), or set allow_insecure_shards=True if everybody on the network may read the "
    "data"
)


class InsecureShards(RuntimeError):
    """Parallelized learning would ship data over a connection that is not known to be safe."""


def check_transport(carrier: object, settings: Settings) -> None:
    """Raise `InsecureShards` if shards would leave over a connection that is not known to be safe.

    Parameters
    ----------
    carrier : Grid or ClientProxy
        What the messages go through; a wrapper that keeps it as ``grid`` or ``_grid`` will do.
    settings : Settings
        Only parallelized mode without `allow_insecure_shards` is checked.
    """
    if settings.mode is Mode.FEDERATED or settings.allow_insecure_shards or in_memory(carrier):
        return
    trouble = insecurity(carrier, superlink_command(), os.environ.get(TRANSPORT_VARIABLE, ""))
    if trouble:
        raise InsecureShards(f"mode='parallelized' ships data to the learners, but {trouble}")


def insecurity(carrier: object, command: Sequence[str] | None, vouched: str) -> str:
    """Say what is wrong with the connection; "" if nothing is.

    What can be seen counts more than what the operator vouches for.

    Parameters
    ----------
    carrier : object
        As for `check_transport`.
    command : sequence of str or None
        The SuperLink's command line; None: out of sight.
    vouched : str
        Value of `TRANSPORT_VARIABLE`.
    """
    if in_memory(carrier):
        return ""
    end = _innermost(carrier)
    seen = ""
    if getattr(end, "_insecure", None) is True:
        seen = "the SuperLink is reached without TLS"
    elif command is not None and any(_is_option(word, "--insecure") for word in command):
        seen = "the SuperLink runs with --insecure"
    elif command is not None and "--enable-supernode-auth" not in command:
        seen = "the SuperLink takes any device: it runs without --enable-supernode-auth"
    if seen or command is not None:
        return f"{seen}. {_REMEDY}." if seen else ""
    if vouched.strip().lower() == _VOUCHED:
        return ""
    return (
        "this process cannot see how the SuperLink was started (another machine, container or isolation "
        f"mode). If it runs with TLS and --enable-supernode-auth, set {TRANSPORT_VARIABLE}={_VOUCHED} in the "
        f"environment of the ServerApp's process, got {vouched!r}; else: {_REMEDY}."
    )


def superlink_command(pid: int | None = None) -> list[str] | None:
    """Return the command line of the SuperLink that a process descends from; None if there is none in sight.

    Parameters
    ----------
    pid : int, optional
        This process by default.
    """
    for words in _ancestors(os.getpid() if pid is None else pid):
        # A script's first word is its interpreter.
        for place, word in enumerate(words[:3]):
            if Path(word).name == _SUPERLINK:
                return words[place + 1 :]
    return None


def _ancestors(pid: int) -> Iterator[list[str]]:
    """Yield the command lines of a process's parents, the nearest first; nothing where there is no /proc."""
    for _ in range(_MOST_ANCESTORS):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            # The name in parentheses may hold anything; state and parent come after it.
            pid = int(stat.rpartition(")")[2].split()[1])
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            return
        yield [os.fsdecode(word) for word in line.split(b"\0")[:-1]]


def _is_option(word: str, option: str) -> bool:
    """Whether a word is this option, perhaps abbreviated as argparse allows."""
    return len(word) > len("--") + 1 and option.startswith(word)


def _innermost(carrier: Any) -> Any:
    """Look through wrappers to what really carries the messages."""
    for _ in range(_MOST_ANCESTORS):
        own = getattr(carrier, "__dict__", {})
        inner = next((own[name] for name in _INNER if own.get(name) is not None), None)
        if inner is None:
            break
        carrier = inner
    return carrier


def in_memory(carrier: object) -> bool:
    """Whether messages stay on this machine, or in the Ray cluster that the user started.

    Parameters
    ----------
    carrier : object
        As for `check_transport`.
    """
    # By name, because Flower keeps these classes in private modules, some of which import Ray.
    kinds = type(_innermost(carrier)).__mro__
    return any(k.__name__ == "InMemoryGrid" or k.__module__.startswith("flwr.simulation.") for k in kinds)
