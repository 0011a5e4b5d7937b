"""Text from outside, made fit for a line of a log, a terminal or a page."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Colours of a terminal.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def printable(text: str, most: int | None = None) -> str:
    """Return text in one line that cannot move a cursor or hide: line ends become spaces, the rest U+FFFD.

    Parameters
    ----------
    text : str
        From any source.
    most : int, optional
        Characters; what is longer ends in dots.
    """
    if most is not None and len(text) > most:
        text = f"{text[: most - 3]}..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def message(error: BaseException) -> str:
    """Return what an error says, in one line."""
    return printable(" ".join(str(error).split())) or "no message"


def last_error(text: str) -> str:
    """Return what a traceback ends with, the error and its message; another text in one line."""
    plain = _COLOURS.sub("", text)
    if "Traceback (most recent call last)" in plain:
        lines = [line for line in plain.splitlines() if line.strip(" ~^'>")]
        # A message of several lines mostly indents all but the first.
        start = max((i for i, line in enumerate(lines) if not line[0].isspace()), default=0)
        plain = " ".join(lines[start:]).removesuffix("'>")
    return " ".join(plain.split())


def error_line(error: BaseException, most: int | None = None) -> str:
    """Return an error's kind and what it says, in one line.

    Parameters
    ----------
    error : BaseException
        Any.
    most : int, optional
        Characters.
    """
    return printable(f"{type(error).__name__}: {message(error)}", most)


def some(names: Sequence[str], most: int = 6) -> str:
    """Return the names, or the first few and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
