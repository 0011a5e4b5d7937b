"""Seconds per sample and epoch of the user's own training function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from flwr_mel._text import message
from flwr_mel._validate import Phrase, complain, count, number
from flwr_mel.profiling.fit import Three, design, fit, mad

#: ``train(samples=..., epochs=...)``; what it returns is ignored.
TrainFn = Callable[..., Any]

#: The longest run must take this long, or the clock's and the system's jitter is most of what is measured.
LEAST_SECONDS = 0.02
_PROBE_SHARE = 16
_LEAST_SAMPLES = 8
#: Part of the time that is left that a round begun anew is planned with.
_CAUTION = 0.5


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the training function.

    Parameters
    ----------
    epochs, samples : int
        What it was asked for.
    seconds : float
        What it took.
    joules : float, optional
        What the meter's counter rose by. None without a meter.
    """

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
    spread : tuple of three floats, optional
        MAD of c2, c1, c0 over rounds of measurement that were fitted alone. None with one round.
    error : float
        Median of abs(run - fit) / fit.
    samples, epochs : int
        The largest point measured. Fewer samples than asked for if the budget was short.
    runs : tuple of Run
        Everything that was fitted, in order; the warm-up is not in it.
    elapsed_s : float
        From the first to the last run, for meters that need long to show anything.
    elapsed_j : float, optional
        What the meter's counter rose by in that time.
    """

    c2: float
    c1: float
    c0: float
    spread: Three | None
    error: float
    samples: int
    epochs: int
    runs: tuple[Run, ...]
    elapsed_s: float
    elapsed_j: float | None


#: By this factor the fastest of the longer runs must exceed the fastest of the shorter ones.
_CLEARLY_LONGER = 1.25


def measure_compute(
    train: TrainFn,
    *,
    samples: int,
    epochs: int = 4,
    budget_s: float = 30.0,
    repeats: int = 15,
    counter_j: Callable[[], float | None] | None = None,
    on_run: Callable[[int, int, Run], None] | None = None,
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
        How long it may take in all. No run is begun that would end after it by what runs took so far; the
        number of samples is lowered so that at least two rounds fit in, and again if the device slows down.
    repeats : int
        Rounds over all points, if the budget allows.
    counter_j : callable, optional
        A meter's counter of joules.
    on_run : callable, optional
        Told the number of runs done, the number planned and the run, after each.
    clock : callable
        Returns seconds since some moment in the past.

    Raises
    ------
    ValueError
        The function raises, is too fast to be measured, does not fit into the budget, or takes no longer
        for more epochs and samples.
    """
    samples = count("samples", samples, least=_LEAST_SAMPLES)
    epochs = count("epochs", epochs, least=2)
    repeats = count("repeats", repeats, least=1)
    end = clock() + number("budget_s", budget_s, above=0)
    timer = _Timer(train, counter_j, clock)
    samples = _affordable(timer, samples, epochs, end, repeats)
    runs: list[Run] = []
    rounds: list[list[Run]] = []
    first, first_j = clock(), timer.joules()
    while len(rounds) < repeats:
        plan, fresh = _points(epochs, samples), list[Run]()
        # There and back again, so that a device that slows down as it warms up does not tilt the fit.
        for point in plan if len(rounds) % 2 == 0 else plan[::-1]:
            if clock() + _expected(runs, point) > end:
                break
            fresh.append(timer(*point))
            runs.append(fresh[-1])
            if on_run is not None:
                on_run(len(runs), repeats * len(plan), fresh[-1])
        if len(fresh) == len(plan):
            rounds.append(fresh)
        elif rounds or (fewer := _fewer(runs, plan, end - clock())) < _LEAST_SAMPLES:
            break
        else:  # slower than it was at first: begin again with what fits
            samples = fewer
    if not rounds:
        did = f"{budget_s:g} s, in which {len(runs)} runs were made and no whole round of {len(plan)}"
        raise complain(
            "budget_s", "enough for one round of runs", did, Phrase("Raise it, or lower {}.", "samples")
        )
    elapsed, last_j = clock() - first, timer.joules()
    rose = None if first_j is None or last_j is None else last_j - first_j
    return _fitted(runs, rounds, samples, epochs, elapsed, rose)


class _Timer:
    """Calls the function and times it."""

    def __init__(
        self, train: TrainFn, counter_j: Callable[[], float | None] | None, clock: Callable[[], float]
    ) -> None:
        self._train, self.joules, self.clock = train, counter_j or (lambda: None), clock

    def __call__(self, epochs: int, samples: int) -> Run:
        before = self.joules()
        start = self.clock()
        try:
            self._train(samples=samples, epochs=epochs)
        except (Exception, SystemExit) as error:
            call = f"train(samples={samples}, epochs={epochs})"
            got = Phrase(f"{type(error).__name__} from {call}: {message(error)}")
            raise complain("train", "a function that works", got, "Run it alone until it does.") from error
        seconds = self.clock() - start
        after = self.joules()
        used = None if before is None or after is None else max(after - before, 0.0)
        return Run(epochs, samples, seconds, used)


def _expected(runs: Sequence[Run], point: tuple[int, int]) -> float:
    """Return about how long a run takes: as others of its kind, or by the last one, which knows the load."""
    alike = [run.seconds for run in runs if (run.epochs, run.samples) == point]
    if alike or not runs:
        return max(alike, default=0.0)
    # What a call takes besides is less than the shortest run.
    last, besides = runs[-1], min(run.seconds for run in runs)
    return min(besides, last.seconds) + last.seconds * point[0] * point[1] / (last.epochs * last.samples)


def _fewer(runs: Sequence[Run], plan: Sequence[tuple[int, int]], room_s: float) -> int:
    """Return how many samples fit a whole round into the time that is left."""
    if not runs:
        return 0
    last, most = runs[-1], max(samples for _, samples in plan)
    work = sum(epochs * samples for epochs, samples in plan)
    needed = last.seconds * work / (last.epochs * last.samples)
    return min(int(most * _CAUTION * room_s / max(needed, 1e-9)), most // 2)


def _points(epochs: int, samples: int) -> list[tuple[int, int]]:
    """Return (epochs, samples), cheap ones first: the corners tell the coefficients apart."""
    few, half = max(samples // 4, 1), max(samples // 2, 1)
    middle = max(epochs // 2, 1)
    return [(1, few), (1, samples), (epochs, few), (middle, half), (epochs, samples)]


def _affordable(timer: _Timer, samples: int, epochs: int, end: float, repeats: int) -> int:
    """Warm up, and return how many samples the budget allows, at most `samples`."""
    few = max(samples // _PROBE_SHARE, 1)
    timer(1, few)  # imports, caches, compilation
    once, often = timer(1, few).seconds, timer(epochs, few).seconds
    each = max(often - once, 0.0) / ((epochs - 1) * few)
    fixed = max(once - each * few, 0.0)
    points = _points(epochs, samples)
    work = each * sum(e * d for e, d in points)
    room = (end - timer.clock()) / min(repeats, 2) - fixed * len(points)
    if work <= room:
        return samples
    fitting = int(samples * room / work) if work > 0 else 0
    if fitting < _LEAST_SAMPLES:
        took = f"a function that takes {once:.3g} s for one epoch on {few} samples"
        rule = f"long enough for two rounds with at least {_LEAST_SAMPLES} samples"
        raise complain("budget_s", rule, took, Phrase("Raise it, or lower {}.", "samples"))
    return fitting


def _fitted(
    runs: Sequence[Run],
    rounds: Sequence[Sequence[Run]],
    samples: int,
    epochs: int,
    elapsed_s: float,
    elapsed_j: float | None,
) -> ComputeCosts:
    points = [(run.epochs, run.samples) for run in runs]
    seconds = np.array([run.seconds for run in runs])
    largest = [run.seconds for run in runs if (run.epochs, run.samples) == (epochs, samples)]
    top = float(np.median(largest))
    if top < LEAST_SECONDS:
        enough = int(np.ceil(samples * 5 * LEAST_SECONDS / max(top, 1e-6)))
        got = f"{top * 1e3:.3g} ms for {epochs} epochs on {samples} samples"
        rule = f"slow enough to be timed, {LEAST_SECONDS:g} s or more"
        raise complain(
            "train", rule, got, Phrase(f"Raise {{}}, e.g. to {enough}, if it does train.", "samples")
        )
    c2, c1, c0 = fit(points, seconds.tolist())
    predicted = design(points) @ np.array([c2, c1, c0])
    error = float(np.median(np.abs(seconds - predicted) / np.maximum(predicted, 1e-12)))
    _check_growth(runs, (1, samples), (epochs, samples), "epochs")
    _check_growth(runs, (epochs, max(samples // 4, 1)), (epochs, samples), "samples")
    spread = None
    if len(rounds) > 1:
        alone = [fit([(r.epochs, r.samples) for r in part], [r.seconds for r in part]) for part in rounds]
        two, one, zero = (mad(column) for column in zip(*alone, strict=True))
        spread = (two, one, zero)
    return ComputeCosts(c2, c1, c0, spread, error, samples, epochs, tuple(runs), elapsed_s, elapsed_j)


def _check_growth(runs: Sequence[Run], less: tuple[int, int], more: tuple[int, int], what: str) -> None:
    """Refuse a function whose time does not clearly follow one of its arguments."""
    low, high = ([r.seconds for r in runs if (r.epochs, r.samples) == point] for point in (less, more))
    low_s, high_s = float(np.median(low)), float(np.median(high))
    if high_s - low_s > max(2 * (mad(low) + mad(high)), 0.01 * high_s):
        return
    # Other work on the device only ever adds time: the fastest runs tell where the medians are too noisy.
    if min(high) > _CLEARLY_LONGER * min(low):
        return
    shown = [f"{s:.3g} s for {d} samples in {e} epochs" for s, (e, d) in ((low_s, less), (high_s, more))]
    remedy = Phrase(f"Does it use {what}? If it does, raise {{}}.", "samples")
    raise complain("train", f"a function that takes longer for more {what}", " and ".join(shown), remedy)
