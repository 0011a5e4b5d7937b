"""``flwr-mel recommend``: which scheme and which c for a fleet, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flwr_mel.allocation import AllocationProblem, Infeasible
from flwr_mel.cli import tables
from flwr_mel.cli.fleet import load
from flwr_mel.cli.plan import Mode, job_of, remarks_of
from flwr_mel.cli.replies import Question, print_json, refuse
from flwr_mel.cli.shared import BUG, bad_input, console, note, stop
from flwr_mel.cli.trials import Setup, Verdict, cross_validate
from flwr_mel.recommend import Candidate, Recommendation, worth_trying
from flwr_mel.recommend import recommend as _recommend
from flwr_mel.regimes import Resource

EXAMPLES = """Examples:

flwr-mel recommend fleet.toml --cycle-time 10 --samples 60000

flwr-mel recommend fleet.toml --cycle-time 10 --energy 10 --samples 60000 --json

flwr-mel recommend fleet.toml --cycle-time 10 --samples 60000 --cross-validate --seeds 3"""

#: Candidates shown without --all, besides the paper's schemes.
TOP = 6

_OPTIONS = {
    "cycle_time_s": "--cycle-time",
    "energy_limit_j": "--energy",
    "total_samples": "--samples",
    "staleness_up_to": "--staleness-up-to",
    "min_samples": "--min-samples",
    "max_epochs": "--max-epochs",
    "layers": "--layers",
    "data_dir": "--data-dir",
    "dataset": "--dataset",
}
_LIMITS, _TRIALS, _OUTPUT = "Limits", "Cross-validation", "What to print"


def recommend(
    file: Annotated[str, typer.Argument(metavar="FLEET", help="A .toml or .csv file; - is stdin (TOML).")],
    samples: Annotated[
        int, typer.Option(help="Samples of the whole fleet per cycle, d.", rich_help_panel=_LIMITS)
    ],
    cycle_time: Annotated[float, typer.Option(help="Seconds per cycle, T.", rich_help_panel=_LIMITS)],
    energy: Annotated[
        float | None,
        typer.Option(help="Joules per learner and cycle, in place of the file's.", rich_help_panel=_LIMITS),
    ] = None,
    staleness_up_to: Annotated[int, typer.Option(help="Largest c considered.", rich_help_panel=_LIMITS)] = 5,
    min_samples: Annotated[
        int, typer.Option(help="Least batch of a learner that takes part.", rich_help_panel=_LIMITS)
    ] = 1,
    max_epochs: Annotated[
        int | None, typer.Option(help="Nobody does more epochs.", rich_help_panel=_LIMITS)
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="pl or fl. The file's, else pl.", rich_help_panel=_LIMITS)
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layer sizes, e.g. 784,300,10.", rich_help_panel=_LIMITS)
    ] = None,
    trials: Annotated[
        bool,
        typer.Option("--cross-validate", help="Run short simulations to pick c.", rich_help_panel=_TRIALS),
    ] = False,
    cycles: Annotated[int, typer.Option(help="Per simulation.", min=1, rich_help_panel=_TRIALS)] = 4,
    seeds: Annotated[int, typer.Option(help="Simulations per c.", min=1, rich_help_panel=_TRIALS)] = 2,
    dataset: Annotated[str, typer.Option(help="mnist or fashion-mnist.", rich_help_panel=_TRIALS)] = "mnist",
    data_dir: Annotated[str, typer.Option(help="Directory of idx files.", rich_help_panel=_TRIALS)] = "",
    json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout, nothing else.", rich_help_panel=_OUTPUT)
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every candidate.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Recommend a scheme: what limits the fleet, candidates by predicted gain, which c to try.

    Exit codes: 0 done, 2 bad input, 3 infeasible (stderr says what would mend it).
    """
    fleet = load(file)
    with bad_input(_OPTIONS):
        workload = job_of(fleet, layers, mode)
        problem = fleet.problem(
            cycle_time_s=cycle_time,
            total_samples=samples,
            min_samples=min_samples,
            max_epochs=max_epochs,
            energy_limit_j=energy,
            workload=workload,
        )
        where = "pl" if workload.ship_data else "fl"
        question = Question(file, fleet.names, problem, where, json)
        try:
            answer = _recommend(problem, staleness_up_to=staleness_up_to, federated=not workload.ship_data)
        except Infeasible as infeasible:
            refuse(question, infeasible.diagnosis)
        verdict = None
        if trials:
            verdict = _trials(question, problem, answer, Setup(cycles, seeds, dataset, data_dir, where))
    if json:
        body: dict[str, Any] = {**answer.as_dict(), "cross_validation": verdict and verdict.as_dict()}
        print_json(question, body)
    else:
        _show(console(), question, answer, verdict, everything=everything)
    for remark in remarks_of(fleet, mode, layers):
        note(remark)


def _trials(question: Question, problem: AllocationProblem, answer: Recommendation, setup: Setup) -> Verdict:
    """Simulate the c that are worth it, under the best heterogeneity-aware rule."""
    able = [c for c in (answer.best, *answer.candidates) if c.scheme.startswith("ha") and not c.caution]
    tries = worth_trying(able[0], answer.candidates).staleness
    try:
        return cross_validate(question.names, problem, able[0], tries, setup)
    except ImportError as error:
        stop(f"--cross-validate needs more packages ({error}): pip install 'flwr-mel[simulation]'", BUG)


def _show(
    out: Console, question: Question, answer: Recommendation, verdict: Verdict | None, *, everything: bool
) -> None:
    p, r = question.problem, answer.regimes
    detail = f"{len(p):,} learners, {p.total_samples:,} samples, {p.cycle_time_s:.4g} s per cycle, "
    tables.title(out, f"Recommendation for {question.file}", detail + question.mode.upper())
    missing = (
        f"{r.relaxed_epochs:.2f} epochs would fit for everybody, {int(r.relaxed_epochs)} whole ones: "
        f"rounding costs HA-Sync a factor of {r.rounding:.2f}"
    )
    data = [("data", f"stops {r.bound_by_data} learners first")] if r.bound_by_data else []
    tables.facts(
        out,
        [
            ("epochs", f"{r.amount}. {missing}"),
            ("time", _resource(r.time)),
            ("energy", f"{_resource(r.energy)}; {r.unlimited_energy:.2f} times without limits"),
            *data,
        ],
    )
    out.print()
    _table(out, answer, everything=everything)
    _words(out, question, answer, verdict)


def _resource(r: Resource) -> str:
    return f"{r.level}. Twice of it gives {r.doubled:.2f} times the epochs; it stops {r.binds} learners first"


def _table(out: Console, answer: Recommendation, *, everything: bool) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("candidate", no_wrap=True)
    for name in ("gain", "S", "mean epochs", "sample-epochs", "joules", "status"):
        table.add_column(name, justify="right", no_wrap=True)
    hidden = 0
    for rank, c in enumerate(answer.candidates):
        if not (everything or rank < TOP or c is answer.best or _of_the_paper(c, answer)):
            hidden += 1
            continue
        style = "bold green" if c is answer.best else "dim" if c.caution or not c.progress else ""
        row = [c.name + (" *" if c.caution else "")]
        if c.progress:
            row += [f"{c.gain:+.0%}", f"{c.progress:,.0f}", f"{c.mean_epochs:.2f}", f"{c.sample_epochs:,}"]
            row += [f"{c.energy_j:.1f}", c.status]
        else:
            row += ["-"] * 5 + [c.status]
        table.add_row(*(Text(cell, style=style) for cell in row))
    out.print(table)
    if hidden:
        out.print(Text(f"{hidden} more: --all shows them", style="dim"))
    out.print()


def _of_the_paper(c: Candidate, answer: Recommendation) -> bool:
    if c.scheme.startswith("hu"):
        return c.staleness in (0, max(x.staleness for x in answer.candidates))
    return c.handout == "proportional" and c.exclude == "infeasible"


def _rivals(answer: Recommendation) -> list[Candidate]:
    """Return the first candidate of every other rule, in their order."""
    seen = {_rule(answer.best)}
    rivals = []
    for c in answer.candidates:
        if _rule(c) not in seen and c.progress:
            seen.add(_rule(c))
            rivals.append(c)
    return rivals


def _rule(c: Candidate) -> tuple[str, ...]:
    return c.scheme[:2], c.handout, c.objective, c.exclude


def _words(out: Console, question: Question, answer: Recommendation, verdict: Verdict | None) -> None:
    best, tries = answer.best, ", ".join(map(str, answer.cross_validate.staleness))
    paper = ", ".join(map(str, answer.paper.staleness))
    pairs = [
        ("best", f"{best.name}: {best.reason}"),
        *(("", f"{c.name} ({c.gain:+.0%}): {c.reason}") for c in _rivals(answer)),
        ("c to try", f"{tries}: {answer.cross_validate.reason}"),
        ("the paper", f"{answer.paper.scheme}, c = {paper}: {answer.paper.reason}"),
        ("gain", answer.predicts),
        *(("mind", text) for text in answer.warnings),
    ]
    if verdict is not None:
        for t in verdict.trials:
            pairs.append((f"c = {t.staleness}", f"{t.mean:.2%} plus or minus {t.spread:.2%}"))
        pairs.append(("measured", f"{verdict.text} All with {verdict.handout or verdict.objective}."))
    pairs.append(("next", _next(question, best, verdict)))
    tables.facts(out, pairs)


def _next(question: Question, best: Candidate, verdict: Verdict | None) -> str:
    """Say what to do: the measured rule and c if there are any, else the predicted ones."""
    how = best if verdict is None else verdict
    rule = f" --handout {how.handout}" if how.handout else " --solver equal"
    rule = " --objective progress" if how.objective == "progress" else rule
    extra = " --exclude optimal" if how.exclude == "optimal" else ""
    text = f"flwr-mel plan {question.file} ... --staleness {how.staleness}{rule}{extra}"
    if verdict is None:
        return f"{text}; --cross-validate measures c on short simulations first"
    same = (verdict.handout, verdict.objective, verdict.exclude) == (
        best.handout,
        best.objective,
        best.exclude,
    )
    return text if same else f"{text}. {best.name} was not simulated; its gain is only predicted"
