"""The report on several runs: what fills ``compare.html``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from flwr_mel.tools.report import learning as read
from flwr_mel.tools.report.charts import chart
from flwr_mel.tools.report.learning import Series, swatch
from flwr_mel.tools.report.markup import Html, el, fill, mean, notices, percent, short, table
from flwr_mel.tools.report.runs import Run

#: Settings that say where a run lies and how long it is: no comparison is about them.
_IDLE = {"run-dir", "data-dir", "resume", "api", "cycles", "seed"}


def compare(runs: Sequence[Run]) -> tuple[str, Html]:
    """Return the title and the sections of a comparison."""
    rows, title = _series(runs), f"{len(runs):,} runs compared"
    epochs = chart("Mean epochs per round", read.curves(rows, read.epochs, read.rounds))
    told = list(dict.fromkeys(text for run in runs for text in run.notices))
    return title, fill(
        "compare.html",
        title=title,
        together="Runs that differ only in their seeds are combined." if len(rows) < len(runs) else "",
        notices=notices(told),
        results=_results(rows),
        costs=read.cost_table(rows),
        key=[swatch(i, row) for i, row in enumerate(rows)],
        learning=[*read.learning_charts(rows), epochs],
    )


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
    if len(set(names)) < len(names):
        names = [str(run.path) for run in firsts]
    return [Series(label, group) for label, group in zip(names, groups.values(), strict=True)]


def _results(rows: Sequence[Series]) -> Html:
    heads = ["run", f"final {rows[0].runs[0].metric}", "rounds", "time", "energy", "mean epochs", "ended"]
    body = []
    for i, row in enumerate(rows):
        finals, write = row.last(read.learned), percent if row.runs[0].is_share else short
        spread = f"{write(finals.min())} to {write(finals.max())}" if len(row.runs) > 1 else ""
        final = el("span", el("b", write(mean(finals))), el("small", spread))
        rounds, seconds, joules = (mean(row.last(each)) for each in (read.rounds, read.seconds, read.joules))
        spent = short(rounds), short(seconds, "s"), short(joules, "J"), short(mean(row.table(read.epochs)))
        ended = ", ".join(dict.fromkeys(run.ending for run in row.runs))
        body.append([swatch(i, row), final, *spent, ended])
    return table(heads, body, words=(0, 6))
