"""How long a cycle is when nobody says so, and what else then follows from what was measured.

The project's own round is the measure. Learner k does e_k epochs on its n_k samples in it, and the round
lasts as long as its slowest learner takes, T_old. The cycle time is ::

    T = min(T_old, max(T_work, T_one))

T_work is the shortest time in which all together do as much work as in the old round, sum_k e_k n_k samples
passed, when the work is done where it fits: d_k is all that learner k holds, as far as one epoch fits into T,
and tau_k as many epochs as fit, up to a bound relative to the project's own. T_one is the time in which
everybody does the least that it can be told. So no round is longer than it was, and none does less. T
follows the estimates, in which what a call takes besides training is told apart from training
(`learning.calls`): else every change of T would change the costs, and they T again. One slow report makes
that time longer and the next one shorter, so T is the middle of the last few such times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import median_high
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import MAX_COUNT, FloatArray, IntArray
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import smallest
from flwr_mel.costs import Coefficients
from flwr_mel.orchestrator.own_work import OwnWork
from flwr_mel.orchestrator.settings import InForce, Settings
from flwr_mel.orchestrator.state import LearnerState
from flwr_mel.orchestrator.trust import planned_costs
from flwr_mel.records import CycleRecord

#: Most epochs, as a multiple of the project's own.
MOST_EPOCHS = 5
#: Least samples, where the learners hold as many: a mini-batch, and more than BatchNorm needs.
LEAST_SAMPLES = 32
# T is the middle of what so many cycles asked for: noise does not move it, what lasts for three cycles does.
_CYCLES = 5
# A time so many times as long, or as short, is no noise: those before it no longer count. The own round is
# such a time where libraries and data are loaded in it.
_JUMP = 2
_FEWEST = 3
# It stays as it is until it would be shorter by more than this share; for the old work it grows.
_STEADY = 0.05


@dataclass(frozen=True, slots=True)
class Round:
    """The project's own round, as arrays over the learners.

    Parameters
    ----------
    epochs, samples : int arrays
        e_k and n_k.
    steers_epochs, steers_samples : bool arrays
        What can be told to them.
    """

    epochs: IntArray
    samples: IntArray
    steers_epochs: npt.NDArray[np.bool_]
    steers_samples: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, works: Sequence[OwnWork]) -> Round:
        """Collect what the learners do by themselves."""
        counts = np.array([(x.epochs, x.samples) for x in works], dtype=np.int64).reshape(-1, 2)
        flags = np.array([(x.steers_epochs, x.steers_samples) for x in works], dtype=np.bool_).reshape(-1, 2)
        return cls(counts[:, 0], counts[:, 1], flags[:, 0], flags[:, 1])

    def least_time_s(self, costs: Coefficients, least: int) -> FloatArray:
        """Return what the least task takes each learner.

        Parameters
        ----------
        costs : Coefficients
            Theirs.
        least : int
            d_l.
        """
        epochs = np.where(self.steers_epochs, 1, self.epochs)
        samples = np.where(self.steers_samples, np.minimum(least, self.samples), self.samples)
        return costs.time_s(epochs, samples)

    def work(self, costs: Coefficients, time_s: float, max_epochs: int) -> IntArray:
        """Return how many samples each learner passes in a time, with as many of its samples as fit.

        Parameters
        ----------
        costs : Coefficients
            Theirs.
        time_s : float
            T.
        max_epochs : int
            Nobody does more, but for those who cannot be told.
        """
        unlimited = np.full(len(costs), np.inf)
        capacities = Capacities(costs, time_s, unlimited, self.samples, 1, MAX_COUNT)
        told = _whole_epochs(costs, self.samples, time_s, max_epochs)
        own = np.where(costs.time_s(self.epochs, self.samples) <= time_s, self.epochs, 0)
        epochs = np.where(self.steers_epochs, told, own)
        fewest = np.where(self.steers_epochs, 1, self.epochs)
        part = fewest * capacities.at(fewest) * self.steers_samples
        work: IntArray = np.where(epochs > 0, epochs * self.samples, part)
        return work


def _whole_epochs(costs: Coefficients, samples: IntArray, time_s: float, most: int) -> IntArray:
    """Return how many epochs on all samples fit, by the formula that allocations are verified with."""
    with np.errstate(over="ignore"):
        guess = (min(time_s, 1e300) - costs.c0 - costs.c1 * samples) / (costs.c2 * samples)
    epochs: IntArray = np.clip(np.floor(guess), 0, most).astype(np.int64)
    epochs -= (epochs > 0) & (costs.time_s(epochs, samples) > time_s)
    epochs += (epochs < most) & (costs.time_s(epochs + 1, samples) <= time_s)
    return epochs


def cycle_time_s(costs: Coefficients, own: Round, least: int, max_epochs: int) -> float:
    """Return max(T_work, T_one), which is never longer than the project's own round by these costs.

    Parameters
    ----------
    costs : Coefficients
        Of the learners.
    own : Round
        What they do by themselves.
    least : int
        d_l.
    max_epochs : int
        Nobody does more; what that forbids of the old work is not asked for.
    """
    old_s = float(costs.time_s(own.epochs, own.samples).max())
    told = np.where(own.steers_epochs, np.minimum(own.epochs, max_epochs), own.epochs)
    wanted = int((told * own.samples).sum())
    work_s = smallest(old_s, lambda time_s: int(own.work(costs, time_s, max_epochs).sum()) >= wanted)
    one_s = float(own.least_time_s(costs, least).max())
    return min(old_s, max(old_s if work_s is None else work_s, one_s))


def in_force(
    settings: Settings,
    learners: Sequence[LearnerState],
    last_s: float | None,
    asked_s: tuple[float, ...] = (),
) -> InForce:
    """Return the settings with what nobody gave filled in.

    As long as nothing is measured, a cycle time that is not given is 0: then everybody does its own round.

    Parameters
    ----------
    settings : Settings
        What the user asks for.
    learners : sequence of LearnerState
        Everybody who is there.
    last_s : float, optional
        T of the cycle before, if it was not given.
    asked_s : tuple of float
        What the rule gave in the last cycles.
    """
    paced = settings.cycle_time_s is None
    known = [x for x in learners if x.own is not None and x.costs is not None and (paced or x.measured)]
    works = [x.own for x in known if x.own is not None]
    if not works:
        return _filled(settings, settings.cycle_time_s or 0.0)
    most = settings.max_epochs or MOST_EPOCHS * max(x.epochs for x in works)
    least = min(LEAST_SAMPLES, *(x.samples for x in works))
    ceiling = max(x.seconds for x in works)
    force = _filled(settings, settings.cycle_time_s or ceiling, most, most - 1, least)
    if not paced:
        return force
    costs = Coefficients(*planned_costs(known, force).T)
    now_s = cycle_time_s(costs, Round.of(works), force.min_samples, most)
    jumped = last_s is not None and not last_s / _JUMP < now_s < last_s * _JUMP
    asked_s = (now_s,) if jumped else (*asked_s, now_s)[-_CYCLES:]
    time_s = min(now_s if len(asked_s) < _FEWEST else median_high(asked_s), force.cycle_time_s)
    if last_s and time_s <= last_s <= min(time_s * (1 + _STEADY), force.cycle_time_s):
        time_s = last_s
    return replace(force, cycle_time_s=time_s, own_round_s=force.cycle_time_s, asked_s=asked_s)


def as_planned(settings: Settings, time_s: float) -> InForce:
    """Return what was in force when a cycle was planned, as far as what came back of it needs it.

    Parameters
    ----------
    settings : Settings
        What the user asks for.
    time_s : float
        The cycle's T.
    """
    return _filled(settings, time_s)


def _filled(
    settings: Settings, time_s: float, max_epochs: int | None = None, staleness: int = 1, min_samples: int = 1
) -> InForce:
    """Fill in what was not given."""
    given: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields(Settings)}
    open_ = {"max_epochs": max_epochs, "staleness": staleness, "min_samples": min_samples}
    given |= {name: value for name, value in open_.items() if given[name] is None}
    return InForce(**{**given, "cycle_time_s": time_s}, paced=settings.cycle_time_s is None)


def deadlines(who: Sequence[LearnerState], costs: Coefficients, settings: InForce) -> float | FloatArray:
    """Return the cycle time, where it is ours for each learner at least what its least task takes.

    So nobody is left out for being slow by a cycle time that no one asked for.

    Parameters
    ----------
    who : sequence of LearnerState
        Of one allocation.
    costs : Coefficients
        Theirs, where an epoch is a whole round for those who do their own epochs.
    settings : InForce
        The cycle time.
    """
    works = [replace(x.own, epochs=1) for x in who if x.own is not None]
    if not settings.paced or len(works) < len(who):
        return settings.cycle_time_s
    needed = Round.of(works).least_time_s(costs, settings.min_samples)
    if (needed <= settings.cycle_time_s).all():
        return settings.cycle_time_s
    return np.maximum(needed, settings.cycle_time_s)


def deadline_s(settings: Settings, record: CycleRecord | None) -> float | None:
    """Return the seconds until a real learner's reply is dropped; None when deadlines are not enforced.

    Parameters
    ----------
    settings : Settings
        Whether they are.
    record : CycleRecord, optional
        With the cycle's T; there is none while everybody does its own round.
    """
    time_s = settings.cycle_time_s if record is None else record.cycle_time_s
    return time_s * (1 + settings.deadline_slack) if settings.enforce_deadline and time_s else None
