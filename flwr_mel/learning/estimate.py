"""What is learnt of one learner: factors on its declared costs, and how much safety its plans need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr_mel._slots import changed
from flwr_mel._validate import MAX_COUNT, complain, count, number
from flwr_mel.learning.calls import CallCost
from flwr_mel.learning.logfilter import REACH, LogFilter
from flwr_mel.learning.observation import Observation
from flwr_mel.learning.settings import Learning

Costs = tuple[float, float, float, float, float, float]

# A learner's word alone makes it at most so much cheaper than declared, or than its round trip allows.
_CLAIM, _UNDECLARED_CLAIM = 8.0, 1000.0
# ... and at most so much dearer.
_DEARER = 1000.0
_FADE, _MOST_IDLE = 0.9, 100
_FORGIVEN = 0.1
_LEAST_SAFETY, _MOST_SAFETY = 0.6, 6.0
_LEAST_STEP, _MOST_STEP = 0.1, 0.5
# Quick to react, slow to trust: from one task to the next a learner is taken for at most so much faster.
# Of the first reports this does not hold: they are what a learner is known by, and the server bounds what it
# makes of newcomers by the others.
_GROWTH, _KNOWN = math.log(2.0), 2
# A call is never taken for less training than this share of it.
_TRAINING = 0.05
_FILTERS = ("compute", "link", "energy")


@dataclass(slots=True)
class Estimate:
    """Beliefs about one learner.

    Parameters
    ----------
    compute, link, energy : LogFilter
        Log-factors on c2, on c1 and c0, and on the g's.
    told : tuple of three bools
        Which of the three the learner declared. Assumed costs are conservative already: before the first
        report they get no safety on top.
    base : tuple of six floats, optional
        The costs that were assumed for a learner that declared nothing; the factors are relative to them.
    safety : float
        Multiplies the margins. It grows with every report later than planned and shrinks with the others, so
        that the promised share is kept in the long run even where the noise is not normal.
    step : float
        By how much: half as far as late reports were beyond their plans lately, in margins. A burst of other
        work is far beyond what the usual noise needs, and would not be covered in small steps.
    share : float, optional
        Of computing in the last task's time.
    idle : int
        Cycles without a task. What is held against a learner fades meanwhile: it could not show otherwise.
    floor : tuple of two floats
        Log-factors of computing and link below which no plan goes. A task that took longer than planned sets
        them to what it took: the filters, which single reports cannot fool, follow later. And no plan's are
        below half of the last one's, so that a learner that is quick again is given more step by step.
    delivered : int
        Tasks that came back.
    samples : int
        The most samples of the next task while the floor is what it is planned with: as many as the last one
        had time for, or twice as many if it was in time.
    call : CallCost, optional
        What a call takes besides training, where that is learnt. It is no part of c2 then.
    """

    compute: LogFilter
    link: LogFilter
    energy: LogFilter
    told: tuple[bool, bool, bool]
    base: Costs | None = None
    safety: float = 1.0
    share: float | None = None
    idle: int = 0
    step: float = _LEAST_STEP
    floor: tuple[float, float] = (-REACH, -REACH)
    delivered: int = 0
    samples: int = 0
    call: CallCost | None = None

    @classmethod
    def start(cls, costs: Costs, *, declared: bool, assumed: bool, learning: Learning) -> Estimate:
        """Begin with what was declared or assumed.

        Parameters
        ----------
        costs : tuple of six floats
            c2, c1, c0, g2, g1, g0.
        declared : bool
            Whether the learner itself said so.
        assumed : bool
            Whether the costs are the server's assumption and must be kept with the estimate.
        learning : Learning
            Spreads and noise.
        """
        # Zero says nothing: a link or a battery that costs nothing has not been described.
        told = (declared, declared and any(costs[1:3]), declared and any(costs[3:]))
        spreads = [learning.declared_spread if x else learning.undeclared_spread for x in told]
        noise = min(max(learning.noise**2, 1e-4), 4.0)
        compute, link, energy = (LogFilter(spread**2, noise) for spread in spreads)
        return cls(compute, link, energy, told, costs if assumed else None)

    @property
    def fixed_s(self) -> float:
        """Seconds of a call besides training, as far as they are known."""
        return 0.0 if self.call is None else self.call.fixed_s

    @property
    def declared(self) -> bool:
        """Whether the learner declared what computing takes."""
        return self.told[0]

    def factors(self, level: float) -> tuple[float, float, float]:
        """Return by how much to multiply c2, c1 and c0, and the g's, to be safe with this probability.

        Parameters
        ----------
        level : float
            Probability that the whole task stays within its planned time.
        """
        margins = [x.margin(level) * self.safety for x in self._filters]
        if self.share is not None and margins[0] > 0 and margins[1] > 0:
            # Computing and link err independently, so that both together need less than each by itself.
            own, other = self.share * margins[0], (1 - self.share) * margins[1]
            together = math.hypot(own, other) / (own + other)
            margins[0], margins[1] = margins[0] * together, margins[1] * together
        floors = (*self.floor, -REACH)
        compute, link, energy = (
            math.exp(self._faded(max(x.mean + margin, floor))) if told or x.seen else 1.0
            for told, x, margin, floor in zip(self.told, self._filters, margins, floors, strict=True)
        )
        return compute, link, energy

    def most_samples(self, level: float) -> int | None:
        """Return the most samples of a learner that was slow of late; None: no bound.

        Time is not all: one with data for several cycles would be given all of them at once.

        Parameters
        ----------
        level : float
            As for `factors`.
        """
        if not self.samples or self.floor[0] <= self.compute.mean:
            return None
        margin = self.compute.margin(level) * self.safety
        return self.samples if self.floor[0] > self.compute.mean + margin else None

    @property
    def _filters(self) -> tuple[LogFilter, LogFilter, LogFilter]:
        return self.compute, self.link, self.energy

    def _faded(self, log_factor: float) -> float:
        return log_factor * _FADE**self.idle if log_factor > 0 else log_factor

    def rest(self) -> None:
        """Note a cycle without a task."""
        self.idle = min(self.idle + 1, _MOST_IDLE)

    def forgive(self) -> bool:
        """Note a cycle in which it was not late, where that is all that is known; True: all is forgiven."""
        for x in (self.compute, self.link):
            x.mean = max(x.mean - _FORGIVEN, 0.0)
        return not self.compute.mean and not self.link.mean

    def copy(self) -> Estimate:
        """Return one that can learn and leaves this one as it is."""
        filters = {name: changed(x) for name, x in zip(_FILTERS, self._filters, strict=True)}
        call = None if self.call is None else changed(self.call)
        return changed(self, **filters, call=call)

    def observe(self, costs: Costs, seen: Observation, learning: Learning, level: float) -> None:
        """Learn from one task.

        Parameters
        ----------
        costs : tuple of six floats
            Declared or assumed, as the plan used them.
        seen : Observation
            What came back.
        learning : Learning
            Drift and memory.
        level : float
            The probability with which the task was to stay within its planned time.
        """
        c2, c1, c0, g2, g1, g0 = costs
        steps, d = float(seen.epochs * seen.samples), float(seen.samples)
        compute, link, energy = c2 * steps, c1 * d + c0, g2 * steps + g1 * d + g0
        if not (compute > 0 and link > 0):
            return
        expected = (compute * math.exp(self.compute.mean) + self.fixed_s, link * math.exp(self.link.mean))
        if seen.late_after_s is not None:
            missing = _log_ratio(seen.late_after_s, sum(expected))
            # Nobody knows how late it would have been, nor why: less computing helps in any case.
            self._brake(level, seen, self.compute.mean + missing + _GROWTH, None, REACH)
            for x in (self.compute, self.link):
                x.observe_at_least(x.mean + missing, self._drift(x, learning))
        elif seen.train_s is not None or seen.round_trip_s is not None:
            train_s, link_s = self._split(seen, compute, expected)
            whole_s = train_s + (expected[1] if link_s is None else link_s)
            train_s = self._without_call(train_s, steps, c2, learning)
            self._brake(
                level,
                seen,
                _log_ratio(train_s, compute),
                None if link_s is None else _log_ratio(link_s, link),
                _log_ratio(whole_s, seen.planned_s or whole_s),
            )
            self.delivered += 1
            self._learn(self.compute, train_s, compute, learning)
            if link_s is not None:
                self._learn(self.link, link_s, link, learning)
        if seen.joules is not None and energy > 0:
            joules = min(max(seen.joules, energy / self._claim), energy * _DEARER)
            self._learn(self.energy, joules, energy, learning)
        computing, linking = compute * math.exp(self.compute.mean), link * math.exp(self.link.mean)
        self.share = computing / (computing + linking)
        self._account(seen, level)
        self.idle = 0

    def _brake(
        self, level: float, seen: Observation, compute: float, link: float | None, over: float
    ) -> None:
        """Bound the next plans by what a task took, in log-factors, and by what it was planned with.

        `over` is by how much all of it took longer than planned: who was in time gets no fewer samples, even
        if computing, of which there may be little, took more of the time than it was given.
        """
        if not seen.planned_s:
            return
        planned = [math.log(factor) for factor in self.factors(level)[:2]]
        floors = []
        for x, plan, took in zip(self._filters, planned, (compute, link), strict=False):
            floor = plan - _GROWTH if x.seen >= _KNOWN else -REACH
            floors.append(floor if took is None or took <= plan else max(took, floor))
        self.floor = (min(max(floors[0], -REACH), REACH), min(max(floors[1], -REACH), REACH))
        slower = max(compute - planned[0], 0.0) if over > 0 else 0.0
        fits = seen.samples * (math.exp(-slower) if slower else 2)
        self.samples = max(min(int(fits), MAX_COUNT), 1)

    def _without_call(self, train_s: float, steps: float, c2: float, learning: Learning) -> float:
        """Return the part of a call that is training; what was known of the last task's work stays known."""
        if self.call is None:
            return train_s
        fixed_s, compute = self.call.fixed_s, c2 * (self.call.work or steps)
        self.call.observe(steps, train_s, learning.noise, learning.drift)
        change_s = fixed_s - self.call.fixed_s

        def moved(log_factor: float) -> float:
            before = compute * math.exp(log_factor)
            return min(max(_log_ratio(max(before + change_s, _TRAINING * before), compute), -REACH), REACH)

        self.compute.mean = moved(self.compute.mean)
        self.floor = (moved(self.floor[0]), self.floor[1])
        return max(train_s - self.call.fixed_s, _TRAINING * train_s)

    @property
    def _claim(self) -> float:
        return _CLAIM if self.declared else _UNDECLARED_CLAIM

    def _split(
        self, seen: Observation, compute: float, expected: tuple[float, float]
    ) -> tuple[float, float | None]:
        """Return seconds of computing and of the link; the server's clock bounds what the learner claims."""
        if seen.round_trip_s is None:
            claimed = 0.0 if seen.train_s is None else seen.train_s
            return min(max(claimed, compute / self._claim), compute * _DEARER), None
        whole = max(seen.round_trip_s, 1e-9)
        claimed = whole * expected[0] / sum(expected) if seen.train_s is None else seen.train_s
        train_s = min(max(claimed, min(compute, whole) / self._claim), whole)
        return train_s, max(whole - train_s, whole * 1e-3)

    def _learn(self, x: LogFilter, seconds: float, declared: float, learning: Learning) -> None:
        x.observe(_log_ratio(seconds, declared), self._drift(x, learning), learning.memory)

    def _drift(self, x: LogFilter, learning: Learning) -> float:
        """After idle cycles the faded belief is as good as the full one: the difference is doubt."""
        walked = learning.drift * math.sqrt(1 + self.idle)
        return math.hypot(walked, x.mean - self._faded(x.mean))

    def _account(self, seen: Observation, level: float) -> None:
        """Compare with the plan, unless it was a trial after a pause."""
        late = seen.late_after_s is not None
        took_s = seen.late_after_s if late else seen.round_trip_s
        if self.idle or not seen.planned_s or took_s is None:
            return
        missed = late or took_s > seen.planned_s
        if missed:
            beyond = _log_ratio(took_s, seen.planned_s) / self._margin(level)
            self.step = (self.step + min(max(beyond, _LEAST_STEP), _MOST_STEP)) / 2
        safety = self.safety + self.step * (missed - (1 - level))
        self.safety = min(max(safety, _LEAST_SAFETY), _MOST_SAFETY)

    def _margin(self, level: float) -> float:
        """Return the margin of a whole task, computing and link, without safety."""
        share = 1.0 if self.share is None else self.share
        whole = math.hypot(share * self.compute.margin(level), (1 - share) * self.link.margin(level))
        return max(whole, 1e-3)

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return {
            **{name: x.as_dict() for name, x in zip(_FILTERS, self._filters, strict=True)},
            "told": list(self.told),
            "base": None if self.base is None else list(self.base),
            "safety": self.safety,
            "share": self.share,
            "idle": self.idle,
            "step": self.step,
            "floor": list(self.floor),
            "delivered": self.delivered,
            "samples": self.samples,
            "call": None if self.call is None else self.call.as_dict(),
        }

    @classmethod
    def from_dict(cls, data: object) -> Estimate:
        """Read back what `as_dict` gave; refuse anything else.

        Parameters
        ----------
        data : mapping
            From `as_dict`.
        """
        if isinstance(data, Mapping):  # of an earlier version: nothing is held against it
            before = {
                "step": _LEAST_STEP,
                "floor": [-REACH, -REACH],
                "delivered": 0,
                "samples": 0,
                "call": None,
            }
            data = {**before, **data}
        if not isinstance(data, Mapping) or set(data) != set(cls.__dataclass_fields__):
            raise complain("estimate", f"a mapping with {', '.join(cls.__dataclass_fields__)}", data)
        told = data["told"]
        if not isinstance(told, list) or len(told) != 3 or not all(isinstance(x, bool) for x in told):
            raise complain("estimate.told", "a list of three times true or false", told)
        compute, link, energy = (LogFilter.from_dict(data[name], name) for name in _FILTERS)
        safety = _within("safety", data["safety"], _LEAST_SAFETY, _MOST_SAFETY)
        step = _within("step", data["step"], _LEAST_STEP, _MOST_STEP)
        share = None if data["share"] is None else number("estimate.share", data["share"], least=0)
        if share is not None and share > 1:
            raise complain("estimate.share", "at most 1", share)
        idle = min(count("estimate.idle", data["idle"]), _MOST_IDLE)
        return cls(
            compute,
            link,
            energy,
            (told[0], told[1], told[2]),
            _base(data["base"]),
            safety,
            share,
            idle,
            step,
            _floor(data["floor"]),
            count("estimate.delivered", data["delivered"]),
            count("estimate.samples", data["samples"]),
            None if data["call"] is None else CallCost.from_dict(data["call"]),
        )


def _floor(value: object) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise complain("estimate.floor", "two logarithms of factors", value)
    found = [number("estimate.floor", x) for x in value]
    if not all(-REACH <= x <= REACH for x in found):
        raise complain("estimate.floor", f"from {-REACH:g} to {REACH:g}", value)
    return found[0], found[1]


def _within(name: str, value: object, low: float, high: float) -> float:
    found = number(f"estimate.{name}", value)
    if not low <= found <= high:
        raise complain(f"estimate.{name}", f"from {low:g} to {high:g}", found)
    return found


def _base(value: object) -> Costs | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 6:
        raise complain("estimate.base", "six costs or null", value)
    c2 = number("estimate.base[0]", value[0], above=0)
    c1, c0, g2, g1, g0 = (number(f"estimate.base[{i}]", value[i], least=0) for i in range(1, 6))
    if max(c2, c1, c0, g2, g1, g0) > 1e9:
        raise complain("estimate.base", "costs of at most 1e9", value)
    return c2, c1, c0, g2, g1, g0


def _log_ratio(a: float, b: float) -> float:
    return math.log(max(a, 1e-300)) - math.log(max(b, 1e-300))
