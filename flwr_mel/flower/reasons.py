"""Reasons on the record: one printable line each, whoever wrote them."""

from __future__ import annotations

import re

from flwr_mel._text import printable

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# How Flower ends the words it puts around a client's exception.
_WRAPPING = re.compile(r"'>(\)\. It originated during client-side execution of a message\.)?$")
# What Flower says of messages that nobody answered, in place of a client's own words.
_UNANSWERED = re.compile(r"Error: (Reply )?(Message|Node) Unavailable")
_LONGEST_REASON = 300


class RefusedUpdate(ValueError):
    """An update that must not be averaged; the message is the reason on the record."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason, _LONGEST_REASON))


def reason(text: str) -> str:
    """Make a stranger's words fit for the record: one line, and not too long."""
    return printable(text, _LONGEST_REASON)


def unanswered(failure: str) -> bool:
    """Whether a failure is that nobody answered in time, as opposed to a client that failed."""
    return _UNANSWERED.search(failure) is not None


def brief(failure: str) -> str:
    """Shorten what the engine says of a failure, often a whole traceback, to its last line."""
    end = failure[-10 * _LONGEST_REASON :]
    lines = [line.strip() for line in _COLOURS.sub("", end).splitlines() if line.strip()]
    return reason(_WRAPPING.sub("", lines[-1]) if lines else "no reason given")
