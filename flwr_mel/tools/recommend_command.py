"""``flwr-mel recommend``: which scheme and which c for a fleet, and why; cross-validation of c."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from flwr_mel.allocation import Infeasible
from flwr_mel.tools import question as q
from flwr_mel.tools import recommend as library
from flwr_mel.tools import shell
from flwr_mel.tools.recommend import Recommendation, Resource, ShortRound


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which c the trials pick, with mean and spread of the accuracy per c."""

    staleness: int
    trials: Mapping[int, tuple[float, float]]


def _trial(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Cross-validation", **more)


def recommend(
    file: q.FleetFile,
    samples: Annotated[int, q.limit(q.SAMPLES)],
    cycle_time: Annotated[float, q.limit("Seconds per cycle, T.")],
    energy: q.Energy = None,
    staleness_up_to: Annotated[int, q.limit("Largest c to consider.", max=50)] = 5,
    min_samples: q.LeastBatch = 0,
    max_epochs: q.MaxEpochs = None,
    mode: q.Where = None,
    trials: Annotated[bool, _trial("Run short simulations to pick c.", "--cross-validate")] = False,
    cycles: Annotated[int, _trial("Cycles per simulation.", min=1)] = 4,
    seeds: Annotated[int, _trial("Seeds, and so simulations, per c.", min=1)] = 2,
    data_dir: Annotated[str, _trial("Directory of MNIST's idx files.")] = "",
    json: q.Json = False,
) -> None:
    """Recommend a scheme and a staleness cap.

    Shows what limits the fleet, and the candidates by predicted gain.

    Exit codes: 0 done, 2 bad input, 3 infeasible (stderr states values that would
    work), 4 the environment.

    Try:

    flwr-mel recommend fleet.toml --cycle-time 10 --samples 60000

    flwr-mel recommend fleet.toml --cycle-time 10 --energy 10 --samples 60000 --json

    flwr-mel recommend fleet.toml --cycle-time 10 --samples 60000 --cross-validate --seeds 3
    """
    if not trials:
        shell.refuse_given("without --cross-validate", "cycles", "seeds", "data_dir")
    elif seeds == 1:
        shell.note("one seed does not show the spread of the accuracy: --seeds 3")
    question = q.pose(
        file,
        cycle_time_s=cycle_time,
        total_samples=samples,
        min_samples=min_samples,
        max_epochs=max_epochs,
        energy=energy,
        mode=mode,
        json=json,
    )
    with shell.bad_input(q.OPTIONS):
        try:
            federated = question.mode == "fl"
            answer = library.recommend(question.problem, staleness_up_to=staleness_up_to, federated=federated)
        except Infeasible as infeasible:
            q.refuse(question, infeasible.diagnosis)
        verdict = _cross_validate(question, answer, cycles, seeds, data_dir) if trials else None
    if json:
        question.print_json({**asdict(answer), "cross_validation": verdict and asdict(verdict)})
    else:
        _show(shell.console(), question, answer, verdict)


def _cross_validate(
    question: q.Question, answer: Recommendation, cycles: int, seeds: int, data_dir: str
) -> Verdict:
    """Simulate the most promising values of c with the best hand-out, and pick one."""
    try:
        simulate = shell.plugin(shell.TRIALS, "simulate")
    except ImportError as error:
        shell.missing_packages("--cross-validate", error, shell.SIMULATION_PROJECTS)
    cells = [(c, seed) for c in answer.cross_validate.staleness for seed in range(seeds)]
    settings = {"mode": question.mode, "cycles": cycles, "handout": answer.best.handout.value}
    return judge(simulate(question.names, question.problem, cells, settings, data_dir))


def judge(rows: Sequence[dict[str, Any]]) -> Verdict:
    """Pick the c with the best mean accuracy, or the smallest that is within the spread of it.

    Parameters
    ----------
    rows : sequence of dict
        Results of a sweep.
    """
    found: dict[int, list[float]] = {}
    for row in rows:
        c = int(row["config"]["staleness"])
        if row["trouble"] or not row["accuracy"]:
            shell.stop(f"c = {c} cannot be simulated: {row['trouble'] or 'no cycle'}")
        found.setdefault(c, []).append(float(row["accuracy"][-1]))
    trials = {c: (fmean(v), stdev(v) if len(v) > 1 else 0.0) for c, v in sorted(found.items())}
    mean, spread = max(trials.values())
    close = [c for c, (value, s) in trials.items() if mean - value <= max(s, spread)]
    return Verdict(min(close), trials)


def _show(out: Console, question: q.Question, answer: Recommendation, verdict: Verdict | None) -> None:
    """Print what limits the fleet, the candidates, and what to do next."""
    r, best = answer.regimes, answer.best
    shell.title(out, f"Recommendation for {question.file}", question.headline())
    whole = f"{r.relaxed_epochs:.2f} epochs would fit for all, {int(r.relaxed_epochs)} whole ones"
    epochs = f"{r.amount}. {whole}: rounding costs HA-Sync a factor of {r.rounding:.2f}"
    shell.facts(out, [("epochs", epochs), ("time", _resource(r.time)), ("energy", _resource(r.energy))])
    out.print()
    table = shell.grid("candidate<", "gain", "S", "mean epochs", "joules", "status<")
    for c in answer.candidates:
        cells = [f"{c.gain:+.0%}", f"{c.progress:,.0f}", f"{c.mean_epochs:.2f}", f"{c.energy_j:.1f}"]
        style = "bold green" if c is best else "" if c.progress else "dim"
        row = [c.name, *(cells if c.progress else ["-"] * 4), c.status]
        table.add_row(*(Text(cell, style=style) for cell in row))
    out.print(table)
    out.print()
    shell.facts(out, _words(question, answer, verdict))


def _resource(r: Resource) -> str:
    return f"{r.level}. Doubling it gives {r.doubled:.2f} times the epochs"


def _words(question: q.Question, answer: Recommendation, verdict: Verdict | None) -> list[tuple[str, str]]:
    best, tries, paper = answer.best, answer.cross_validate, answer.paper
    few, many = (", ".join(map(str, advice.staleness)) for advice in (tries, paper))
    meaning = "samples that the learners process, weighted as in the average"
    pairs = [
        ("S", f"{meaning}: it predicts progress, not accuracy"),
        ("best", f"{best.name}: the smallest c whose S is within {100 * library.WORTH:.0f} % of the highest"),
        ("c to try", f"{few}: {tries.reason}"),
        ("the paper", f"{paper.scheme}, c = {many}: {paper.reason}"),
        *(("if T is free", _short(question, short)) for short in answer.short),
    ]
    command, c = f"flwr-mel plan {question.file} ... --handout {best.handout}", best.staleness
    if verdict is None:
        hint = "; --cross-validate measures c on short simulations first"
        return [*pairs, ("next", f"{command} --staleness {c}{hint}")]
    pairs += [(f"c = {c}", f"{mean:.2%} +- {s:.2%}") for c, (mean, s) in verdict.trials.items()]
    c = verdict.staleness
    pairs.append(("measured", f"c = {c} is the smallest within the spread over the seeds of the best"))
    return [*pairs, ("next", f"{command} --staleness {c}")]


def _short(question: q.Question, s: ShortRound) -> str:
    """Describe a short round and how to ask for it."""
    time_s = question.problem.cycle_time_s
    option = f"--cycle-time best --energy-per {time_s:g}"
    option += f" --frugality {s.frugality:g}" if s.frugality else ""
    return (
        f"{option}: T = {s.cycle_time_s:.3g} s, {s.samples:,} samples of {s.participants:,} learners, "
        f"{s.energy_j:.3g} J per cycle; {s.energy_j * time_s / s.cycle_time_s:.3g} J in {time_s:g} s"
    )
