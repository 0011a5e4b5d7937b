"""``flwr-mel plan``: allocate epochs and samples to a fleet, compare schemes, ask the inverse questions."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from flwr_mel.allocation import Handout, Infeasible, Solution, Solver, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.solution import round_up
from flwr_mel.paper import DEFAULT_STALENESS
from flwr_mel.solvers import Exact
from flwr_mel.solvers.exact import Exclude
from flwr_mel.solvers.inverse import fastest, greenest
from flwr_mel.solvers.rate import LEAST, RESOLUTION, Rate, best_round
from flwr_mel.solvers.schemes import SchemeName, scheme
from flwr_mel.tools import question as q
from flwr_mel.tools.plan_table import print_table, rows_of
from flwr_mel.tools.question import Question, limit, refuse
from flwr_mel.tools.shell import bad_input, console, facts, grid, refuse_given, stop, title

_FOREVER = 1e9
_T = "Seconds per cycle, T; best: T and the samples follow from the costs. Leave it out with --fastest."
_D = f"{q.SAMPLES} Leave it out with --cycle-time best."
_F = "With --cycle-time best: 0 for time only, 0.25 saves much energy."
_PER = (
    "With --cycle-time best: energy limits apply per this many seconds, as a mean power. Default: per cycle."
)
_C = f"Largest difference between two learners' epochs, c; 0 is synchronous. Default: {DEFAULT_STALENESS}."
_EXCLUDE = "Skip only learners that cannot take part (the default), or also stragglers."


def _how(text: str, *names: str, **more: Any) -> Any:
    """Make an option of the panel on how to allocate."""
    return typer.Option(*names, help=text, rich_help_panel="How to allocate", **more)


def plan(
    file: q.FleetFile,
    samples: Annotated[int | None, limit(_D, parser=q.whole)] = None,
    cycle_time: Annotated[str | None, limit(_T, metavar="SECONDS|best")] = None,
    energy: q.Energy = None,
    staleness: Annotated[int | None, limit(_C)] = None,
    min_samples: q.LeastBatch = 0,
    max_epochs: q.MaxEpochs = None,
    mode: q.Where = None,
    handout: Annotated[Handout | None, _how("Rule by which samples are handed out.")] = None,
    exclude: Annotated[Exclude | None, _how(_EXCLUDE)] = None,
    frugality: Annotated[float, _how(_F)] = 0.0,
    energy_per: Annotated[float | None, _how(_PER, metavar="SECONDS")] = None,
    compare: Annotated[bool, _how("The paper's four schemes side by side.", "--compare")] = False,
    fastest: Annotated[int | None, _how("Shortest cycle for N epochs of every learner.", metavar="N")] = None,
    greenest: Annotated[int | None, _how("Least energy for N epochs of every learner.", metavar="N")] = None,
    json: q.Json = False,
) -> None:
    """Plan a cycle: epochs and samples per learner, within time, energy and staleness.

    FLEET is a TOML file, or - for stdin. Write an example
    with: flwr-mel fleet --paper

    The table shows the task of each learner, the time and energy that the task
    takes, and what limits it: time, energy, data, staleness or max_epochs.

    Exit codes: 0 done, 2 bad input, 3 infeasible (stderr states values that would
    work), 4 the environment.

    Try:

    flwr-mel plan fleet.toml --cycle-time 10 --samples 60000 --staleness 2

    flwr-mel plan fleet.toml --cycle-time 10 --samples 60000 --energy 20 --compare

    flwr-mel plan fleet.toml --cycle-time best --frugality 0.25

    flwr-mel plan fleet.toml --samples 60000 --fastest 3

    flwr-mel plan fleet.toml --cycle-time 30 --samples 60000 --greenest 3 --json
    """
    asked = [f"--{name}" for name, n in (("fastest", fastest), ("greenest", greenest)) if n is not None]
    asked += ["--compare"] * compare
    if len(asked) > 1:
        stop(f"{asked[0]} and {asked[1]} exclude each other: give one of them")
    if compare:
        refuse_given("with --compare, whose schemes are the paper's", "exclude")
    elif asked:
        fixed = ("handout", "exclude", "staleness", "max_epochs")
        refuse_given(f"with {asked[0]}, which fixes the epochs of all learners", *fixed)
    if fastest is not None:
        refuse_given("with --fastest, which computes it", "cycle_time")
    elif cycle_time is None:
        stop("--cycle-time must be given, in seconds, got nothing. Leave it out with --fastest")
    pose = partial(q.pose, file, energy=energy, mode=mode, json=json)
    if cycle_time == "best":
        if asked:
            stop(f"--cycle-time must be seconds with {asked[0]}, got 'best'")
        idle = ("samples", "staleness", "max_epochs", "handout", "exclude")
        refuse_given("with --cycle-time best, which chooses T and one pass over some samples", *idle)
        least = min_samples or LEAST
        # Without a time limit: reads the costs, the limits of energy and the data.
        question = pose(cycle_time_s=_FOREVER, total_samples=least, min_samples=least, max_epochs=1)
        with bad_input(q.OPTIONS):
            rate = Rate(frugality=frugality, reference_s=energy_per)
            _best(question, rate, least)
        return
    refuse_given("without --cycle-time best", "frugality", "energy_per")
    if samples is None:
        stop("--samples must be given, got nothing. Leave it out with --cycle-time best")
    solver = Exact(handout=handout or Handout.PROPORTIONAL, exclude=exclude or Exclude.INFEASIBLE)
    question = pose(
        cycle_time_s=_seconds(cycle_time),
        total_samples=samples,
        staleness=DEFAULT_STALENESS if staleness is None else staleness,
        min_samples=min_samples,
        max_epochs=max_epochs,
    )
    with bad_input(q.OPTIONS | {"epochs": asked[0] if asked else "--max-epochs"}):
        if compare:
            _compare(question, solver)
        elif asked:
            _inverse(question, asked[0].removeprefix("--"), fastest or greenest or 0)
        else:
            _plan(question, solver)


def _seconds(text: str | None) -> float:
    """Read T; --fastest looks for it, so that any will do."""
    try:
        return float(text or 1.0)
    except ValueError:
        stop(f"--cycle-time must be seconds or best, got {text!r}")


# Answers


def _plan(question: Question, solver: Exact) -> None:
    """Allocate and print."""
    problem = question.problem
    solution = allocate(problem, solver, throw=False)
    if solution.diagnosis is not None:
        refuse(question, solution.diagnosis)
    rows = rows_of(question.names, problem, solution)
    if question.json:
        question.print_json({**_summary(solution), "learners": rows})
        return
    out = console()
    title(out, f"Plan of {question.file}", question.headline())
    print_table(out, rows)
    gap = f"gap {solution.gap:.2%}" if solution.gap else "no gap"
    done = sorted(Counter(int(tau) for tau in solution.epochs if tau).items())
    pairs = [
        ("mean epochs", f"{solution.mean_epochs:.4g} (sum {int(solution.epochs.sum()):,})"),
        ("bound", f"{solution.bound:,.5g}, {gap}. {solution.status.explanation}"),
        ("epochs", ", ".join(f"{n:,} x {epochs}" for epochs, n in done)),
        ("samples", f"{int(solution.samples.sum()):,} of {problem.total_samples:,}"),
        ("last report", f"{float(solution.time_s.max()):.4g} of {problem.cycle_time_s:.4g} s"),
        ("energy", f"{float(solution.energy_j.sum()):.4g} J in total"),
    ]
    facts(out, pairs)


def _summary(solution: Solution) -> dict[str, Any]:
    """Return the outcome without the learners."""
    return {
        "status": str(solution.status),
        "explanation": solution.status.explanation,
        "objective": str(solution.objective),
        "value": solution.value,
        "bound": solution.bound,
        "gap": solution.gap if math.isfinite(solution.gap) else None,
        "mean_epochs": solution.mean_epochs,
        "participants": int((solution.epochs > 0).sum()),
        "samples": int(solution.samples.sum()),
        "total_energy_j": float(solution.energy_j.sum()),
        "makespan_s": float(solution.time_s.max()),
    }


def _best(question: Question, rate: Rate, least: int) -> None:
    """Choose T, the participants and their samples, and print."""
    p = question.problem
    try:
        found = best_round(
            p.coefficients, p.energy_limit_j, max_samples=p.max_samples, min_samples=least, objective=rate
        )
    except Infeasible as infeasible:
        refuse(question, infeasible.diagnosis)
    question, solution, time_s = replace(question, problem=found.problem), found.solution, found.cycle_time_s
    # One pass over a task: only a learner that has no room for another sample is limited.
    limits = found.problem.replace(max_epochs=None, staleness=None)
    rows, room = rows_of(question.names, limits, solution), Capacities.of(limits).at(1)
    for row, most in zip(rows, room.tolist(), strict=True):
        free = row["samples"] < min(most, rate.most)
        row["limit"] = None if free else "task size" if row["samples"] < most else row["limit"]
    if question.json:
        chosen = {"frugality": rate.frugality, "cycle_time_s": time_s}
        question.print_json({**chosen, **_summary(solution), "resolution": RESOLUTION, "learners": rows})
        return
    out, joules = console(), float(solution.energy_j.sum())
    title(out, f"Fastest learning with {question.file}, frugality {rate.frugality:g}", question.headline())
    print_table(out, rows)
    gap = f"{solution.bound:,.5g}, gap {solution.gap:.2%}: no T is better by more"
    pairs = [
        ("cycle time", f"{round_up(time_s)} s"),
        ("samples", f"{int(solution.samples.sum()):,}, one pass"),
        ("energy", f"{joules:.4g} J in total, {joules / time_s:.4g} W"),
        ("rate", f"{solution.value:,.5g}"),
        ("bound", f"{gap}. The search ends at {RESOLUTION:.1%}"),
        ("server", "FedAdam(eta=0.004, beta_1=0.8, tau=1e-6) and average='nova'; see THEORY.md on eta"),
    ]
    facts(out, pairs)


def _compare(question: Question, solver: Solver) -> None:
    """Print HA-Asyn, HA-Sync, HU-Asyn, HU-Sync and the bound side by side."""
    problem = question.problem
    solutions = {}
    for which in SchemeName:
        chosen = scheme(
            which, None if which.synchronous else problem.staleness, solver if which.aware else None
        )
        solutions[which] = chosen.allocate(problem, throw=False)
    best = solutions[SchemeName.HA_ASYN]
    if not any(s.status.ok for s in solutions.values()):
        refuse(question, best.diagnosis)  # type: ignore[arg-type]
    bound = best.bound if best.status.ok else None
    wrong = {k: q.diagnosis_lines(s.diagnosis, question.names) for k, s in solutions.items() if s.diagnosis}
    if question.json:
        rows = [
            {"scheme": k, **_summary(s), "diagnosis": " ".join(wrong.get(k, []))}
            for k, s in solutions.items()
        ]
        question.print_json({"bound": bound, "schemes": rows})
        return
    out = console()
    title(out, f"Schemes on {question.file}", question.headline())
    table = grid("<", *map(str, solutions))  # a scheme per column fits into narrow terminals
    columns = [_column(s) for s in solutions.values()]
    names = ("mean epochs", "epochs", "active", "samples", "joules", "seconds", "status")
    for name, *cells in zip(names, *columns, strict=True):
        table.add_row(name, *cells)
    out.print(table)
    out.print()
    best_possible = [] if bound is None else [("bound", f"{bound:.4g} mean epochs")]
    facts(out, [*best_possible, *((str(k), " ".join(lines)) for k, lines in wrong.items())])


def _column(s: Solution) -> list[str]:
    """Return what a scheme brings, in words."""
    if not s.status.ok:
        return ["-"] * 6 + [str(s.status)]
    done = sorted({int(tau) for tau in s.epochs if tau})
    return [
        f"{s.mean_epochs:.4g}",
        "-".join(dict.fromkeys(map(str, (done[0], done[-1])))),
        f"{int((s.epochs > 0).sum()):,}/{len(s.epochs):,}",
        f"{int(s.samples.sum()):,}",
        f"{float(s.energy_j.sum()):.4g}",
        f"{float(s.time_s.max()):.4g}",
        str(s.status),
    ]


def _inverse(question: Question, which: str, epochs: int) -> None:
    """Answer --fastest or --greenest."""
    problem = question.problem
    try:
        answer = (fastest if which == "fastest" else greenest)(problem, epochs)
    except Infeasible as infeasible:
        refuse(question, infeasible.diagnosis)
    if which == "fastest":
        problem = problem.replace(cycle_time_s=answer.cycle_time_s)
    rows, spent = rows_of(question.names, problem, answer), answer.total_energy_j
    if question.json:
        body = {"question": which, "status": "optimal", "epochs": epochs, "makespan_s": answer.cycle_time_s}
        question.print_json({**body, "total_energy_j": spent, "learners": rows})
        return
    out = console()
    goal = "Shortest cycle" if which == "fastest" else "Least energy"
    detail = f"{len(problem):,} learners, {problem.total_samples:,} samples, {question.mode.upper()}"
    title(out, f"{goal} with {epochs:,} epochs of every learner in {question.file}", detail)
    print_table(out, rows)
    facts(out, [("cycle time", f"{round_up(answer.cycle_time_s)} s"), ("energy", f"{spent:.6g} J in total")])
