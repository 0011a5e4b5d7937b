"""Recommendations for people: what limits the fleet, candidates, what to do next."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flwr_mel.cli.drawing import facts, title
from flwr_mel.cli.question import Question
from flwr_mel.cli.recommend.cross_validation import Verdict
from flwr_mel.recommend import Candidate, Recommendation
from flwr_mel.regimes import Resource

#: Candidates shown without --all, besides the paper's schemes.
TOP = 6


def show(
    out: Console, question: Question, answer: Recommendation, verdict: Verdict | None, *, everything: bool
) -> None:
    """Print a recommendation.

    Parameters
    ----------
    out : Console
        Where.
    question : Question
        What was asked.
    answer : Recommendation
        The library's.
    verdict : Verdict or None
        What cross-validation measured.
    everything : bool
        All candidates.
    """
    p, r = question.problem, answer.regimes
    detail = f"{len(p):,} learners, {p.total_samples:,} samples, {p.cycle_time_s:.4g} s per cycle, "
    title(out, f"Recommendation for {question.file}", detail + question.mode.upper())
    missing = (
        f"{r.relaxed_epochs:.2f} epochs would fit for everybody, {int(r.relaxed_epochs)} whole ones: "
        f"rounding costs HA-Sync a factor of {r.rounding:.2f}"
    )
    data = [("data", f"stops {r.bound_by_data} learners first")] if r.bound_by_data else []
    facts(
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
    if answer.aim is not None:
        pairs.append(("wanted", f"{answer.aim.text} This rests on {answer.aim.evidence}."))
    pairs.append(("next", _next(question, best, verdict)))
    facts(out, pairs)


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
