"""The server's step: Adam (Kingma and Ba, 2015) whose length is found by the slope ratio.

The mean change of the clients' models, u, is a step down their loss. With D the server's last step,

    r = <u_t, D> / <u_(t-1), D>

compares the slope at the end of D with the slope at its start. On a parabola, r = 1 - length / best length.
So r near 1 asks for longer steps, and r far below 0 for shorter ones. THEORY.md has assumptions and limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from flwr_mel.cycle.updates import Array, Arrays, not_finite

#: Weight and model of each client, as they were averaged.
Clients = Mapping[str, tuple[float, Arrays]]

B1, B2, EPS = 0.8, 0.99, 0.03
#: Best length of a network with three matrices, relative to one over the (geometric) mean of their inputs.
_MATRICES = 3
#: The length changes by at most this factor in a round.
_GROW = 2.0
#: Between these, a step is about right; above the first it was too short, below the second far too long.
_SHORT, _LONG = 0.3, -0.5
#: A first step that ends uphill by this many standard errors of r is at least so many times too long.
_SURE, _BACK = 2.0, 0.25
#: How fast the length follows r while it is about right: slowly, and not at all on average if r is noise.
_DRIFT = 0.1
#: A standard error of r that halves what r does to the logarithm of the length.
_UNSURE = 0.25
#: The length stays below this multiple of the one at which r first was below the second number: clients with
#: Adam and batch normalisation return changes that are no slopes, and r stays high whatever the length.
_MOST, _NEAR = 4.0, 0.6
#: A mean change this many times larger than usual is no slope: the model has left its valley.
_EXPLODED = 3.0
#: Rounds in which a length may still be far off.
_SEARCH = 3
#: Clients of both rounds are compared if they have this share of the weight.
_BOTH = 0.5


@dataclass(frozen=True)
class Slope:
    """What a round passes on to the next.

    Parameters
    ----------
    stepped : tuple of str
        Arrays that are stepped: those of floats with two or more dimensions in the model as first sent.
    turn : int
        Steps in m and v.
    length, longest : float
        c, and what it may not exceed.
    m, v : mapping of name to array
        Adam's averages of u and u^2.
    mean : mapping of name to array
        u of the last round.
    step : mapping of name to array
        D, the last step; empty after an undo.
    ratio : float, optional
        The last r.
    slopes : mapping of client to float
        <U_k, D> of the last round's clients, at the start of D.
    """

    stepped: tuple[str, ...] = ()
    turn: int = 0
    length: float = 0.0
    longest: float = math.inf
    m: Arrays = field(default_factory=dict)
    v: Arrays = field(default_factory=dict)
    mean: Arrays = field(default_factory=dict)
    step: Arrays = field(default_factory=dict)
    ratio: float | None = None
    slopes: Mapping[str, float] = field(default_factory=dict)


class Facts(NamedTuple):
    """What a round's step was.

    Parameters
    ----------
    length : float
        c.
    ratio : float, optional
        r; None: there was no last step.
    error : float
        Its standard error; 0: not known.
    undone : bool
        Whether the last step was taken back, in part or as a whole.
    """

    length: float
    ratio: float | None = None
    error: float = 0.0
    undone: bool = False

    def describe(self) -> str:
        """Return the words for the log."""
        ratio = "" if self.ratio is None else f", slope ratio {self.ratio:.2f}"
        return f"step {self.length:.2g}{ratio}{', last step undone' if self.undone else ''}"


def step(
    state: Slope, model: Arrays, average: Arrays, steps: float = 1.0, clients: Clients | None = None
) -> tuple[Slope, dict[str, Array], Facts]:
    """Return the new state, the new model and the facts.

    Parameters
    ----------
    state : Slope
        ``Slope()`` at first.
    model : mapping of name to array
        As sent to the clients, x.
    average : mapping of name to array
        What the averaging strategy returned.
    steps : float
        How many local steps (samples) the average stands for: u = (average - x) / steps.
    clients : mapping, optional
        Weight and model of each client, as they were averaged. Not used if the average is not their mean.
    """
    names = state.stepped or _stepped(model, average)
    x: Arrays = {
        n: model[n].astype(np.float32 if model[n].dtype.itemsize <= 4 else np.float64) for n in names
    }
    u: Arrays = {n: ((average[n] - x[n]) / steps).astype(x[n].dtype) for n in names}
    size = math.sqrt(_dot(u, u))
    if not math.isfinite(size) or not_finite(average, model):
        return undo(state, model)
    if not size:  # no weight was trained
        return replace(state, step={}, slopes={}), dict(average), Facts(state.length)
    if not state.turn:
        state = replace(state, stepped=names, length=_start(x, u))
    elif size > (limit := _EXPLODED * _usual(state)) > 0:
        if state.step and state.turn >= _SEARCH:
            return undo(state, model)
        u = {n: a * (limit / size) for n, a in u.items()}
    sent, raw = x, u
    if state.step:
        state, x, u, facts = _corrected(state, x, u, _slopes(clients, x, u, state.step, steps))
    else:
        facts = Facts(state.length)
    t = state.turn + 2  # as Flower's FedAdam counts
    m = {n: B1 * state.m.get(n, 0.0) + (1 - B1) * a for n, a in u.items()}
    v = {n: B2 * state.v.get(n, 0.0) + (1 - B2) * a * a for n, a in u.items()}
    # Adam's eps without a unit: the size of the clients' steps does not matter.
    eps = EPS * math.sqrt(sum(float(a.sum()) for a in v.values()) / sum(a.size for a in v.values()))
    rate = state.length / (1 - B1**t) * math.sqrt(1 - B2**t)
    d = {n: rate * m[n] / (np.sqrt(v[n]) + eps) for n in names}
    here = {} if facts.undone else _slopes(clients, sent, raw, d, steps)
    slopes = {k: slope for k, (_, slope) in here.items()}
    state = replace(state, turn=state.turn + 1, m=m, v=v, mean=u, step=d, slopes=slopes)
    new = {n: (x[n] + d[n]).astype(model[n].dtype) for n in names}
    return state, {**average, **new}, facts


def undo(state: Slope, model: Arrays) -> tuple[Slope, dict[str, Array], Facts]:
    """Take the last step back and halve the length: the updates are no slopes.

    Parameters
    ----------
    state : Slope
        Of the last round.
    model : mapping of name to array
        As sent to the clients.
    """
    back = {n: (model[n] - d).astype(model[n].dtype) for n, d in state.step.items()}
    state = replace(state, length=state.length / 2, step={}, slopes={})
    return state, {**model, **back}, Facts(state.length, undone=True)


def _corrected(
    state: Slope, x: Arrays, u: Arrays, seen: Mapping[str, tuple[float, float]]
) -> tuple[Slope, Arrays, Arrays, Facts]:
    """Return the state with its new length, and x and u: before the last step if that is taken back."""
    everywhere = _ratio(_dot(u, state.step), _dot(state.mean, state.step))
    r, error = _compared(state, seen, everywhere)
    best = max(1 / (1 - r), 0.1) if r < 1 else math.inf
    low = r if state.ratio is None else min(r, state.ratio)
    uphill, first = max(r, everywhere), state.ratio is None
    # A first step that certainly ends uphill may be so long that r has no relation to its length any more.
    bound = -_SURE * error if first and error else _LONG
    undone = state.turn < _SEARCH and uphill < bound
    if undone:
        factor = min(best, _BACK) if first else best
    elif first and r > _SHORT:  # calibrate at once
        factor = best
    elif r < -1:
        factor = math.sqrt(best)
    elif low > _SHORT:  # twice too short
        factor = 1 / math.sqrt(1 - low) if low < 1 else math.inf
    else:
        factor = math.exp(_DRIFT * min(r, 1.0))
    factor = min(factor, _GROW)
    if not undone:  # as far as r is certain
        factor **= 1 / (1 + (error / _UNSURE) ** 2)
    longest = min(state.longest, _MOST * state.length * min(factor, 1)) if r < _NEAR else state.longest
    facts = Facts(min(state.length * factor, longest), r, error, undone)
    if undone:  # and taken again, from where it began
        x, u = {n: a - state.step[n] for n, a in x.items()}, state.mean
    return replace(state, length=facts.length, longest=longest, ratio=None if undone else r), x, u, facts


def _compared(
    state: Slope, seen: Mapping[str, tuple[float, float]], everywhere: float
) -> tuple[float, float]:
    """Return r and its standard error, from the clients of both rounds if they are enough."""
    both = [k for k in seen if k in state.slopes]
    total, common = (sum(seen[k][0] for k in some) for some in (seen, both))
    if len(both) >= 2 and common >= _BOTH * total:
        p = np.array([seen[k][0] for k in both]) / common
        before, after = np.array([(state.slopes[k], seen[k][1]) for k in both]).T
        r = _ratio(p @ after, p @ before)
        return r, _error(p, after - r * before) / max(abs(float(p @ before)), 1e-300)
    if len(seen) < 2:
        return everywhere, 0.0
    p = np.array([w for w, _ in seen.values()]) / total
    after = np.array([slope for _, slope in seen.values()])
    # Both slopes are of clients drawn anew.
    error = math.sqrt(2) * _error(p, after - p @ after)
    return everywhere, error / max(abs(_dot(state.mean, state.step)), 1e-300)


def _ratio(after: float, before: float) -> float:
    """Return r; where the step did not begin downhill, only the sign of its end counts."""
    return float(after / before) if before > 0 else -1.0 if after < 0 else 0.0


def _error(p: Array, rest: Array) -> float:
    """Return the standard error of a mean with weights p."""
    return math.sqrt(float((p * p) @ (rest * rest)) * len(p) / (len(p) - 1))


def _slopes(
    clients: Clients | None, x: Arrays, u: Arrays, d: Arrays, steps: float
) -> dict[str, tuple[float, float]]:
    """Return weight and <U_k, d> of each client; nothing if the average is not the clients' mean.

    A median or a private sum does not depend on one client as a mean does. Nor may the length.
    """
    found = {}
    for k, (weight, arrays) in (clients or {}).items():
        if any(n not in arrays or arrays[n].shape != a.shape for n, a in x.items()):
            return {}
        found[k] = weight, sum(float(np.vdot(arrays[n] - a, d[n])) for n, a in x.items()) / steps
    total = sum(weight for weight, _ in found.values())
    mean = sum(weight * slope for weight, slope in found.values())
    size = sum(weight * abs(slope) for weight, slope in found.values())
    return found if abs(mean - total * _dot(u, d)) <= 1e-3 * size else {}


def _usual(state: Slope) -> float:
    """Return the usual size of u: the root of Adam's average of its square."""
    return math.sqrt(sum(float(a.sum()) for a in state.v.values()) / (1 - B2**state.turn))


def _dot(a: Arrays, b: Arrays) -> float:
    """Return the inner product."""
    return sum(float(np.vdot(a[n], b[n])) for n in a)


def _stepped(model: Arrays, average: Arrays) -> tuple[str, ...]:
    """Return the arrays that are weights: BatchNorm's statistics, counters and masks are none."""
    return tuple(
        n
        for n, x in model.items()
        if x.dtype.kind == "f" and x.ndim >= 2 and n in average and average[n].shape == x.shape
        if np.isfinite(x).all()
    )


def _start(x: Arrays, u: Arrays) -> float:
    """Return the first length: one over the inputs of a matrix, shorter for deep networks."""
    inputs = [math.log(max(math.prod(a.shape[1:]), 1)) for n, a in x.items() if u[n].any()]
    return math.exp(-sum(inputs) / len(inputs)) * math.sqrt(_MATRICES / len(inputs))
