"""HTML that is escaped by construction (names come from the network), and numbers for people."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from importlib.resources import files
from string import Template

import numpy as np

from flwr_mel._text import printable
from flwr_mel._validate import FloatArray

DASH = "\u2013"


class Html(str):
    """Text that is markup already and is not escaped again."""


def esc(value: object) -> Html:
    """Return a value as markup: None is empty, lists are joined, markup stays, all else is escaped."""
    if isinstance(value, Html):
        return value
    if isinstance(value, Iterable) and not isinstance(value, str):
        return Html("".join(map(esc, value)))
    # Spaces that do not break are ours, between numbers and units.
    text = "\u00a0".join(map(printable, "" if value is None else str(value).split("\u00a0")))
    return Html(html.escape(text, quote=True))


def el(tag: str, *children: object, **attributes: object) -> Html:
    """Build an element; ``class_`` is class, ``data`` is data-label, None is left out."""
    names = {"class_": "class", "data": "data-label"}
    words = "".join(f' {names.get(k, k)}="{esc(v)}"' for k, v in attributes.items() if v is not None)
    return Html(f"<{tag}{words}>{esc(children)}</{tag}>")


def fill(file: str, **values: object) -> Html:
    """Fill one of the package's HTML files; values are escaped unless they are markup."""
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    return Html(Template(text).substitute({name: esc(value) for name, value in values.items()}))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], words: Sequence[int] = (0,)) -> Html:
    """Make a table whose rows become blocks on a phone; columns of `words` are set to the left."""
    sides = [None if i in words else "n" for i in range(len(heads))]
    body = []
    for row in rows:
        cells = [el("td", x, class_=side, data=h) for x, side, h in zip(row, sides, heads, strict=True)]
        body.append(el("tr", cells))
    head = el("tr", [el("th", text, class_=side) for text, side in zip(heads, sides, strict=True)])
    return el("table", el("thead", head), el("tbody", body))


def notices(texts: Sequence[str], most: int = 12) -> Html:
    """Make the section of remarks; empty without any."""
    more = [f"And {len(texts) - most:,} more."] if len(texts) > most else []
    items = [el("li", text) for text in (*texts[:most], *more)]
    return el("section", el("h2", "Remarks"), el("ul", items, class_="notices")) if items else Html()


def short(x: float | None, unit: str = "") -> str:
    """Write a number in three or four digits, or whole, with its unit; a dash if it is unknown."""
    if x is None or not math.isfinite(x):
        return DASH
    text = f"{x:,.0f}" if 1000 <= abs(x) < 1e12 else f"{x:.4g}" if 100 <= abs(x) < 1e12 else f"{x:.3g}"
    return f"{text}\u00a0{unit}" if unit else text


def percent(x: float, decimals: int = 2) -> str:
    """Write a share as a percentage; a dash if it is unknown."""
    return f"{100 * x:.{decimals}f}%" if math.isfinite(x) else DASH


def duration(seconds: float) -> str:
    """Write a duration in its two largest units."""
    whole = round(seconds)
    for unit, length, smaller in (("d", 86400, "h"), ("h", 3600, "min"), ("min", 60, "s")):
        if whole >= length:
            rest = whole % length // {"h": 3600, "min": 60, "s": 1}[smaller]
            return f"{whole // length}\u00a0{unit}" + (f" {rest}\u00a0{smaller}" if rest else "")
    return f"{seconds:.3g}\u00a0s"


def mean(values: FloatArray) -> float:
    """Return the mean of the known values; NaN without any."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def span(values: FloatArray) -> str:
    """Write the range of the known values: one number if they are equal, a dash without any."""
    known = values[np.isfinite(values)]
    return DASH.join(dict.fromkeys(short(x) for x in (known.min(), known.max()))) if len(known) else DASH


def plural(n: int, noun: str) -> str:
    """Write a number and its noun."""
    return f"{n:,} {noun}" + "s" * (n != 1)


def at_rounds(rounds: Sequence[int]) -> str:
    """Say in which rounds something happened: all of a few, else the first and the last."""
    shown = sorted(set(rounds))
    few = ", ".join(f"{n:,}" for n in shown)
    return f"round{'s' * (len(shown) > 1)} " + (few if len(shown) <= 8 else f"{shown[0]:,} to {shown[-1]:,}")
