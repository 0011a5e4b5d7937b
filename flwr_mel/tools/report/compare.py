"""The report on several runs: what fills ``compare.html``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from flwr_mel.tools.report import learning as read
from flwr_mel.tools.report.learning import Series, swatch
from flwr_mel.tools.report.markup import Html, el, fill, mean, notices, percent, short, table
from flwr_mel.tools.report.runs import Run, common_level

#: Settings that say where a run lies and how long it is: no comparison is about them.
_IDLE = {"run-dir", "data-dir", "resume", "api", "cycles", "seed"}


def compare(runs: Sequence[Run]) -> tuple[str, Html]:
    """Return the title and the sections of a comparison."""
    rows = _series(runs)
    about = [{run.config.get(key, "") for run in runs} for key in ("app", "dataset", "fleet")]
    same = [str(*values) for values in about if len(values) == 1 and values != {""}]
    title = ", ".join([*same, f"{len(runs):,} runs compared"])
    told = list(dict.fromkeys(text for run in runs for text in run.notices))
    return title, fill(
        "compare.html",
        title=title,
        together="Runs that differ only in their seeds are combined." if len(rows) < len(runs) else "",
        answer=_answer(rows),
        notices=notices(told),
        results=_results(rows),
        costs=read.cost_table(rows),
        key=[swatch(i, row) for i, row in enumerate(rows)],
        learning=read.learning_charts(rows),
    )


def _answer(rows: Sequence[Series]) -> Html:
    """Compare time and energy to an accuracy with those of the project's own rounds."""
    own = next((row for row in rows if all(run.observed for run in row.runs)), None)
    level = common_level([run for row in rows for run in row.runs])
    if own is None or not math.isfinite(level):
        return Html()
    (time_s, energy_j), said = read.cost_to(own, level), []
    for row in rows:
        if row is own:
            continue
        t, e = read.cost_to(row, level)
        text = f" to {percent(level, 1)}: {short(t, 's')} instead of {short(time_s, 's')}"
        text += f", {short(e, 'J')} instead of {short(energy_j, 'J')}" if energy_j > 0 else ""
        faster = el("b", f"{row.label}: {short(time_s / t)} times as fast")
        said.append(el("p", faster, f"{text}.", class_="answer"))
    return Html("".join(said))


def _series(runs: Sequence[Run]) -> list[Series]:
    """Put runs that differ in their seeds alone together, and name each by the settings that differ."""
    groups: dict[str, list[Run]] = {}
    for i, run in enumerate(runs):
        kept = {key: run.config[key] for key in run.config if key not in _IDLE}
        groups.setdefault(json.dumps(kept, sort_keys=True) if kept else str(i), []).append(run)
    firsts = [group[0] for group in groups.values()]
    keys = dict.fromkeys(key for run in firsts for key in run.config if key not in _IDLE)
    telling = [key for key in keys if len({str(run.config.get(key)) for run in firsts}) > 1]
    names = [" ".join(f"{key}={run.config.get(key)}" for key in telling) or run.name for run in firsts]
    if telling == ["run"]:
        names = [str(run.config["run"]) for run in firsts]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in firsts]
    return [Series(label, group) for label, group in zip(names, groups.values(), strict=True)]


def _results(rows: Sequence[Series]) -> Html:
    # Own rounds have no epochs on record, and the paper's experiments no work of one's own to compare with.
    counted = any(np.isfinite(run.column("work")).any() for row in rows for run in row.runs)
    heads = ["run", f"final {rows[0].runs[0].metric}", "rounds", "time", "energy"]
    heads += ["work per round" if counted else "mean epochs", "ended"]
    body = []
    for i, row in enumerate(rows):
        finals, write = row.last(read.learned), percent if row.runs[0].is_share else short
        spread = f"{write(finals.min())} to {write(finals.max())}" if len(row.runs) > 1 else ""
        final = el("span", el("b", write(mean(finals))), el("small", spread))
        rounds, seconds, joules = (mean(row.last(each)) for each in (read.rounds, read.seconds, read.joules))
        spent = short(rounds), short(seconds, "s"), short(joules, "J")
        work = percent(mean(row.table(read.work)), 0) if counted else short(mean(row.table(read.epochs)))
        ended = ", ".join(dict.fromkeys(run.state()[1] for run in row.runs))
        body.append([swatch(i, row), final, *spent, work, ended])
    return table(heads, body, words=(0, 6))
