"""The costs of a client's tasks, learned from its replies.

The time of a task is c2 tau d + c1 d + c0. The three costs follow a Bayesian linear regression with
forgetting (a Kalman filter), whose prior is what the client declares or what its first task took. Noise and
drift are relative to the time itself. Tasks with the same work only correct the sum of the three parts. They
are separated once the work has clearly varied.

A plan needs more than the mean: `costs` are multiplied by a margin, so that the promised share of the tasks
ends in time. The margin follows the observed spread and the share of late tasks. From one task to the next
the planned time changes by at most a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from flwr_mel._validate import FloatArray, complain, count, number
from flwr_mel.cycle.options import Estimation

#: c2, c1, c0 in seconds and g2, g1, g0 in joules, each per sample and epoch, per sample, per task.
Costs = tuple[float, float, float, float, float, float]

# By how much a client's speed changes from task to task.
_DRIFT = 0.01
# How far declared costs may be off. A client without a profile is noisier.
_DECLARED, _NOISIER = 0.2, 2.0
# Share of a measured task that may be fixed cost rather than training, as a standard deviation.
_SPLIT = 0.3
# Residuals count for at most so many standard deviations; so many in a row beyond that are a change of speed.
# Where no share of tasks is promised to be in time there is no hurry.
_CLIP, _CHANGE, _SURE_CHANGE = 2.5, 2, 3
# For the noise they are clipped earlier; the mean square of a standard normal number that is clipped so.
_NOISE_CLIP, _CLIPPED_SQUARE = 1.5, 0.77847
_LEAST_NOISE, _MOST_NOISE = 1e-4, 1.0
# After so many tasks the planned time changes at most by this factor from one task to the next.
_KNOWN, _STEP = 2, 2.0
# A miss raises the planned time by the first factor; misses alone raise it to the second one times expected.
_MISS, _MOST_MARGIN = 2.5, 16.0
# A round without a task lowers it by this factor.
_FADE = 0.8
# The width of the margin is multiplied by the safety, which grows with each late task.
_SAFETY_STEP, _LEAST_SAFETY, _MOST_SAFETY = 0.4, 0.9, 6.0
# At least so much of a task is training: work is never free.
_TRAINING = 0.05
# A client's word alone makes its energy at most so much cheaper, and dearer, than declared.
_CHEAPER, _DEARER = 8.0, 1000.0
_LARGEST = 1e12


@dataclass(frozen=True, slots=True)
class Estimate:
    """Learned costs of one client.

    Parameters
    ----------
    base : tuple of six floats
        The costs it declares, or those of its first task.
    mean : tuple of three floats
        Expected c2, c1 and c0.
    spread : tuple of six floats
        Their covariance, the upper triangle by rows.
    noise : float
        Variance of a single task's time, relative to it.
    margin : float
        Planned over expected time.
    safety : float
        Multiplies the margin's width.
    energy : float
        Factor on the energy costs.
    run : int
        Surprising times in a row, with their sign.
    seen : int
        Tasks so far.
    """

    base: Costs
    mean: tuple[float, float, float]
    spread: tuple[float, float, float, float, float, float] = (0.0,) * 6
    noise: float = 0.01
    margin: float = 1.0
    safety: float = 1.0
    energy: float = 1.0
    run: int = 0
    seen: int = 0

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
        c2, c1, c0 = costs[:3]
        if options is None:
            return cls(costs, (c2, c1, c0))
        # Computing and link err independently; the two costs of the link err together.
        link = np.array([0.0, c1, c0])
        cov = _DECLARED**2 * (np.diag([c2**2, 0.0, 0.0]) + np.outer(link, link))
        margin = math.exp(_quantile(options) * math.hypot(_DECLARED, options.noise))
        return cls(costs, (c2, c1, c0), _packed(cov), options.noise**2, margin)

    @classmethod
    def measured(
        cls,
        epochs: float,
        samples: float,
        seconds: float,
        options: Estimation,
        *,
        train_s: float | None = None,
        joules: float | None = None,
    ) -> Estimate:
        """Begin with the first task of a client that declares nothing.

        Parameters
        ----------
        epochs, samples : float
            What it did.
        seconds : float
            Its time.
        options : Estimation
            The promise and the noise.
        train_s : float, optional
            The part of it that was training, as far as the client reports it.
        joules : float, optional
            What it used.
        """
        work = max(epochs * samples, 1.0)
        seconds = min(max(seconds, 1e-9), _LARGEST)
        train_s = seconds if train_s is None else min(max(train_s, _TRAINING * seconds), seconds)
        mean = np.array([train_s / work, 0.0, seconds - train_s])
        split = seconds * np.array([-1.0 / work, 0.0, 1.0])
        noise = _NOISIER * options.noise
        cov = noise**2 * np.outer(mean, mean) + _SPLIT**2 * np.outer(split, split)
        c2, _, c0 = mean.tolist()
        costs = (c2, 0.0, c0, 0.0 if joules is None else joules / work, 0.0, 0.0)
        # No margin on one measurement: the first task of a process is rather too slow than too fast.
        return cls(costs, (c2, 0.0, c0), _packed(cov), noise**2)

    def begins_with(self, costs: Costs) -> bool:
        """Whether it began with these declared costs, so that it stays; energy may have been learned."""
        return self.base[:3] == costs[:3] and (self.base[3:] == costs[3:] or not any(costs[3:]))

    def expected(self, epochs: float, samples: float) -> float:
        """Return the expected seconds of a task."""
        c2, c1, c0 = self.mean
        return c2 * (epochs * samples) + c1 * samples + c0

    def costs(self, *, expected: bool = False) -> Costs:
        """Return the costs to plan with, at the promised quantile, or the expected ones.

        Parameters
        ----------
        expected : bool
            Without the margin. A round time that is derived from costs must not grow with it.
        """
        c2, c1, c0 = (c if expected else self.margin * c for c in self.mean)
        g2, g1, g0 = (self.energy * g for g in self.base[3:])
        return c2, c1, c0, g2, g1, g0

    def observe(
        self,
        epochs: float,
        samples: float,
        seconds: float,
        options: Estimation | None,
        *,
        joules: float | None = None,
    ) -> Estimate:
        """Return the estimate after one completed task.

        Parameters
        ----------
        epochs, samples : float
            What was done.
        seconds : float
            Its time, by the server's clock or, in a simulation, as reported.
        options : Estimation, optional
            None: nothing is learned but that the reply came.
        joules : float, optional
            What it used.
        """
        if options is None:
            return replace(self, margin=max(self.margin / _STEP, 1.0))
        x = np.array([epochs * samples, samples, 1.0])
        before = self.expected(epochs, samples)
        if not (before > 0 and 0 < seconds <= _LARGEST):
            return self
        learned = self._learned(x, seconds, before, options)
        return learned._planned(x, seconds, self.margin * before, options)._used(x, joules)

    def _learned(self, x: FloatArray, seconds: float, before: float, options: Estimation) -> Estimate:
        """Return the estimate with new expected costs and noise; all deviations are relative to `before`."""
        mean = np.array(self.mean)
        cov = _unpacked(self.spread) + _DRIFT**2 * np.outer(mean, mean)
        if not self.seen and not cov[2, 2]:
            cov[2, 2] = (_SPLIT * seconds) ** 2  # it declared no fixed cost: nothing is known about that
        doubt = max(float(x @ cov @ x), 0.0) / before**2
        off = seconds / before - 1
        limit = _CLIP * math.sqrt(doubt + self.noise)
        run = self._run(off, limit)
        changed = abs(run) >= (_CHANGE if options.on_time > 0.5 else _SURE_CHANGE)
        if changed or (not self.seen and off < 0):  # first measurements are rather too slow than too fast
            cov, doubt, run = cov + off**2 * np.outer(mean, mean), doubt + off**2, 0
        else:
            off = min(max(off, -limit), limit)
        total = doubt + self.noise
        gain = cov @ x / (before * total)
        c2, c1, c0 = _positive(mean + gain * off, x).tolist()
        spread = _packed(cov - np.outer(gain, gain) * total)
        excess = min(off**2, _NOISE_CLIP**2 * total) / _CLIPPED_SQUARE - total
        noise = self.noise + self.noise / total * excess / min(self.seen + 3, options.memory)
        noise = min(max(noise, _LEAST_NOISE), _MOST_NOISE)
        return replace(self, mean=(c2, c1, c0), spread=spread, noise=noise, run=run)

    def _run(self, off: float, limit: float) -> int:
        """Count surprises to the same side."""
        if abs(off) <= limit:
            return 0
        sign = 1 if off > 0 else -1
        return self.run + sign if self.run * sign > 0 else sign

    def _planned(self, x: FloatArray, seconds: float, planned: float, options: Estimation) -> Estimate:
        """Return the estimate with the margin of the next task."""
        late = seconds > planned
        safety = self._safety(late, options)
        expected = float(np.array(self.mean) @ x)
        width = math.sqrt(max(float(x @ _unpacked(self.spread) @ x), 0.0) / expected**2 + self.noise)
        target = expected * math.exp(min(_quantile(options) * safety * width, 5.0))
        if self.run > 0 and options.on_time > 0.5:
            target = max(target, seconds)
        if self.seen >= _KNOWN:
            target = max(target, planned / _STEP)
        target = min(target, planned * _STEP)
        return replace(self, margin=target / expected, safety=safety, seen=self.seen + 1)

    def _safety(self, late: bool, options: Estimation) -> float:
        """Return the safety after a task, so that the promised share is kept in the long run."""
        safety = self.safety + _SAFETY_STEP * (late - (1 - options.on_time))
        return min(max(safety, _LEAST_SAFETY), _MOST_SAFETY)

    def _used(self, x: FloatArray, joules: float | None) -> Estimate:
        """Return the estimate after a task's energy."""
        if joules is None or not 0 <= joules <= _LARGEST:
            return self
        declared = float(np.array(self.base[3:]) @ x)
        if not declared:
            g2 = joules / float(x[0])
            return replace(self, base=(*self.base[:3], g2, 0.0, 0.0))
        ratio = min(max(joules / declared, 1 / _CHEAPER), _DEARER)
        return replace(self, energy=self.energy + (ratio - self.energy) / min(self.seen + 1, 10))

    def rested(self, options: Estimation | None) -> Estimate:
        """Return the estimate after a round in which no task fitted: what counts against a client fades."""
        margin = max(self.margin * _FADE, 1 / _MOST_MARGIN if options else 1.0)
        mean = np.array(self.mean)
        cov = _unpacked(self.spread) + (options is not None) * (1 - _FADE) * np.outer(mean, mean)
        return replace(self, margin=margin, spread=_packed(cov))

    def missed(self, options: Estimation | None) -> Estimate:
        """Return the estimate after a task without a reply: the next one is smaller, within limits."""
        margin = min(self.margin * _MISS, max(self.margin, _MOST_MARGIN))
        if options is None:
            return replace(self, margin=margin)
        safety = self._safety(True, options)
        return replace(self, margin=margin, safety=safety, run=max(self.run, 0) + 1)

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: object) -> Estimate:
        """Read back what `as_dict` returned; refuse anything else."""
        if not isinstance(data, Mapping) or set(data) != set(cls.__dataclass_fields__):
            raise complain("estimate", f"a mapping with {', '.join(cls.__dataclass_fields__)}", data)
        b, m, s = (_numbers(data, name, n) for name, n in (("base", 6), ("mean", 3), ("spread", 6)))
        if min(*b, *m) < 0 or not (b[0] > 0 and m[0] > 0) or min(s[0], s[3], s[5]) < 0:
            raise complain("estimate", "positive costs and variances", dict(data))
        noise, margin, safety, energy = (
            number(f"estimate.{name}", data[name], above=0)
            for name in ("noise", "margin", "safety", "energy")
        )
        run = int(number("estimate.run", data["run"]))
        return cls(
            (b[0], b[1], b[2], b[3], b[4], b[5]),
            (m[0], m[1], m[2]),
            (s[0], s[1], s[2], s[3], s[4], s[5]),
            noise,
            margin,
            safety,
            energy,
            run,
            count("estimate.seen", data["seen"]),
        )


def _numbers(data: Mapping[str, Any], name: str, length: int) -> list[float]:
    """Read a list of finite numbers."""
    values = data[name]
    if not isinstance(values, list | tuple) or len(values) != length:
        raise complain(f"estimate.{name}", f"{length} numbers", values)
    return [number(f"estimate.{name}", x) for x in values]


def _quantile(options: Estimation) -> float:
    """Return the promised share as standard deviations."""
    return NormalDist().inv_cdf(options.on_time)


def _positive(mean: FloatArray, x: FloatArray) -> FloatArray:
    """Return costs that are not negative and expect the same time of a task."""
    total = max(float(mean @ x), 1e-12)
    bounded = np.maximum(mean, [_TRAINING * total / x[0], 0.0, 0.0])
    positive: FloatArray = bounded * (total / float(bounded @ x))
    return positive


def _packed(cov: FloatArray) -> tuple[float, float, float, float, float, float]:
    """Return the upper triangle; rounding makes no variance negative."""
    a, b, c, d, e, f = cov[np.triu_indices(3)].tolist()
    return max(a, 0.0), b, c, max(d, 0.0), e, max(f, 0.0)


def _unpacked(spread: tuple[float, ...]) -> FloatArray:
    """Return the full matrix."""
    a, b, c, d, e, f = spread
    return np.array([[a, b, c], [b, d, e], [c, e, f]])
