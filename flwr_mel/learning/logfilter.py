"""A robust Kalman filter for one number: the logarithm of what is observed over what was declared.

The number walks at random; an observation is the number plus noise of unknown variance. What a single
observation can do is bounded (Huber's clipping); the second surprise in a row to the same side is taken for a
change, and followed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from flwr_mel._validate import complain, number

#: Factors stay between exp(-REACH) and exp(REACH).
REACH = math.log(1e9)
#: Innovations count for at most so many standard deviations.
CLIP = 2.5
# Mean square of a standard normal number that is clipped so: without it the noise would be underestimated.
_CLIPPED_SQUARE = 0.97755
# A learner that is late although this many deviations were in hand surprises.
_LATE_SURPRISE = 1.0
_CONFIRM = 2
_LEAST_NOISE, _MOST_NOISE = 1e-4, 4.0
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-12, 4 * REACH**2
# The first guess of the noise weighs as much as so many observations.
_PRIOR_WEIGHT = 4.0


@lru_cache(maxsize=4096)
def _quantiles(weight: float, level: float) -> tuple[float, float]:
    """Return the normal and Student's quantile; weights are few."""
    # A fourth of what a client's process imports otherwise, and clients estimate nothing.
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415

    return float(ndtri(level)), float(stdtrit(weight, level))


@dataclass(slots=True)
class LogFilter:
    """What is believed of one log-factor.

    Parameters
    ----------
    variance : float
        Of the belief.
    noise : float
        Variance of a single observation.
    mean : float
        Of the belief; 0 is what was declared.
    weight : float
        How many observations the noise is known from.
    run : int
        Surprises in a row, with their sign.
    seen : int
        Observations so far.
    """

    variance: float
    noise: float
    mean: float = 0.0
    weight: float = _PRIOR_WEIGHT
    run: int = 0
    seen: int = 0

    def margin(self, level: float) -> float:
        """Return how far above the mean the next observation stays with this probability.

        The belief is normal; the noise, whose variance is itself an estimate, has Student's tails.

        Parameters
        ----------
        level : float
            From 0.5 to below 1.
        """
        normal, student = _quantiles(self.weight, level)
        return math.sqrt(normal**2 * self.variance + student**2 * self.noise)

    def observe(self, value: float, drift: float, memory: int) -> None:
        """Take in one observation.

        Parameters
        ----------
        value : float
            The logarithm of observed over declared; what is not a number is ignored.
        drift : float
            Standard deviation of what the number may have walked since the last observation.
        memory : int
            Over how many observations the noise is averaged.
        """
        if math.isnan(value):
            return
        self._walk(drift)
        innovation = min(max(value, -REACH), REACH) - self.mean
        clip = CLIP * math.sqrt(self.variance + self.noise)
        clipped = min(max(innovation, -clip), clip)
        changed = self._surprised(innovation, abs(innovation) > clip)
        residual = self._expected_residual(clipped)
        if changed:
            self.variance += innovation**2
        self._move(innovation if changed else clipped)
        self.weight = min(self.weight + 1.0, float(memory))
        noise = self.noise + (residual - self.noise) / self.weight
        self.noise = min(max(noise, _LEAST_NOISE), _MOST_NOISE)

    def observe_at_least(self, bound: float, drift: float) -> None:
        """Take in that the observation, whatever it would have been, is not below a bound.

        Parameters
        ----------
        bound : float
            As `value` of `observe`.
        drift : float
            As for `observe`.
        """
        if math.isnan(bound):
            return
        bound = min(max(bound, -REACH), REACH)
        self._walk(drift)
        deviations, excess = self._excess(bound)
        if self._surprised(excess, deviations > _LATE_SURPRISE):
            self.variance += max(excess, bound - self.mean) ** 2
            deviations, excess = self._excess(bound)
        else:
            excess = min(excess, CLIP * math.sqrt(self.variance + self.noise))
        hazard = excess / math.sqrt(self.variance + self.noise)
        self._move(excess, information=min(max(hazard * (hazard - deviations), 0.0), 1.0))

    def _excess(self, bound: float) -> tuple[float, float]:
        """Return the bound in deviations, and how far above the mean values beyond it are on average."""
        from scipy.special import log_ndtr  # noqa: PLC0415

        deviation = math.sqrt(self.variance + self.noise)
        a = (bound - self.mean) / deviation
        hazard = math.exp(-(a**2) / 2 - math.log(2 * math.pi) / 2 - float(log_ndtr(-a)))
        return a, hazard * deviation

    def _walk(self, drift: float) -> None:
        self.variance = min(self.variance + drift**2, _MOST_VARIANCE)

    def _surprised(self, innovation: float, surprising: bool) -> bool:
        """Count surprises to the same side; True when there are enough to believe in a change."""
        sign = 1 if innovation > 0 else -1
        self.run = (self.run + sign if self.run * sign > 0 else sign) if surprising else 0
        if abs(self.run) < _CONFIRM:
            return False
        self.run = 0
        return True

    def _expected_residual(self, innovation: float) -> float:
        """Return the expected square of observation minus truth, given this innovation."""
        total = self.variance + self.noise
        rest = self.noise / total
        return (rest * innovation) ** 2 / _CLIPPED_SQUARE + rest * self.variance

    def _move(self, innovation: float, information: float = 1.0) -> None:
        gain = self.variance / (self.variance + self.noise)
        self.mean = min(max(self.mean + gain * innovation, -REACH), REACH)
        variance = self.variance * (1 - gain * information)
        self.variance = min(max(variance, _LEAST_VARIANCE), _MOST_VARIANCE)
        self.seen += 1

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object, name: str = "filter") -> LogFilter:
        """Read back what `as_dict` gave; refuse anything else.

        Parameters
        ----------
        data : mapping
            From `as_dict`.
        name : str
            For error messages.
        """
        if not isinstance(data, Mapping) or set(data) != set(cls.__dataclass_fields__):
            raise complain(name, f"a mapping with {', '.join(cls.__dataclass_fields__)}", data)
        ranges = {
            "variance": (_LEAST_VARIANCE, _MOST_VARIANCE),
            "noise": (_LEAST_NOISE, _MOST_NOISE),
            "mean": (-REACH, REACH),
            "weight": (1.0, 2.0**40),
            "run": (-_CONFIRM, _CONFIRM),
            "seen": (0, 2**53),
        }
        values = {}
        for key, (low, high) in ranges.items():
            x = number(f"{name}.{key}", data[key])
            whole = key in ("run", "seen")
            if not low <= x <= high or (whole and not x.is_integer()):
                rule = f"{'an integer' if whole else 'a number'} from {low:g} to {high:g}"
                raise complain(f"{name}.{key}", rule, x)
            values[key] = int(x) if whole else x
        return cls(**values)  # type: ignore[arg-type]
