"""Weights and metrics of replies: weights are the server's, metrics are put to a vote."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from flwr_mel import wire
from flwr_mel._validate import MAX_COUNT, number
from flwr_mel.flower.reasons import RefusedUpdate, reason

Name = TypeVar("Name", bound=Hashable)
Form = frozenset[tuple[Any, str]]

_MOST_METRICS, _LONGEST_METRIC = 10_000, 100_000
#: How many sets of metrics are tried before only those that everybody reports count.
_MOST_TRIES = 32
# Within the square root of what a float holds, so that weighted sums stay finite.
_LARGEST = 1e150


def check_weight(claimed: object, allocated: int, report: Mapping[str, object] | None = None) -> int:
    """Return the samples that count: those allocated, unless the mod saw fewer being used.

    What the app itself says may be batches, or anything, and only has to be a number.

    Parameters
    ----------
    claimed : object
        What the app says it trained on; None when it says nothing.
    allocated : int
        What the server allocated to it.
    report : mapping, optional
        What the mod reports.
    """
    if claimed is not None:
        positive(claimed)
    report = report or {}
    used = report.get(wire.SAMPLES_USED) if report.get(wire.SAMPLES_FROM) == wire.TASK else None
    return allocated if used is None else min(math.ceil(positive(used)), allocated)


def own_weight(claimed: object, most: int | None) -> int:
    """Return the samples that count where nothing was allocated: what the app says, as without us.

    Parameters
    ----------
    claimed : object
        What the app says it trained on; None when it says nothing.
    most : int, optional
        Nobody counts for more.
    """
    weight = 1 if claimed is None else max(round(positive(claimed)), 1)
    return weight if most is None else min(weight, most)


def positive(claimed: object) -> float:
    """Return a weight that can be summed, or refuse it.

    Parameters
    ----------
    claimed : object
        What the learner says it worked on.
    """
    try:
        weight = number("weight", claimed)
    except ValueError as error:
        raise RefusedUpdate(f"claims no usable number of samples: {error}") from None
    if weight <= 0:
        raise RefusedUpdate(f"trained on no samples (claims {weight:g})")
    return min(weight, float(MAX_COUNT))


def check_metrics(metrics: Mapping[Any, object]) -> None:
    """Refuse a reply whose metrics are too many to be handled.

    Parameters
    ----------
    metrics : mapping
        What one learner reported.
    """
    if len(metrics) > _MOST_METRICS:
        raise RefusedUpdate(f"reports {len(metrics):,} metrics, more than {_MOST_METRICS:,}")
    longest = max((len(x) for x in metrics.values() if isinstance(x, list)), default=0)
    if longest > _LONGEST_METRIC:
        raise RefusedUpdate(f"reports a metric of {longest:,} numbers, more than {_LONGEST_METRIC:,}")


def odd_metrics(
    metrics: Mapping[str, Mapping[Name, object]], needed: frozenset[str] = frozenset()
) -> tuple[set[Name], dict[str, str]]:
    """Find the learners whose metrics cannot be averaged with the others'.

    Flower refuses a whole round when one reply has other metrics than the rest. The largest set of names and
    kinds that more than half of the learners report counts, and a learner that lacks some of it is odd.
    Where no set has a majority, only what everybody reports counts and nobody is odd. So nobody can have
    another refused by reporting more or less.

    Parameters
    ----------
    metrics : mapping of node to mapping
        What each learner reported.
    needed : frozenset of str
        Metrics that the wrapped strategy cannot do without: whoever has no such number is odd.

    Returns
    -------
    keys : set of str
        The common names; drop all others.
    odd : dict of node to str
        The reason, per odd learner.
    """
    odd = {}
    forms = {}
    for node, said in metrics.items():
        forms[node] = _form(said)
        if missing := needed - {_last(key) for key, what in forms[node] if what == "number"}:
            odd[node] = reason(f"its metrics lack {', '.join(sorted(missing))}, which the strategy needs")
            del forms[node]
    common = _common(list(forms.values()))
    for node, form in forms.items():
        if lacking := sorted(_last(key) for key, _ in common - form):
            odd[node] = reason(f"its metrics do not fit the others': {', '.join(lacking[:3])}")
    return {key for key, _ in common}, odd


def fill_in(
    metrics: Mapping[str, Mapping[Name, Any]], weights: Mapping[str, float]
) -> dict[str, dict[Name, Any]]:
    """Return everybody's metrics with the others' average in the place of what no average can take.

    So a learner whose loss is NaN loses the metric, not its update, and the average is that of the others.
    Where no more than half of the learners report a usable number there is none to stand in: it stays NaN.

    Parameters
    ----------
    metrics : mapping of node to mapping
        What each learner reported, the same names and kinds from everybody.
    weights : mapping of node to number
        What it counts for.
    """
    filled = {node: dict(said) for node, said in metrics.items()}
    for key, example in next(iter(metrics.values()), {}).items():
        said = {node: mine[key] for node, mine in metrics.items()}
        if isinstance(example, list):
            for i in sorted({i for values in said.values() for i, x in enumerate(values) if not _usable(x)}):
                for node, value in _stand_ins({n: values[i] for n, values in said.items()}, weights).items():
                    if filled[node][key] is said[node]:
                        filled[node][key] = list(said[node])
                    filled[node][key][i] = value
        elif isinstance(example, int | float):
            for node, value in _stand_ins(said, weights).items():
                filled[node][key] = value
    return filled


def mean_of(metrics: Sequence[Mapping[Name, Any]], weights: Sequence[float]) -> dict[Name, Any]:
    """Return the weighted mean of metrics: one more reply with it leaves the average as it is.

    Parameters
    ----------
    metrics : sequence of mappings
        The same names and kinds from everybody, at least one.
    weights : sequence of numbers
        What each counts for.
    """
    total, found = sum(weights), {}
    for key, example in metrics[0].items():
        pairs = [(mine[key], w) for mine, w in zip(metrics, weights, strict=True)]
        if isinstance(example, list):
            found[key] = [sum(x[i] * w for x, w in pairs) / total for i in range(len(example))]
        else:
            found[key] = sum(x * w for x, w in pairs) / total
    return found


def _stand_ins(values: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Return what stands in, for those who need it."""
    usable = {node: value for node, value in values.items() if _usable(value)}
    if len(usable) == len(values):
        return {}
    mean = float("nan")
    if 2 * len(usable) > len(values):
        mean = sum(weights[n] * x for n, x in usable.items()) / sum(weights[n] for n in usable)
    return {node: mean for node in values if node not in usable}


def _usable(value: float) -> bool:
    try:
        return abs(float(value)) < _LARGEST
    except OverflowError:
        return False


def _last(key: Any) -> str:
    """Return a metric's own name, without its record's."""
    return str(key[-1]) if isinstance(key, tuple) else str(key)


def _form(said: Mapping[Name, object]) -> Form:
    """Return the names and kinds of what can be averaged."""
    kinds = ((key, _kind(value)) for key, value in said.items())
    return frozenset((key, kind) for key, kind in kinds if kind)


def _kind(value: object) -> str:
    """Return what a metric is; "" if no average can take it."""
    if isinstance(value, list):
        return f"{len(value)} numbers" if all(isinstance(x, int | float) for x in value) else ""
    return "number" if isinstance(value, int | float) else type(value).__name__


def _common(forms: Sequence[Form]) -> Form:
    """Return the largest of the sets that more than half have, or else what all have."""
    counts = Counter(key for form in forms for key in form)
    usual = {key for key, n in counts.items() if 2 * n > len(forms)}
    tries = sorted({f for f in forms if f <= usual}, key=lambda f: (-len(f), sorted(f)))
    for tried in tries[:_MOST_TRIES]:
        if 2 * sum(tried <= form for form in forms) > len(forms):
            return tried
    return frozenset(key for key, n in counts.items() if n == len(forms))
