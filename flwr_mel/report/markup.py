"""HTML that is escaped and balanced by construction: names come from the network."""

from __future__ import annotations

import html
import json
import unicodedata
from collections.abc import Iterable
from typing import Any

_VOID = {"meta", "br", "hr"}
#: Unicode categories that no name needs: controls, direction marks, halves of characters, private use.
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn"}


class Html(str):
    """Text that is markup already and is not escaped again."""

    __slots__ = ()


def plain(value: object) -> str:
    """Return `value` as text in which every character can be seen and encoded; others become U+FFFD."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        " " if c in "\n\t\r" else "\ufffd" if unicodedata.category(c) in _UNSEEN else c for c in text
    )


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
