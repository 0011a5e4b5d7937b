"""Which scheme for this fleet: the paper's selection procedure, with regimes derived from the fleet.

The paper's Discussion asks whether time and energy are low, medium or high, and picks HA-Sync or HA-Asyn and
the c to cross-validate from that. Here the regimes follow from what the fleet could do with twice the time
or twice the energy, and every candidate is solved, so that the choice rests on predicted gains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from flwr_mel._validate import complain, count
from flwr_mel.aim import Aim, aim
from flwr_mel.allocation.allocate import Solver, allocate
from flwr_mel.allocation.handout import Handout
from flwr_mel.allocation.objectives import Objective
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.solution import Reason, Solution
from flwr_mel.fleets import Fleet
from flwr_mel.regimes import Advice, Regimes, paper_rule, regimes_of
from flwr_mel.solvers.equal import EqualBatches
from flwr_mel.solvers.exact import Exact, Exclude
from flwr_mel.solvers.schemes import SchemeName

#: Predictions closer than this are the same. A larger c is worth a try if it predicts that much more.
WORTH = 0.02

#: What the numbers predict, and how far that can be trusted.
PREDICTS = (
    "S = sum tau_k d_k^2 / d, the samples each learner passes weighted as the average weights them. With IID "
    "data shipped by the server, accuracy after a number of cycles followed S more closely than the mean "
    "epochs. S is not an accuracy: a gain of 50 % in S means fewer cycles, not 50 % fewer errors."
)
STARVES = (
    "it starves weak learners down to the least batch; where they hold data nobody else has (non-IID FL) "
    "that may cost accuracy, so measure it first"
)


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
class Recommendation:
    """The answer of `recommend`.

    Parameters
    ----------
    regimes : Regimes
        What limits the fleet.
    candidates : tuple of Candidate
        Highest predicted gain first; infeasible ones last.
    best : Candidate
        Of those within `WORTH` of the highest that nothing is known against, the one with the smallest c,
        then with the least energy.
    paper : Advice
        What the paper's rule says of these regimes.
    cross_validate : Advice
        Which c to try, by predicted gain.
    predicts : str
        What the gain is a prediction of.
    warnings : tuple of str
        What to keep in mind.
    aim : Aim or None
        The way to an accuracy or through a budget, where one was asked for.
    """

    regimes: Regimes
    candidates: tuple[Candidate, ...]
    best: Candidate
    paper: Advice
    cross_validate: Advice
    predicts: str
    warnings: tuple[str, ...]
    aim: Aim | None = None

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
    accuracy: float | None = None,
    time_budget_s: float | None = None,
    energy_budget_j: float | None = None,
    evidence: Mapping[float, tuple[float, float, float]] | None = None,
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
    accuracy, time_budget_s, energy_budget_j, evidence
        What is wanted, as for `flwr_mel.aim.aim`: then `Recommendation.aim` says which T, c, objective and
        average, and what to expect.
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
    regimes = regimes_of(problem)
    found = [(c, allocate(problem.replace(staleness=c.staleness), s, throw=False)) for c, s in _all(most)]
    base = found[0][1].progress
    judged = [_judge(c, s, base, regimes, bool(federated)) for c, s in found if not _repeats(c, s)]
    ranked = tuple(sorted(judged, key=lambda c: (-round(c.progress, 6), c.energy_j, c.staleness)))
    trusted = [c for c in ranked if not c.caution]
    close = [c for c in trusted if c.progress * (1 + WORTH) >= trusted[0].progress]
    best = min(close, key=lambda c: (c.staleness, c.energy_j))
    trial = worth_trying(best, ranked)
    warnings = _warnings(problem, ranked, bool(federated))
    wanted = {"accuracy": accuracy, "time_budget_s": time_budget_s, "energy_budget_j": energy_budget_j}
    goal = None
    if any(value is not None for value in wanted.values()):
        goal = aim(problem, **wanted, staleness_up_to=most, federated=bool(federated), evidence=evidence)
    return Recommendation(regimes, ranked, best, paper_rule(regimes, most), trial, PREDICTS, warnings, goal)


def _repeats(c: Candidate, s: Solution) -> bool:
    """Whether leaving stragglers out leaves nobody out."""
    return c.exclude == Exclude.OPTIMAL and Reason.STRAGGLER not in s.excluded.values()


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


def worth_trying(rule: Candidate, candidates: Sequence[Candidate]) -> Advice:
    """Keep the c that predict clearly more than the next smaller one kept.

    Parameters
    ----------
    rule : Candidate
        Whose hand-out, objective and exclusion.
    candidates : sequence of Candidate
        All of them.
    """
    keys = ("handout", "objective", "exclude")
    wanted = [getattr(rule, key) for key in keys]
    family = [c for c in candidates if c.progress > 0 and c.scheme[:2] == rule.scheme[:2]]
    family = [c for c in family if [getattr(c, key) for key in keys] == wanted]
    family.sort(key=lambda c: c.staleness)
    chosen = [family[0]]
    for c in family[1:]:
        if c.progress > chosen[-1].progress * (1 + WORTH):
            chosen.append(c)
    if len(chosen) == 1:
        text = f"no larger c predicts {WORTH:.0%} more"
    else:
        gained = chosen[-1].progress / chosen[0].progress - 1
        text = (
            f"each predicts at least {WORTH:.0%} more than the one before, {gained:+.0%} from first to last"
        )
    return Advice("ha-asyn" if chosen[-1].staleness else "ha-sync", tuple(c.staleness for c in chosen), text)


def _warnings(problem: AllocationProblem, ranked: tuple[Candidate, ...], federated: bool) -> tuple[str, ...]:
    found = []
    if federated:
        found.append(f"FL: a high S is not enough. Of {ranked[0].name} and its like: {STARVES}.")
    if not np.isfinite(problem.energy_limit_j).any():
        found.append("No learner has an energy limit, so only time is scarce.")
    if any(c.status == "feasible" for c in ranked):
        found.append("Some allocations are not proven optimal; their gains are lower bounds.")
    return tuple(found)
