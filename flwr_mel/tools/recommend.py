"""Which scheme and which c for a fleet: the two steps of the paper's Discussion, with regimes from the fleet.

The paper asks whether time and energy are low, medium or high, and picks HA-Sync or HA-Asyn and the c to
cross-validate from that. Here the regimes follow from what twice the time or twice the energy would bring,
and every candidate is solved, so that the choice rests on predicted gains. The thresholds are ours: the paper
has no numbers. docs/CLI.md has the evidence. Short rounds, whose T follows from the costs, stand beside
the candidates: S is about cycles of one length and cannot rank them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import floor, log

from flwr_mel._validate import complain, count
from flwr_mel.allocation import AllocationProblem, Handout, Infeasible, Solution, Solver, allocate
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import diagnose, screen
from flwr_mel.solvers import Exact
from flwr_mel.solvers.rate import Rate, best_round

#: A resource is low from this share of the joint gain on, and high up to the other.
LOW_SHARE, HIGH_SHARE = 0.6, 0.2
#: Resources in sum are very low while fewer relaxed epochs than this fit, abundant from the other on.
SCARCE_EPOCHS, ABUNDANT_EPOCHS = 3.0, 8.0
#: Predictions closer than this are the same. A larger c is worth a try if it predicts that much more.
WORTH = 0.02
#: Frugalities of the short rounds: time only, and much less energy.
FRUGALITIES = (0.0, 0.25)


class Level(StrEnum):
    """How much of a resource there is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Resource:
    """Time or energy, judged by what twice of it would bring.

    Parameters
    ----------
    level : Level
        Low if `share` is at least `LOW_SHARE`, high if it is at most `HIGH_SHARE`.
    doubled : float
        tau* with twice of it, over tau*.
    share : float
        log(doubled) over the same with both doubled: which part of the joint gain it accounts for.
    """

    level: Level
    doubled: float
    share: float


@dataclass(frozen=True, slots=True)
class Regimes:
    """What the fleet lacks.

    Parameters
    ----------
    relaxed_epochs : float
        tau*, the relaxed synchronous optimum.
    rounding : float
        tau* / floor(tau*): loss of HA-Sync by rounding, and most of what staleness can win back.
    amount : Level
        Low below `SCARCE_EPOCHS` relaxed epochs, high from `ABUNDANT_EPOCHS` on.
    time, energy : Resource
        Which of the two it is that limits.
    """

    relaxed_epochs: float
    rounding: float
    amount: Level
    time: Resource
    energy: Resource


@dataclass(frozen=True, slots=True)
class Advice:
    """A scheme, the c to cross-validate, and why."""

    scheme: str
    staleness: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to allocate, and what it is predicted to bring per cycle.

    `progress` is S = sum tau_k d_k^2 / d, the samples each learner passes weighted as the average weights
    them; `gain` is S over that of HA-Sync with the paper's proportional hand-out, minus 1. With IID data
    shipped by the server, accuracy after a number of cycles followed S more closely than the mean epochs. An
    infeasible candidate has zeros.
    """

    name: str
    scheme: str
    staleness: int
    handout: Handout
    status: str = ""
    mean_epochs: float = 0.0
    progress: float = 0.0
    energy_j: float = 0.0
    participants: int = 0
    gain: float = -1.0


@dataclass(frozen=True, slots=True)
class ShortRound:
    """A cycle of `best_round`, within the mean power that the energy limits are in a cycle of T seconds.

    `energy_j` is of all learners in one such cycle.
    """

    frugality: float
    cycle_time_s: float
    samples: int
    energy_j: float
    participants: int


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer of `recommend`.

    Parameters
    ----------
    regimes : Regimes
        What limits the fleet.
    candidates : tuple of Candidate
        Highest predicted gain first; infeasible ones last.
    best : Candidate
        Of those within `WORTH` of the highest: smallest c, then least energy.
    paper : Advice
        What the paper's rule says of these regimes.
    cross_validate : Advice
        Which c to try, by predicted gain.
    short : tuple of ShortRound
        Where T is free: short rounds, for time only and with some frugality.
    """

    regimes: Regimes
    candidates: tuple[Candidate, ...]
    best: Candidate
    paper: Advice
    cross_validate: Advice
    short: tuple[ShortRound, ...]


def recommend(
    problem: AllocationProblem, *, staleness_up_to: int = 5, federated: bool = False
) -> Recommendation:
    """Rank the ways to allocate by predicted gain, and say which c to cross-validate.

    Parameters
    ----------
    problem : AllocationProblem
        The learners and the limits; its staleness does not matter.
    staleness_up_to : int
        The largest c considered.
    federated : bool
        Whether the data stay with the learners. Then the strongest-first hand-out is no candidate: it gives
        weak learners the smallest batch only, and they may hold data that no other learner has.

    Raises
    ------
    Infeasible
        If no allocation keeps all limits.
    """
    if not isinstance(problem, AllocationProblem):
        raise complain("problem", "an AllocationProblem", problem, "Of a fleet: fleet.problem(...).")
    most, problem = count("staleness_up_to", staleness_up_to), problem.replace(staleness=0)
    regimes = regimes_of(problem)
    found = [
        (c, allocate(problem.replace(staleness=c.staleness), s, throw=False))
        for c, s in _all(most, federated)
    ]
    first = found[0][1]
    if first.diagnosis is not None and not any(s.status.ok for _, s in found):
        raise Infeasible(first.diagnosis)
    base = first.progress
    judged = [_judge(c, s, base) for c, s in found]
    ranked = tuple(sorted(judged, key=lambda c: (-round(c.progress, 6), c.energy_j, c.staleness)))
    close = [c for c in ranked if c.progress * (1 + WORTH) >= ranked[0].progress]
    best = min(close, key=lambda c: (c.staleness, c.energy_j))
    return Recommendation(
        regimes,
        ranked,
        best,
        paper=paper_rule(regimes, most),
        cross_validate=worth_trying(best, ranked),
        short=tuple(_short(problem, frugality) for frugality in FRUGALITIES),
    )


# Step one: regimes, and the paper's rule


def regimes_of(problem: AllocationProblem) -> Regimes:
    """Ask what twice the time, twice the energy, or both would bring; Infeasible if nothing fits."""
    every = Capacities.of(problem)
    able = screen(every)[0]
    mine = every.take(able)
    if not len(able) or mine.at(1).sum() < problem.total_samples:
        raise Infeasible(diagnose(problem))

    def relaxed(time: float, energy: float) -> float:
        # The learners stay the same: one more straggler would hide what the rest gains.
        t, e = mine.cycle_time_s * time, mine.energy_limit_j * energy
        return relaxed_synchronous(replace(mine, cycle_time_s=t, energy_limit_j=e), problem.total_samples)

    tau = relaxed(1, 1)
    both = relaxed(2, 2) / tau
    resources = {}
    for name, factor in (("time", relaxed(2, 1) / tau), ("energy", relaxed(1, 2) / tau)):
        share = log(max(factor, 1.0)) / log(both) if both > 1 else 0.0
        level = Level.LOW if share >= LOW_SHARE else Level.HIGH if share <= HIGH_SHARE else Level.MEDIUM
        resources[name] = Resource(level, factor, share)
    amount = Level.LOW if tau < SCARCE_EPOCHS else Level.HIGH if tau >= ABUNDANT_EPOCHS else Level.MEDIUM
    return Regimes(tau, tau / floor(tau), amount, **resources)


def paper_rule(regimes: Regimes, most: int) -> Advice:
    """Apply the two steps of the paper's Discussion, for c up to `most`."""
    levels = {regimes.time.level, regimes.energy.level}
    state = f"time is {regimes.time.level}, energy {regimes.energy.level}, epochs {regimes.amount}"
    few = tuple(range(1, min(most, 2) + 1))
    many = tuple(range(3, most + 1)) or few
    if regimes.amount is Level.LOW:
        return Advice("ha-asyn", few, f"{state}: in the very low region c = 1 and 2 may suffice")
    if regimes.amount is Level.HIGH:
        return Advice("ha-asyn", many, f"{state}: with abundant resources use c of 3 or more")
    if Level.HIGH in levels:
        return Advice("ha-asyn", many, f"{state}: a resource is abundant, use c of 3 or more")
    if Level.LOW in levels:
        return Advice("ha-asyn", few, f"{state}: a resource is low")
    return Advice("ha-sync", (0,), f"{state}: in the medium range HA-Sync works best")


# Step two: candidates by predicted gain, and the c that are worth a try


def _all(most: int, federated: bool) -> Iterator[tuple[Candidate, Solver]]:
    """List the candidates with their solvers; the first is the base of all gains."""
    for c in range(most + 1):
        name = f"HA-Asyn c={c}" if c else "HA-Sync"
        scheme = "ha-asyn" if c else "ha-sync"
        yield Candidate(name, scheme, c, Handout.PROPORTIONAL), Exact()
        if not federated:
            rule = Handout.STRONGEST_FIRST
            yield Candidate(f"{name}, {rule}", scheme, c, rule), Exact(handout=rule)


def _judge(c: Candidate, s: Solution, base: float) -> Candidate:
    """Fill in what a candidate's allocation brings."""
    if not s.status.ok:
        return replace(c, status=str(s.status))
    return replace(
        c,
        status=str(s.status),
        mean_epochs=s.mean_epochs,
        progress=s.progress,
        energy_j=float(s.energy_j.sum()),
        participants=int((s.epochs > 0).sum()),
        gain=s.progress / base - 1 if base else 0.0,
    )


def worth_trying(rule: Candidate, candidates: Sequence[Candidate]) -> Advice:
    """Of one hand-out, keep the c that predict clearly more than the next smaller one kept."""
    alike = [c for c in candidates if c.handout == rule.handout and c.progress > 0]
    family = sorted(alike, key=lambda c: c.staleness)
    chosen = family[:1]
    for c in family[1:]:
        if c.progress > chosen[-1].progress * (1 + WORTH):
            chosen.append(c)
    text = f"no larger c predicts {WORTH:.0%} more"
    if len(chosen) > 1:
        gained = chosen[-1].progress / chosen[0].progress - 1
        text = f"each predicts at least {WORTH:.0%} more than the one before, {gained:+.0%} in all"
    return Advice("ha-asyn" if chosen[-1].staleness else "ha-sync", tuple(c.staleness for c in chosen), text)


def _short(problem: AllocationProblem, frugality: float) -> ShortRound:
    """Return a short round of the same learners."""
    rate = Rate(frugality=frugality, reference_s=problem.cycle_time_s)
    found = best_round(
        problem.coefficients, problem.energy_limit_j, max_samples=problem.max_samples, objective=rate
    )
    s = found.solution
    energy_j, took = float(s.energy_j.sum()), int((s.samples > 0).sum())
    return ShortRound(frugality, found.cycle_time_s, int(s.samples.sum()), energy_j, took)
