"""HTML that is escaped and balanced by construction: names come from the network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

from flwr_mel._text import printable

_VOID = {"meta", "br", "hr"}


class Html(str):
    """Text that is markup already and is not escaped again."""

    __slots__ = ()


def plain(value: object) -> str:
    """Return `value` as text in which every character can be seen and encoded; others become U+FFFD."""
    # Spaces that do not break are ours, between numbers and units.
    return "\u00a0".join(map(printable, str(value).split("\u00a0")))


def esc(value: object) -> Html:
    """Return `value` as escaped markup; markup stays as it is."""
    return value if isinstance(value, Html) else Html(html.escape(plain(value), quote=True))


def el(tag: str, *children: object, **attributes: object) -> Html:
    """Build an element.

    Parameters
    ----------
    tag : str
        Its name.
    *children : object
        Markup is kept, anything else is escaped, None is left out, lists and generators are unpacked.
    **attributes : object
        ``class_`` is class, other underscores are hyphens; None is left out.
    """
    words = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(plain(value), quote=True)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Html(f"<{tag}{words}>")
    return Html(f"<{tag}{words}>{join(children)}</{tag}>")


def join(children: Iterable[object]) -> Html:
    """Put pieces together, each escaped unless it is markup."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, str):
            parts.append(esc(child))
        elif isinstance(child, Iterable):
            parts.append(join(child))
        elif child is not None:
            parts.append(esc(child))
    return Html("".join(parts))


def data_block(name: str, value: Any) -> Html:
    """Embed `value` as JSON that cannot end its own script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return el("script", Html(text), type="application/json", id=name)
