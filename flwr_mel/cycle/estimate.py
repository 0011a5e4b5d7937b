"""The costs of a client's tasks, learned from its replies.

The time of a task is x'm with x = (samples drawn in all epochs, samples, 1) and m = (c2, c1, c0). A Kalman
filter follows m: `observe` predicts (the speed drifts), compares (the innovation, relative to the expected
time), and corrects. The prior is what the client declares, or its first task. Tasks with the same work only
correct the sum of the three parts. They are separated once the work has clearly varied.

Two additions make it robust. A single surprise is clipped, and a second one to the same side is taken for a
change of speed (Huber's clipping and a fading factor). A plan that promises a share of replies in time uses a
quantile, whose width follows the share of late replies (adaptive conformal inference, Gibbs and Candes 2021).
docs/THEORY.md has the model and the reason for each constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from flwr_mel._validate import complain, count, number
from flwr_mel.cycle.options import Estimation

#: c2, c1, c0 in seconds and g2, g1, g0 in joules, each per sample and epoch, per sample, per task.
Costs = tuple[float, float, float, float, float, float]
Vector = tuple[float, float, float]
#: A symmetric matrix: the upper triangle by rows.
Spread = tuple[float, float, float, float, float, float]

# By how much a client's speed changes from task to task.
_DRIFT = 0.01
# How far declared costs may be off. A client without a profile is noisier.
_DECLARED, _NOISIER = 0.2, 2.0
# Share of a measured task that may be fixed cost rather than training, as a standard deviation.
_SPLIT = 0.3
# Residuals count for at most so many standard deviations; so many in a row beyond that are a change of speed.
_CLIP, _CHANGE = 2.5, 2
# For the noise they are clipped earlier; the mean square of a standard normal number that is clipped so.
_NOISE_CLIP, _CLIPPED_SQUARE = 1.5, 0.77847
_LEAST_NOISE, _MOST_NOISE = 1e-4, 1.0
# The width of the quantile grows by this with each late task.
_WIDER, _LEAST_WIDTH = 0.6, 0.9
# At least so much of a task is training: work is never free.
_TRAINING = 0.05
# A client's word alone makes its energy at most so much cheaper, and dearer, than declared.
_CHEAPER, _DEARER = 8.0, 1000.0
_LARGEST = 1e12
_MOST_MISSES = 20


@dataclass(frozen=True, slots=True)
class Estimate:
    """Learned costs of one client.

    Parameters
    ----------
    mean : tuple of three floats
        Expected c2, c1 and c0.
    spread : tuple of six floats
        Their covariance.
    noise : float
        Variance of a single task's time, relative to it.
    joules : tuple of three floats
        Declared g2, g1 and g0, or those of the first task whose energy was measured.
    energy : float
        Learned factor on these.
    margin : float
        Planned over expected time, where a share of replies in time is promised.
    width : float
        Multiplies the width of that quantile.
    run : int
        Surprising times in a row, with their sign.
    misses : int
        Tasks without a reply in a row. Each one halves the next task; the first reply ends that.
    seen : int
        Tasks so far.
    exchange_s : float
        What a task takes beside the time until its client stops: transport, loading, the app's own ending.
    """

    mean: Vector
    spread: Spread = (0.0,) * 6
    noise: float = 0.01
    joules: Vector = (0.0, 0.0, 0.0)
    energy: float = 1.0
    margin: float = 1.0
    width: float = 1.0
    run: int = 0
    misses: int = 0
    seen: int = 0
    exchange_s: float = 0.0

    @classmethod
    def declared(cls, costs: Costs, options: Estimation | None) -> Estimate:
        """Begin with the costs that a client declares.

        Parameters
        ----------
        costs : tuple of six floats
            c2, c1, c0, g2, g1, g0.
        options : Estimation, optional
            None: declared costs are used as they are, and only missed replies count.
        """
        c2, c1, c0, *joules = costs
        start = cls((c2, c1, c0), joules=(joules[0], joules[1], joules[2]))
        if options is None:
            return start
        # Computing and link err independently; the two costs of the link err together.
        compute, link = _DECLARED**2 * c2**2, _DECLARED**2
        spread = (compute, 0.0, 0.0, link * c1 * c1, link * c1 * c0, link * c0 * c0)
        margin = math.exp(_quantile(options.on_time) * math.hypot(_DECLARED, options.noise))
        return replace(start, spread=spread, noise=options.noise**2, margin=margin)

    @classmethod
    def measured(
        cls,
        work: float,
        seconds: float,
        options: Estimation,
        train_s: float | None = None,
        joules: float | None = None,
    ) -> Estimate:
        """Begin with the first task of a client that declares nothing.

        Parameters
        ----------
        work : float
            Samples in all epochs.
        seconds : float
            Its time.
        options : Estimation
            The noise.
        train_s : float, optional
            The part of it that was training, as far as the client reports it.
        joules : float, optional
            What it used.
        """
        work, seconds = max(work, 1.0), min(max(seconds, 1e-9), _LARGEST)
        train_s = seconds if train_s is None else min(max(train_s, _TRAINING * seconds), seconds)
        c2, c0 = train_s / work, seconds - train_s
        whole, part = (_NOISIER * options.noise) ** 2, (_SPLIT * seconds) ** 2
        spread = (
            whole * c2 * c2 + part / work**2,
            0.0,
            whole * c2 * c0 - part / work,
            0.0,
            0.0,
            whole * c0 * c0 + part,
        )
        # No margin on one measurement: the first task of a process is rather too slow than too fast.
        first = cls((c2, 0.0, c0), spread, (_NOISIER * options.noise) ** 2, seen=1)
        return first._used((work, 0.0, 1.0), joules)

    def rebased(self, old: Costs, new: Costs) -> Estimate:
        """Return the estimate for a changed profile: what was learned is relative to what was declared.

        Parameters
        ----------
        old, new : tuples of six floats
            The costs declared before and now.
        """
        a, b, c = (y / x if x and y else 1.0 for x, y in zip(old[:3], new[:3], strict=True))
        m, p = self.mean, self.spread
        # A cost that was not declared before, nor learned, is as declared now.
        mean = (m[0] * a, m[1] * b or new[1], m[2] * c or new[2])
        spread = (p[0] * a * a, p[1] * a * b, p[2] * a * c, p[3] * b * b, p[4] * b * c, p[5] * c * c)
        joules = new[3:] if any(new[3:]) else self.joules
        return replace(self, mean=mean, spread=spread, joules=joules)

    def expected(self, work: float, samples: float) -> float:
        """Return the expected seconds of a task."""
        c2, c1, c0 = self.mean
        return c2 * work + c1 * samples + c0

    def costs(self, *, expected: bool = False) -> Costs:
        """Return the costs to plan with.

        Parameters
        ----------
        expected : bool
            The mean. False: the quantile that keeps the promise, and more after missed replies.
        """
        factor = 1.0 if expected else 2.0**self.misses * self.margin
        c2, c1, c0 = self.mean
        g2, g1, g0 = self.joules
        e = self.energy
        return factor * c2, factor * c1, factor * c0, e * g2, e * g1, e * g0

    def observe(
        self,
        work: float,
        samples: float,
        seconds: float,
        options: Estimation | None,
        *,
        joules: float | None = None,
    ) -> Estimate:
        """Return the estimate after one completed task.

        Parameters
        ----------
        work, samples : float
            Samples in all epochs, and in one.
        seconds : float
            Its time, by the server's clock or, in a simulation, as reported.
        options : Estimation, optional
            None: nothing is learned but that the reply came.
        joules : float, optional
            What it used.
        """
        x = (max(work, 1.0), samples, 1.0)
        before = _dot(self.mean, x)
        if options is None:  # a client that is much faster than it declares does not confirm its costs
            return replace(self, misses=0, seen=self.seen + (2 * seconds >= before))
        if not (before > 0 and 0 < seconds <= _LARGEST):
            return replace(self, misses=0)
        # Of late replies in a row the first counts: the others are the same change of speed.
        late = self.run <= 0 and seconds > self.margin * before
        learned = self._corrected(x, seconds, before, options)
        return learned._planned(x, seconds, options, late=late)._used(x, joules)

    def _corrected(self, x: Vector, seconds: float, before: float, options: Estimation) -> Estimate:
        """Predict and correct; all deviations are relative to the expected time `before`."""
        spread = _plus(self.spread, _DRIFT**2, self.mean)
        if not self.seen and not spread[5]:  # no fixed cost was declared: nothing is known about it
            spread = (*spread[:5], (_SPLIT * seconds) ** 2)
        doubt = max(_dot(_times(spread, x), x), 0.0) / before**2
        off = seconds / before - 1
        limit = _CLIP * math.sqrt(doubt + self.noise)
        run = self._run(off, limit)
        if abs(run) >= _CHANGE or (self.seen < 2 and off < 0):  # first times are rather too slow
            spread, doubt, run = _plus(spread, off**2, self.mean), doubt + off**2, 0
        else:
            off = min(max(off, -limit), limit)
        total = doubt + self.noise
        gain = _scaled(_times(spread, x), 1 / (before * total))
        a, b, c = (m + g * off for m, g in zip(self.mean, gain, strict=True))
        excess = min(off**2, _NOISE_CLIP**2 * total) / _CLIPPED_SQUARE - total
        noise = self.noise + (not run) * self.noise / total * excess / min(self.seen + 3, options.memory)
        return replace(
            self,
            mean=_positive((a, b, c), x),
            spread=_plus(spread, -total, gain),
            noise=min(max(noise, _LEAST_NOISE), _MOST_NOISE),
            run=run,
            misses=0,
        )

    def _run(self, off: float, limit: float) -> int:
        """Count surprises to the same side."""
        if abs(off) <= limit:
            return 0
        sign = 1 if off > 0 else -1
        return self.run + sign if self.run * sign > 0 else sign

    def _planned(self, x: Vector, seconds: float, options: Estimation, *, late: bool) -> Estimate:
        """Return the estimate with the margin of the next task."""
        width = max(self.width + _WIDER * (late - (1 - options.on_time)), _LEAST_WIDTH)
        expected = _dot(self.mean, x)
        doubt = max(_dot(_times(self.spread, x), x), 0.0) / expected**2 + self.noise
        margin = math.exp(min(_quantile(options.on_time) * width * math.sqrt(doubt), 5.0))
        if self.run > 0 and options.on_time > 0.5:  # a surprise may be the truth until the next reply
            margin = max(margin, seconds / expected)
        return replace(self, margin=margin, width=width, seen=self.seen + 1)

    def _used(self, x: Vector, joules: float | None) -> Estimate:
        """Return the estimate after a task's energy."""
        if joules is None or not 0 <= joules <= _LARGEST:
            return self
        declared = _dot(self.joules, x)
        if not declared:
            return replace(self, joules=(joules / x[0], 0.0, 0.0))
        ratio = min(max(joules / declared, 1 / _CHEAPER), _DEARER)
        return replace(self, energy=self.energy + (ratio - self.energy) / min(self.seen + 1, 10))

    def missed(self) -> Estimate:
        """Return the estimate after a task without a reply: the next one is half as large.

        An outage is one late reply for the promise, however many rounds it lasts.
        """
        width = self.width if self.misses else self.width + _WIDER
        misses = min(self.misses + 1, _MOST_MISSES)
        return replace(self, misses=misses, run=max(self.run, 0) + 1, width=width)

    def doubted(self) -> Estimate:
        """Return the estimate of a client that was too slow to be asked: its next time counts fully."""
        return replace(self, spread=_plus(self.spread, 1.0, self.mean), misses=0)

    def exchanged(self, seconds: float, *, stopped: bool) -> Estimate:
        """Return the estimate after an exchange that took these seconds beside the work.

        Parameters
        ----------
        seconds : float
            After a client stopped in time, all that came on top. Otherwise its ending is not included, so
            that a smaller value says nothing.
        stopped : bool
            Which of the two it is.
        """
        return replace(self, exchange_s=seconds if stopped else max(seconds, self.exchange_s))

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: object) -> Estimate:
        """Read back what `as_dict` returned; refuse anything else."""
        if not isinstance(data, Mapping) or set(data) != set(cls.__dataclass_fields__):
            raise complain("estimate", f"a mapping with {', '.join(cls.__dataclass_fields__)}", data)
        m, s, j = (_numbers(data, name, n) for name, n in (("mean", 3), ("spread", 6), ("joules", 3)))
        if min(*m, *j) < 0 or not m[0] > 0 or min(s[0], s[3], s[5]) < 0:
            raise complain("estimate", "positive costs and variances", dict(data))
        positive = {
            x: number(f"estimate.{x}", data[x], above=0) for x in ("noise", "energy", "margin", "width")
        }
        return cls(
            mean=(m[0], m[1], m[2]),
            spread=(s[0], s[1], s[2], s[3], s[4], s[5]),
            joules=(j[0], j[1], j[2]),
            run=int(number("estimate.run", data["run"])),
            misses=min(count("estimate.misses", data["misses"]), _MOST_MISSES),
            seen=count("estimate.seen", data["seen"]),
            exchange_s=number("estimate.exchange_s", data["exchange_s"], least=0),
            **positive,
        )


def _numbers(data: Mapping[str, Any], name: str, length: int) -> list[float]:
    """Read a list of finite numbers."""
    values = data[name]
    if not isinstance(values, list | tuple) or len(values) != length:
        raise complain(f"estimate.{name}", f"{length} numbers", values)
    return [number(f"estimate.{name}", x) for x in values]


@lru_cache(maxsize=64)
def _quantile(on_time: float) -> float:
    """Return the promised share as standard deviations."""
    return NormalDist().inv_cdf(on_time)


# Three numbers by hand: numpy's calls would take ten times as long, and a server has thousands of clients.


def _dot(a: Vector, b: Vector) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _times(p: Spread, x: Vector) -> Vector:
    """Return the matrix times a vector."""
    return (
        p[0] * x[0] + p[1] * x[1] + p[2] * x[2],
        p[1] * x[0] + p[3] * x[1] + p[4] * x[2],
        p[2] * x[0] + p[4] * x[1] + p[5] * x[2],
    )


def _scaled(v: Vector, factor: float) -> Vector:
    return v[0] * factor, v[1] * factor, v[2] * factor


def _plus(p: Spread, factor: float, v: Vector) -> Spread:
    """Return p + factor v v'; rounding makes no variance negative."""
    a, b, c = v
    return (
        max(p[0] + factor * a * a, 0.0),
        p[1] + factor * a * b,
        p[2] + factor * a * c,
        max(p[3] + factor * b * b, 0.0),
        p[4] + factor * b * c,
        max(p[5] + factor * c * c, 0.0),
    )


def _positive(mean: Vector, x: Vector) -> Vector:
    """Return costs that are not negative and expect the same time of a task."""
    total = max(_dot(mean, x), 1e-12)
    bounded = (max(mean[0], _TRAINING * total / x[0]), max(mean[1], 0.0), max(mean[2], 0.0))
    return _scaled(bounded, total / _dot(bounded, x))
