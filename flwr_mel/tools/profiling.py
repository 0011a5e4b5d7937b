"""Seconds per sample and epoch of the user's own training function: timing it, fitting the cost model."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from flwr_mel._text import message
from flwr_mel._validate import FloatArray, Phrase, complain, count, number

#: The longest run must take this long, or the clock's and the system's jitter is most of what is measured.
LEAST_SECONDS = 0.02
_LEAST_SAMPLES = 8
#: By this factor the fastest of the longer runs must exceed the fastest of the shorter ones.
_CLEARLY_LONGER = 1.25

Three = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the training function: what it was asked for, and what it took."""

    epochs: int
    samples: int
    seconds: float
    joules: float | None = None


@dataclass(frozen=True, slots=True)
class ComputeCosts:
    """Measured seconds: t = c2 * epochs * samples + c1 * samples + c0.

    Parameters
    ----------
    c2, c1, c0 : float
        Seconds per sample and epoch, per sample, and per call.
    error : float
        Median of abs(run - fit) / fit.
    samples, epochs : int
        The largest point measured. Fewer samples than asked for if the budget was short.
    runs : tuple of Run
        Everything that was fitted, in order; the warm-up is not in it.
    """

    c2: float
    c1: float
    c0: float
    error: float
    samples: int
    epochs: int
    runs: tuple[Run, ...]


def measure_compute(
    train: Callable[..., Any],
    *,
    samples: int,
    epochs: int = 4,
    budget_s: float = 30.0,
    repeats: int = 15,
    counter_j: Callable[[], float | None] = lambda: None,
    on_run: Callable[[int, int], None] = lambda *_: None,
    clock: Callable[[], float] = perf_counter,
) -> ComputeCosts:
    """Time a training function at several points and fit the cost model.

    Parameters
    ----------
    train : callable
        Called as ``train(samples=..., epochs=...)``; returns when the training is done.
    samples, epochs : int
        The largest point. Nearer to real tasks is better.
    budget_s : float
        How long it may take in all. The samples are lowered so that three rounds over all points fit in. The
        first round is always finished, however slow the device becomes; after it, no run begins that would
        end too late.
    repeats : int
        Rounds over all points, if the budget allows.
    counter_j : callable
        A meter's counter of joules.
    on_run : callable
        Called after each run with the number of runs done and the number planned.
    clock : callable
        Returns seconds since some moment in the past.

    Raises
    ------
    InputError
        The function raises, is too fast to be measured, does not fit into the budget, or takes no longer for
        more epochs and samples.
    """
    samples = count("samples", samples, least=_LEAST_SAMPLES)
    epochs = count("epochs", epochs, least=2)
    repeats = count("repeats", repeats, least=1)
    end = clock() + number("budget_s", budget_s, above=0)

    def timed(tau: int, d: int) -> Run:
        before, start = counter_j(), clock()
        _call(train, tau, d)
        seconds, after = clock() - start, counter_j()
        used = None if before is None or after is None else max(after - before, 0.0)
        return Run(tau, d, seconds, used)

    samples = _affordable(timed, samples, epochs, lambda: end - clock(), min(repeats, 3))
    points = _points(epochs, samples)
    runs = list[Run]()
    while len(runs) < repeats * len(points):
        # There and back again, so that a device that slows down as it warms up does not tilt the fit.
        turn, place = divmod(len(runs), len(points))
        point = points[place if turn % 2 == 0 else -1 - place]
        before = [run.seconds for run in runs if (run.epochs, run.samples) == point]
        if before and clock() + max(before) > end:
            break
        runs.append(timed(*point))
        on_run(len(runs), repeats * len(points))
    return _fitted(runs, samples, epochs)


def _call(train: Callable[..., Any], epochs: int, samples: int) -> None:
    try:
        train(samples=samples, epochs=epochs)
    except (Exception, SystemExit) as error:
        call = f"train(samples={samples}, epochs={epochs})"
        got = Phrase(f"{type(error).__name__} from {call}: {message(error)}")
        raise complain("train", "a function that works", got, "Run it alone until it does.") from error


def _points(epochs: int, samples: int) -> list[tuple[int, int]]:
    """Return (epochs, samples), cheap ones first: the corners tell the coefficients apart."""
    few, half, middle = max(samples // 4, 1), max(samples // 2, 1), max(epochs // 2, 1)
    return [(1, few), (1, samples), (epochs, few), (middle, half), (epochs, samples)]


def _affordable(
    timed: Callable[[int, int], Run], samples: int, epochs: int, left: Callable[[], float], rounds: int
) -> int:
    """Warm up, and return how many samples the budget allows, at most `samples`."""
    few = max(samples // 16, 1)
    timed(1, few)  # imports, caches, compilation
    once, often = timed(1, few).seconds, timed(epochs, few).seconds
    each = max(often - once, 0.0) / ((epochs - 1) * few)
    points = _points(epochs, samples)
    work = each * sum(tau * d for tau, d in points)
    room = left() / rounds - max(once - each * few, 0.0) * len(points)
    fitting = samples if work <= room else int(samples * room / work) if work else 0
    if fitting < _LEAST_SAMPLES:
        took = Phrase(f"a function that takes {once:.3g} s for one epoch on {few} samples")
        rule = f"long enough for {rounds} rounds with at least {_LEAST_SAMPLES} samples"
        raise complain("budget_s", rule, took, Phrase("Raise it, or lower {}.", "samples"))
    return fitting


def _fitted(runs: Sequence[Run], samples: int, epochs: int) -> ComputeCosts:
    points, seconds = [(r.epochs, r.samples) for r in runs], np.array([r.seconds for r in runs])
    top = float(np.median([r.seconds for r in runs if (r.epochs, r.samples) == (epochs, samples)]))
    if top < LEAST_SECONDS:
        enough = int(np.ceil(samples * 5 * LEAST_SECONDS / max(top, 1e-6)))
        got = f"{top * 1e3:.3g} ms for {epochs} epochs on {samples} samples"
        remedy = Phrase(f"Raise {{}}, e.g. to {enough}, if it does train.", "samples")
        raise complain("train", f"slow enough to be timed, {LEAST_SECONDS:g} s or more", got, remedy)
    c2, c1, c0 = fit(points, seconds.tolist())
    predicted = _design(points) @ np.array([c2, c1, c0])
    error = float(np.median(np.abs(seconds - predicted) / np.maximum(predicted, 1e-12)))
    _check_growth(runs, (1, samples), (epochs, samples), "epochs")
    _check_growth(runs, (epochs, max(samples // 4, 1)), (epochs, samples), "samples")
    return ComputeCosts(c2, c1, c0, error, samples, epochs, tuple(runs))


def _check_growth(runs: Sequence[Run], less: tuple[int, int], more: tuple[int, int], what: str) -> None:
    """Refuse a function whose time does not clearly follow one of its arguments."""
    low, high = ([r.seconds for r in runs if (r.epochs, r.samples) == point] for point in (less, more))
    low_s, high_s = float(np.median(low)), float(np.median(high))
    # Other work on the device only ever adds time: the fastest runs tell where the medians are too noisy.
    clear = high_s - low_s > max(2 * (_mad(low) + _mad(high)), 0.01 * high_s)
    if not clear and min(high) <= _CLEARLY_LONGER * min(low):
        shown = [f"{s:.3g} s for {d} samples in {e} epochs" for s, (e, d) in ((low_s, less), (high_s, more))]
        remedy = Phrase(f"Does it use {what}? If it does, raise {{}}.", "samples")
        raise complain("train", f"a function that takes longer for more {what}", " and ".join(shown), remedy)


def _mad(values: Sequence[float]) -> float:
    return float(np.median(np.abs(np.asarray(values) - np.median(values))))


def _design(points: Sequence[tuple[int, int]]) -> FloatArray:
    return np.array([(float(epochs) * samples, samples, 1.0) for epochs, samples in points])


def fit(points: Sequence[tuple[int, int]], costs: Sequence[float]) -> Three:
    """Find the non-negative x2, x1, x0 with the least sum of relative absolute errors.

    Least absolute errors are the regression's median: a run that something else slowed down does not pull
    them. Errors count relative to the median of their own point, so that short runs, which alone tell x0 and
    x1, count beside long ones, but not below a twentieth of the largest: what disturbs a run does not shrink
    with it. With non-negative unknowns it is a small linear program.

    Parameters
    ----------
    points : sequence of (epochs, samples)
        One per run; the same point may come again.
    costs : sequence of float
        Seconds or joules of the runs.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import

    given = np.asarray(costs, dtype=np.float64)
    typical = np.array(
        [np.median([c for c, other in zip(costs, points, strict=True) if other == p]) for p in points]
    )
    weight = 1.0 / (typical + max(float(typical.max()), 1e-300) / 20)
    rows = _design(points)
    scale = rows.max(axis=0)
    left, right, slack = rows / scale * weight[:, None], given * weight, np.eye(len(given))
    answer = linprog(
        np.concatenate([np.zeros(3), np.ones(len(given))]),
        A_ub=np.block([[left, -slack], [-left, -slack]]),
        b_ub=np.concatenate([right, -right]),
    )
    if answer.x is None:
        raise RuntimeError(f"the fit of {len(given)} runs failed: {answer.message}")
    x2, x1, x0 = (max(float(x), 0.0) for x in answer.x[:3] / scale)
    return x2, x1, x0


# Finding the user's function


def load_function(where: str) -> Callable[..., Any]:
    """Import a training function, ``module:function``, with the caller's rights.

    Raises
    ------
    InputError
        Says what is wrong: the form, the import, the name, or the arguments.
    """
    source, _, name = where.partition(":")
    if not all(part.isidentifier() for part in (*source.split("."), name)) or source.endswith(".py"):
        remedy = "For train in app.py, write app:train, and run the command in the directory of app.py."
        raise complain("train", "module:function", where, remedy)
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(source)
    except (Exception, SystemExit) as error:
        got = Phrase(f"{type(error).__name__} from {source}: {message(error)}")
        raise complain("train", "in a module that can be imported", got) from error
    function = getattr(module, name, None)
    if not callable(function):
        own = [n for n, x in inspect.getmembers(module, inspect.isfunction) if x.__module__ == source]
        listed = f"It has: {', '.join(own[:10])}." if own else "It has no functions."
        raise complain("train", f"a function of {source}", name, listed)
    try:
        inspect.signature(function).bind(samples=1, epochs=1)
    except TypeError as error:
        rule, wrong = "a function that can be called as train(samples=100, epochs=1)", str(error).capitalize()
        raise complain("train", rule, f"train{inspect.signature(function)}", f"{wrong}.") from None
    found: Callable[..., Any] = function
    return found
