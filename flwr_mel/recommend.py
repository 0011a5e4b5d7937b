"""Which scheme for this fleet: the paper's selection procedure, with regimes derived from the fleet.

The paper's Discussion asks whether time and energy are low, medium or high, and picks HA-Sync or HA-Asyn and
the c to cross-validate from that. Here the regimes follow from what the fleet could do with twice the time
or twice the energy, and every candidate is solved, so that the choice rests on predicted gains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from math import floor, log
from typing import Any

import numpy as np

from flwr_mel._validate import complain, count
from flwr_mel.allocation.allocate import Solver, allocate
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.handout import Handout
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.schemes import SchemeName
from flwr_mel.allocation.screening import diagnose, screen
from flwr_mel.allocation.solution import Infeasible, Objective, Solution
from flwr_mel.learners.fleet import Fleet
from flwr_mel.solvers.equal import EqualBatches
from flwr_mel.solvers.exact import Exact, Exclude

#: A resource is low from this share of the joint gain on, and high up to the other.
LOW_SHARE, HIGH_SHARE = 0.6, 0.2

#: Resources in sum are very low while fewer relaxed epochs than this fit, abundant from the other on.
SCARCE_EPOCHS, ABUNDANT_EPOCHS = 3.0, 8.0

#: A larger c is worth a cross-validation if it predicts this much more than every smaller one.
WORTH = 0.02

#: What the numbers predict, and how far that can be trusted.
PREDICTS = (
    "S = sum tau_k d_k^2 / d, the samples each learner passes weighted as the average weights them. With IID "
    "data shipped by the server, accuracy after a number of cycles followed S more closely than the mean "
    "epochs. S is not an accuracy: a gain of 50 % in S means fewer cycles, not 50 % fewer errors."
)
STARVES = (
    "it starves weak learners down to the least batch; where they hold data nobody else has (non-IID FL) that "
    "may cost accuracy, so measure it first"
)


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
    binds : int
        Learners whose batch it stops first at floor(tau*) epochs.
    """

    level: Level
    doubled: float
    share: float
    binds: int


@dataclass(frozen=True, slots=True)
class Regimes:
    """What the fleet lacks.

    Parameters
    ----------
    relaxed_epochs : float
        tau*, the relaxed synchronous optimum.
    rounding : float
        tau* / floor(tau*): what whole epochs cost HA-Sync, and most of what staleness can win back.
    amount : Level
        Low below `SCARCE_EPOCHS` relaxed epochs, high from `ABUNDANT_EPOCHS` on.
    time, energy : Resource
        Which of the two it is that limits.
    both_doubled, unlimited_energy : float
        tau* with both doubled, and without energy limits, over tau*.
    bound_by_data : int
        Learners stopped by their own data first.
    """

    relaxed_epochs: float
    rounding: float
    amount: Level
    time: Resource
    energy: Resource
    both_doubled: float
    unlimited_energy: float
    bound_by_data: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to allocate, and what it is predicted to bring per cycle.

    Parameters
    ----------
    name, scheme, staleness, handout, objective, exclude
        Which. `handout` is empty where the batches follow from something else.
    status : str
        Of its allocation; "infeasible" candidates have zeros.
    mean_epochs, sample_epochs, progress : float
        Mean of tau_k, sum of tau_k d_k, and S.
    energy_j, makespan_s : float
        Sum over the learners, and the last report.
    participants, samples : int
        Learners that take part, samples used.
    gain : float
        S over that of HA-Sync with the paper's proportional hand-out, minus 1.
    reason : str
        In words.
    caution : str
        Why not to trust the gain blindly; empty if nothing is known against it.
    """

    name: str
    scheme: str
    staleness: int
    handout: str
    objective: str
    exclude: str
    status: str
    mean_epochs: float = 0.0
    sample_epochs: int = 0
    progress: float = 0.0
    energy_j: float = 0.0
    makespan_s: float = 0.0
    participants: int = 0
    samples: int = 0
    gain: float = 0.0
    reason: str = ""
    caution: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """A scheme, the c to cross-validate, and why."""

    scheme: str
    staleness: tuple[int, ...]
    reason: str


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
        The highest one that nothing is known against.
    paper : Advice
        What the paper's rule says of these regimes.
    cross_validate : Advice
        Which c to try, by predicted gain.
    predicts : str
        What the gain is a prediction of.
    warnings : tuple of str
        What to keep in mind.
    """

    regimes: Regimes
    candidates: tuple[Candidate, ...]
    best: Candidate
    paper: Advice
    cross_validate: Advice
    predicts: str
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    return str(value) if isinstance(value, StrEnum) else value


def recommend(
    problem: AllocationProblem | Fleet,
    *,
    staleness_up_to: int = 5,
    federated: bool | None = None,
    **limits: Any,
) -> Recommendation:
    """Rank the ways to allocate by predicted gain, and say which c to cross-validate.

    Parameters
    ----------
    problem : AllocationProblem or Fleet
        The learners and the limits; its staleness does not matter.
    staleness_up_to : int
        The largest c considered.
    federated : bool, optional
        Whether the data stay with the learners, so that who is starved may matter. None: as the fleet's
        workload says; of a bare problem, False.
    **limits
        With a fleet: what `Fleet.problem` takes (cycle_time_s, total_samples, ...).

    Raises
    ------
    Infeasible
        If no allocation keeps all limits.
    """
    if isinstance(problem, Fleet):
        if federated is None:
            federated = not problem.job(limits.get("workload")).ship_data
        problem = problem.problem(**limits)
    elif not isinstance(problem, AllocationProblem):
        raise complain("problem", "an AllocationProblem or a Fleet", problem)
    elif limits:
        raise complain("limits", "left out: the problem has its own", ", ".join(limits))
    most = count("staleness_up_to", staleness_up_to)
    problem = problem.replace(staleness=0)
    regimes = _regimes(problem)
    found = [(c, allocate(problem.replace(staleness=c.staleness), s, throw=False)) for c, s in _all(most)]
    base = found[0][1].progress
    judged = [_judge(c, s, base, regimes, bool(federated)) for c, s in found]
    ranked = tuple(sorted(judged, key=lambda c: (-round(c.progress, 6), c.energy_j, c.staleness)))
    best = next((c for c in ranked if not c.caution), ranked[0])
    trial = _worth_trying(best, judged)
    warnings = _warnings(problem, judged, ranked, bool(federated))
    return Recommendation(regimes, ranked, best, _paper(regimes, most), trial, PREDICTS, warnings)


def _all(most: int) -> Iterator[tuple[Candidate, Solver]]:
    """List the candidates with their solvers; the first is the base of all gains."""
    for c in range(most + 1):
        scheme, name = (SchemeName.HA_ASYN, f"HA-Asyn c={c}") if c else (SchemeName.HA_SYNC, "HA-Sync")
        for rule in Handout:
            label = name if rule is Handout.PROPORTIONAL else f"{name}, {rule}"
            yield _candidate(label, scheme, c, handout=rule), Exact(handout=rule)
        weak = Exact(exclude=Exclude.OPTIMAL)
        yield _candidate(f"{name}, without stragglers", scheme, c, exclude=Exclude.OPTIMAL), weak
        label = f"{name}, progress"
        yield _candidate(label, scheme, c, objective=Objective.PROGRESS), Exact(objective=Objective.PROGRESS)
        hu = (SchemeName.HU_ASYN, f"HU-Asyn c={c}") if c else (SchemeName.HU_SYNC, "HU-Sync")
        yield replace(_candidate(hu[1], hu[0], c), handout=""), EqualBatches()


def _candidate(
    name: str,
    scheme: str,
    staleness: int,
    handout: Handout = Handout.PROPORTIONAL,
    objective: Objective = Objective.EPOCHS,
    exclude: Exclude = Exclude.INFEASIBLE,
) -> Candidate:
    rule = "" if objective is Objective.PROGRESS else str(handout)
    return Candidate(name, str(scheme), staleness, rule, str(objective), str(exclude), "")


def _judge(c: Candidate, s: Solution, base: float, regimes: Regimes, federated: bool) -> Candidate:
    """Fill in what a candidate's allocation brings, and why."""
    if not s.status.ok:
        text = str(s.diagnosis).split(";", maxsplit=1)[0]
        return replace(c, status=str(s.status), gain=-1.0, reason=text)
    starving = c.objective == Objective.PROGRESS or c.handout == Handout.STRONGEST_FIRST
    judged = replace(
        c,
        status=str(s.status),
        mean_epochs=s.mean_epochs,
        sample_epochs=int((s.epochs * s.samples).sum()),
        progress=s.progress,
        energy_j=float(s.energy_j.sum()),
        makespan_s=float(s.time_s.max()),
        participants=int((s.epochs > 0).sum()),
        samples=int(s.samples.sum()),
        gain=s.progress / base - 1,
        caution=STARVES if federated and starving else "",
    )
    return replace(judged, reason="; ".join(_reasons(judged, s, regimes)))


def _reasons(c: Candidate, s: Solution, regimes: Regimes) -> Iterator[str]:
    if c.scheme.startswith("hu"):
        yield "equal batches: the slowest learners hold everybody back"
    elif c.staleness:
        yield f"unequal epochs use time that rounding {regimes.relaxed_epochs:.2f} epochs down leaves idle"
    else:
        yield f"everybody does {int(s.epochs.max())} of {regimes.relaxed_epochs:.2f} epochs that would fit"
    if c.objective == Objective.PROGRESS:
        yield "large batches go where they count most"
    elif c.handout == Handout.STRONGEST_FIRST:
        yield "the strongest are filled first, the others save energy"
    elif c.handout == Handout.EVEN:
        yield "batches as even as the limits allow"
    out = len(s.epochs) - c.participants
    if out:
        yield f"{out} of {len(s.epochs)} learners do not take part"
    if c.status == "partial":
        yield f"only {c.samples:,} samples are used"


def _regimes(problem: AllocationProblem) -> Regimes:
    """Ask what twice the time, twice the energy, or both would bring."""
    able = screen(Capacities.of(problem))[0]
    mine = Capacities.of(problem).take(able)
    if not len(able) or mine.at(1).sum() < problem.total_samples:
        raise Infeasible(diagnose(problem))

    def relaxed(time: float = 1.0, energy: float = 1.0) -> float:
        # The learners stay the same: one more straggler would hide what the rest gains.
        changed = replace(
            mine, cycle_time_s=mine.cycle_time_s * time, energy_limit_j=mine.energy_limit_j * energy
        )
        return relaxed_synchronous(changed, problem.total_samples)

    tau = relaxed()
    doubled = {"time": relaxed(2, 1) / tau, "energy": relaxed(1, 2) / tau}
    both, free = relaxed(2, 2) / tau, relaxed(1, np.inf) / tau
    binds = Counter(_tightest(mine, floor(tau)))
    resources = {}
    for name, factor in doubled.items():
        share = log(factor) / log(both) if both > 1 else 0.0
        level = Level.LOW if share >= LOW_SHARE else Level.HIGH if share <= HIGH_SHARE else Level.MEDIUM
        resources[name] = Resource(level, factor, share, binds[name])
    amount = Level.LOW if tau < SCARCE_EPOCHS else Level.HIGH if tau >= ABUNDANT_EPOCHS else Level.MEDIUM
    return Regimes(tau, tau / floor(tau), amount, **resources, both_doubled=both, unlimited_energy=free,
                   bound_by_data=binds["data"])


def _tightest(mine: Capacities, epochs: int) -> list[str]:
    """Say what stops each learner's batch first."""
    alone = (
        replace(mine, energy_limit_j=np.full(len(mine), np.inf), most=np.full_like(mine.most, 2**40)),
        replace(mine, cycle_time_s=np.inf, most=np.full_like(mine.most, 2**40)),
    )
    caps = np.stack([*(a.relaxed(float(epochs)) for a in alone), mine.most])
    return [("time", "energy", "data")[i] for i in caps.argmin(axis=0)]


def _paper(regimes: Regimes, most: int) -> Advice:
    """Apply the two steps of the paper's Discussion."""
    levels = {regimes.time.level, regimes.energy.level}
    said = f"time is {regimes.time.level}, energy {regimes.energy.level}, epochs {regimes.amount}"
    few = tuple(range(1, min(most, 2) + 1))
    many = tuple(range(3, most + 1)) or few
    if regimes.amount is Level.LOW:
        return Advice("ha-asyn", few, f"{said}: in the very low region c = 1 and 2 may suffice")
    if regimes.amount is Level.HIGH:
        return Advice("ha-asyn", many, f"{said}: with abundant resources take c from 3 on")
    if Level.HIGH in levels:
        return Advice("ha-asyn", many, f"{said}: one resource is low and the other abundant, take c from 3 on")
    if Level.LOW in levels:
        return Advice("ha-asyn", few, f"{said}: a resource is low")
    return Advice("ha-sync", (0,), f"{said}: in the medium range HA-Sync works best")


def _worth_trying(best: Candidate, judged: list[Candidate]) -> Advice:
    """Keep the c that predict clearly more than every smaller one, for the best candidate's rule."""
    keys = ("handout", "objective", "exclude")
    rule = [getattr(best, key) for key in keys]
    family = [c for c in judged if c.scheme.startswith(best.scheme[:2])]
    family = [c for c in family if [getattr(c, key) for key in keys] == rule and c.progress > 0]
    chosen: list[int] = []
    reach = 0.0
    for c in sorted(family, key=lambda c: c.staleness):
        if c.progress > reach * (1 + WORTH):
            chosen.append(c.staleness)
        reach = max(reach, c.progress)
    gained = family[-1].progress / family[0].progress - 1
    text = (
        f"each predicts at least {WORTH:.0%} more than every smaller c; c = {family[-1].staleness} "
        f"predicts {gained:+.0%} over c = {family[0].staleness}"
    )
    return Advice("ha-asyn" if chosen[-1] else "ha-sync", tuple(chosen), text)


def _warnings(
    problem: AllocationProblem, judged: list[Candidate], ranked: tuple[Candidate, ...], federated: bool
) -> tuple[str, ...]:
    found = []
    if federated:
        found.append(f"FL: a high S is not enough. Of {ranked[0].name} and its like: {STARVES}.")
    if not np.isfinite(problem.energy_limit_j).any():
        found.append("No learner has an energy limit, so only time is scarce.")
    if any(c.status == "feasible" for c in judged):
        found.append("Some allocations are not proven optimal; their gains are lower bounds.")
    return tuple(found)
