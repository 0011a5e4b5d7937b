"""What each learner is asked to do in a cycle: one verdict per learner."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flwr_mel.cycle.learner import Learner
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.population import Follows, Population


class Do(Enum):
    """Kinds of verdicts."""

    PLAN = "gets epochs and samples from the allocation"
    OWN = "does the project's own work, which is measured"
    TIMED = "does as much as it can in the round time, which is measured"
    SMALL = "does a small task, which is measured"
    SKIP = "has no task"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one learner is asked to do.

    Parameters
    ----------
    do : Do
        The kind.
    reason : str
        Why it is skipped, never empty then; otherwise "".
    first : bool
        Whether the learner is measured for the first time.
    """

    do: Do
    reason: str = ""
    first: bool = False

    def __post_init__(self) -> None:
        if (self.do is Do.SKIP) != bool(self.reason):
            raise ValueError(f"a skipped learner has a reason, the others have none: {self}")

    @classmethod
    def skip(cls, reason: object) -> Verdict:
        """Return the verdict of a learner without a task."""
        return cls(Do.SKIP, str(reason))


def decide(x: Learner, options: Options, population: Population, cycle: int) -> Verdict:
    """Return the verdict on a learner. The allocation may still skip it.

    Parameters
    ----------
    x : Learner
        Sampled for this cycle.
    options : Options
        What the user asks for.
    population : Population
        The learners that are known.
    cycle : int
        The cycle that is planned.
    """
    if not (reason := unable(x, options)) and cycle < x.patience.until and not options.rounds.observe:
        reason = "it needs more than the round time" if x.patience.slow else "it did not reply in time"
        reason += f", and is asked again in round {x.patience.until}"
    if reason:
        return Verdict.skip(reason)
    if options.rounds.observe:
        return Verdict(Do.OWN)
    if unmeasured(x, options, population):
        return Verdict(_first_task(x, options, population), first=True)
    if x.patience.slow:
        return again(x, options)
    if options.shards is None and (population.follows is Follows.NOTHING or x.behaviour.own_tasks):
        return _own(x, options)
    return Verdict(Do.PLAN)


def unable(x: Learner, options: Options) -> str:
    """Return why a learner cannot be given work; "" if it can.

    Parameters
    ----------
    x : Learner
        Sampled for this cycle.
    options : Options
        What the user asks for.
    """
    identity, private = x.identity, options.shards is not None and not options.shards.over_tls
    reasons = (
        (x.data == 0, "it declares that it has no samples"),
        (private and not identity.answered, "it has not answered, so it may be outside the simulation"),
        (private and not identity.modded, "it has no mel_mod, so it may be outside the simulation"),
        (x.estimate is not None, ""),
        (not identity.answered, identity.problem or "it has not answered yet"),
        (not identity.modded, identity.problem or "it has no mel_mod"),
        (bool(x.profile.problem), x.profile.problem),
    )
    return next((reason for applies, reason in reasons if applies), "")


def unmeasured(x: Learner, options: Options, population: Population) -> bool:
    """Whether a learner has to be measured before it can be planned for.

    Parameters
    ----------
    x : Learner
        Sampled for this cycle.
    options : Options
        What the user asks for.
    population : Population
        The learners that are known.
    """
    if x.estimate is None:
        return True
    if options.shards is not None:
        return False
    if x.data is None and (options.total_samples is None or options.time_s is None):
        return True
    # T is derived from the project's own work, whose number of epochs shows in the first tasks.
    return options.time_s is None and not options.best and not population.measured


def _first_task(x: Learner, options: Options, population: Population) -> Do:
    """Return how a learner is measured that is not known yet."""
    if options.shards is not None or x.patience.tries:
        return Do.SMALL
    if not population.measured:
        return Do.SMALL if options.best else Do.OWN
    if population.follows is Follows.NOTHING:
        return Do.OWN
    if population.stops:
        return Do.TIMED
    if options.best:
        return Do.OWN if population.follows is Follows.EPOCHS else Do.SMALL
    return Do.PLAN


def again(x: Learner, options: Options) -> Verdict:
    """Return the verdict on a learner that was too slow: one small task, if its energy allows that.

    Parameters
    ----------
    x : Learner
        With an estimate.
    options : Options
        What the user asks for.
    """
    limit, estimate = x.profile.energy_limit_j, x.estimate
    if limit is not None and estimate is not None:
        g2, g1, g0 = estimate.costs()[3:]
        if g0 + (g1 + g2) * options.least_samples > limit:
            return Verdict.skip("one epoch on the smallest batch does not fit into its energy limit")
    return Verdict(Do.SMALL)


def _own(x: Learner, options: Options) -> Verdict:
    """Return the verdict on a learner that does its own work whatever its task is, if that fits T and E_k."""
    seconds, joules = own_costs(x)
    limit, used = x.profile.energy_limit_j, ""
    if options.time_s is not None and seconds > options.time_s and not x.behaviour.stops:
        used = f"takes {seconds:.3g} s of T = {options.time_s:g} s"
    elif limit is not None and joules > limit:
        used = f"uses {joules:.3g} J of {limit:g} J"
    if used:
        return Verdict.skip(
            f"it does not follow its task, and its own work {used}. Use Assignment in the client"
        )
    return Verdict(Do.OWN)


def own_costs(x: Learner) -> tuple[float, float]:
    """Return seconds and joules of the project's own work, as far as they are known."""
    work = x.own_trained
    if x.estimate is None or x.data is None or work is None:
        return 0.0, 0.0
    c2, c1, c0, g2, g1, g0 = x.estimate.costs(expected=True)
    return c2 * work + c1 * x.data + c0, g2 * work + g1 * x.data + g0
