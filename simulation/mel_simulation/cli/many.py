"""What ``flwr-mel sweep`` and ``flwr-mel arena`` share: profiles, options, and how they end early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from flwr_mel.tools.shell import FAILED, INTERRUPTED

Known = Annotated[
    list[Path] | None,
    typer.Option("--from", help="Results that need not be computed again; may be repeated."),
]
Workers = Annotated[int, typer.Option(help="Number of parallel workers; 0: one per CPU.")]
RayAddress = Annotated[str, typer.Option(envvar="RAY_ADDRESS", help="Existing Ray cluster.")]


def profile_argument(profiles: Mapping[str, Path]) -> Any:
    """Return an argument for a profile or a file, with completion."""

    def complete(begun: str) -> list[str]:
        return [name for name in profiles if name.startswith(begun)]

    text = f"A TOML file, or a profile: {', '.join(profiles)}."
    return typer.Argument(help=text, autocompletion=complete)


def help_on(profiles: Mapping[str, Path]) -> str:
    """Return the profiles for the help of a command, each with the comment that its file begins with."""
    lines = [f"{name}: {_first_comment(path)}" for name, path in profiles.items()]
    return "\n\n".join(["Profiles:", *lines])


def _first_comment(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")


def why_stopped(compute: Callable[[], None], broken: type[Exception]) -> tuple[str, int]:
    """Compute; return what stopped it before its end, in words and as an exit code.

    Parameters
    ----------
    compute : callable
        Keeps each finished part on disk.
    broken : type
        The error of a part that cannot be computed.
    """
    try:
        compute()
    except broken as error:
        return f"failed: {error}", FAILED
    except KeyboardInterrupt:
        return "interrupted", INTERRUPTED
    return "", 0
