"""Metrics of replies. Strategies combine them by name: a client with other metrics must not end a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from flwr_mel._text import printable
from flwr_mel.cycle.updates import votes

#: Of one reply: the metrics of each record by its name. A record of arrays is None.
Records = Mapping[str, Mapping[str, Any] | None]
#: Kinds of values by record and metric; the empty metric stands for the record itself.
Form = Mapping[tuple[str, str], str]


def consistent(
    replies: Mapping[str, Records], weights: Mapping[str, float], before: Form | None = None
) -> tuple[dict[str, Records], Form | None, dict[str, str]]:
    """Return records that strategies can combine, their form, and by node the metrics that were changed.

    The form is that of most replies, or the one before. A metric that a reply lacks becomes the weighted mean
    of the others, or NaN if there are none; a metric that only it has is dropped. Where no two clients report
    the same metrics, all keep theirs.

    Parameters
    ----------
    replies : mapping of node id to records
        Received.
    weights : mapping of node id to float
        Of the mean.
    before : mapping of record and metric to kind, optional
        What this returned in the last round.
    """
    forms = {node: _form(records) for node, records in replies.items()}
    found = sorted(votes(forms.values()), key=lambda pair: (-pair[1], -len(pair[0])))
    if not found:
        return {}, before, {}
    form: Form = found[0][0]
    most = found[0][1]
    if 2 * most <= len(forms) or (before is not None and most < 2):
        if before is not None and (len(forms) < 3 or before in list(forms.values())):
            # A lone reply contradicts no other: it may have more than before.
            form = before if len(forms) > 1 else {**form, **before}
        elif len(forms) > 2:
            return dict(replies), before, {}
    good = [node for node, own in forms.items() if own == form]
    new, changed = dict(replies), {}
    for node, own in forms.items():
        if own != form:
            others = [(replies[x], weights[x]) for x in good]
            new[node] = _completed(replies[node], own, form, others)
            odd = sorted({key or record for (record, key), _ in own.items() ^ form.items()})
            changed[node] = printable(", ".join(odd), 200)
    return new, before if before is not None and len(forms) == 1 else form, changed


def _completed(mine: Records, own: Form, form: Form, others: Sequence[tuple[Records, float]]) -> Records:
    """Return a reply's records in a form."""
    records: dict[str, dict[str, Any] | None] = {}
    for record in dict.fromkeys(record for record, _ in form):
        if form[record, ""] == _ARRAYS:
            records[record] = None
            continue
        records[record] = metrics = {}
        for key, kind in ((key, kind) for (name, key), kind in form.items() if name == record and key):
            if own.get((record, key)) == kind:
                metrics[key] = (mine[record] or {})[key]
            else:
                metrics[key] = _typical(kind, [((x[record] or {})[key], w) for x, w in others])
    return records


def countable(examples: Any) -> bool:
    """Whether a number of examples can be a weight."""
    return isinstance(examples, Real) and _kind(examples) != _HUGE and 0 <= float(examples) < math.inf


_ARRAYS, _METRICS, _NUMBER, _HUGE = "arrays", "metrics", "a number", "a huge number"


def _form(records: Records) -> dict[tuple[str, str], str]:
    """Return the kinds of a reply's values."""
    form = {}
    for record, metrics in records.items():
        form[record, ""] = _ARRAYS if metrics is None else _METRICS
        form |= {(record, key): _kind(value) for key, value in (metrics or {}).items() if key}
    return form


def _kind(value: object) -> str:
    """Return the kind of a metric. Numbers beyond 64 bits do not fit into an average."""
    if isinstance(value, list):
        return f"{len(value)} numbers" if all(_kind(x) == _NUMBER for x in value) else "a list"
    if isinstance(value, int | float):
        return _NUMBER if isinstance(value, float) or abs(value) < 2**64 else _HUGE
    return type(value).__name__


def _typical(kind: str, given: Sequence[tuple[Any, float]]) -> Any:
    """Return the weighted mean of values, or the first one of another kind."""
    total = sum(weight for _, weight in given)
    if kind == _NUMBER:
        return sum(float(x) * w for x, w in given) / total if total > 0 else math.nan
    if kind.endswith(" numbers"):
        length = int(kind.split(maxsplit=1)[0])
        return [_typical(_NUMBER, [(x[i], w) for x, w in given]) for i in range(length)]
    return given[0][0] if given else ""
