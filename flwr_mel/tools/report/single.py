"""The report on one run: what fills ``single.html``."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from flwr_mel._text import some
from flwr_mel._validate import FloatArray
from flwr_mel.records import Outcome
from flwr_mel.tools.report import markup as m
from flwr_mel.tools.report.charts import COLOURS
from flwr_mel.tools.report.learning import Series, cost_table, learned, learning_charts
from flwr_mel.tools.report.markup import DASH, Html, el, percent, short, span
from flwr_mel.tools.report.runs import BASELINE, Run, Work, clients, work_of

#: More clients than this are shown by kind, more rounds than this several to a cell.
_MOST_ROWS, _MOST_CELLS = 40, 60

#: Name, colour and rows of a client, or of a kind of clients.
Groups = list[tuple[str, int, list[int]]]


def single(run: Run) -> tuple[str, Html]:
    """Return the title and the sections of one run's report."""
    work = work_of(run)
    kinds: Groups = [(kind, i % COLOURS, rows) for i, (kind, rows) in enumerate(work.kinds.items())]
    every: Groups = [(work.names[k], colour, [k]) for _, colour, rows in kinds for k in rows]
    groups = every if len(every) <= _MOST_ROWS else kinds
    per, alone = math.ceil(len(run.records) / _MOST_CELLS), [Series(run.name, [run])]
    (good, state), limited = run.state(), bool(np.isfinite(work.values["energy_j"]).any())
    return run.title, m.fill(
        "single.html",
        title=run.title,
        when=run.period(),
        facts=_facts(run, work),
        lamp="" if good else "open",
        state=state,
        answer=_answer(run),
        tiles=_tiles(run),
        notices=m.notices([*run.notices, *_notes(run)]),
        learning=learning_charts(alone),
        costs=cost_table(alone),
        kinds=[el("span", el("i"), el("b", kind), f" {len(k):,}", class_=f"k{i}") for kind, i, k in kinds],
        row="kind of client, with its mean" if groups is kinds else "client",
        cell="round" if per == 1 else f"{per:,} rounds, with their mean",
        epochs=_heat(run, work, groups, "epochs", per),
        samples=_heat(run, work, groups, "samples", per),
        one_round=_one_round(run, work, groups),
        busy=percent(m.mean(work.values["time_share"]), 0),
        idle=short(m.mean(work.values["idle_s"]), "s"),
        limits=_limits(work, groups, limited),
        use="limits" if limited else "limits timed",
        source="Times as measured, energy by the cost model." if run.real else "All by the cost model.",
        absent=_absent(run),
    )


def _answer(run: Run) -> Html:
    """Compare the planned rounds with the baseline round, where one is on record."""
    planned = [n for n, r in enumerate(run.records) if r.baseline_s and r.status != BASELINE and r.work]
    if not planned:
        return Html()
    took, baseline, work = (
        m.mean(values[planned]) for values in (run.round_s, run.column("baseline_s"), run.column("work"))
    )
    rate = work * baseline / took
    more = f"{short(rate)} times the training per second" if rate > 1 else "no more training per second"
    facts = (
        f"A planned round takes {short(took, 's')} instead of {short(baseline, 's')}, with {percent(work, 0)}"
    )
    return el("p", el("b", more), f". {facts} of the baseline's work.", class_="answer")


def _facts(run: Run, work: Work) -> list[Html]:
    """Say under which limits the run worked."""
    limits, cap = work.values["energy_limit_j"], run.column("staleness")
    energy, c = f"<i>E<sub>k</sub></i> = {span(limits)}&nbsp;J", f"<i>c</i> = {span(cap)}"
    parts = [
        Html(f"<i>T</i> = {span(run.column('cycle_time_s'))}&nbsp;s"),
        Html(energy) if np.isfinite(limits).any() else "no energy limits",
        Html(c) if np.isfinite(cap).any() else "no staleness cap",
        *(f"{key} {run.config[key]}" for key in ("mode", "seed") if key in run.config),
        f"records in {run.name}",
    ]
    return [el("li", part) for part in parts]


def _tiles(run: Run) -> list[Html]:
    """Show the key figures: name, value, detail."""
    last, n = run.records[-1], len(run.records)
    write, final = percent if run.is_share else short, Series(run.name, [run]).last(learned)[0]
    best = f"best {percent(np.nanmax(run.learned, initial=0))}" if run.is_share else ""
    each = short(last.clock_s / n, "s")
    work = run.column("work")
    tiles = {
        f"Final {run.metric}": (write(final), best),
        "Rounds": (f"{n:,}", f"of {run.config['cycles']}" if "cycles" in run.config else "on record"),
        "Time" if run.real else "Planned time": (short(last.clock_s, "s"), f"{each} per round"),
    }
    if run.energy_known:
        each = short(last.total_energy_j / n, "J")
        tiles["Energy"] = (short(last.total_energy_j, "J"), f"{each} per round")
    if np.isfinite(work).any():
        tiles["Work"] = (percent(m.mean(work), 0), "of the baseline, per round")
    return [el("div", el("dt", name), el("dd", x), el("dd", text)) for name, (x, text) in tiles.items()]


def _notes(run: Run) -> list[str]:
    """Return the rounds' notes, equal ones together."""
    found: dict[str, list[int]] = {}
    for record in run.records:
        for text in record.notes or ["no client had a task"] * (not record.asked):
            found.setdefault(text, []).append(record.cycle)
    return [f"{m.at_rounds(at)}: {text}" for text, at in found.items()]


def _row(name: str, colour: int, *parts: object, kind: str = "row") -> Html:
    return el("div", el("span", name, class_="label", title=name), *parts, class_=f"{kind} k{colour}")


def _foot(first: str, last: str) -> Html:
    return el("div", el("span"), el("p", el("span", first), el("span", last)), class_="row foot")


def _heat(run: Run, work: Work, groups: Groups, key: str, per: int) -> list[Html]:
    """Draw a heat map, beginning with its scale: a row per client, a cell per `per` rounds."""
    values, lost = work.values[key], work.values["lost"] > 0
    low, high = np.nanmin(values, initial=np.inf), np.nanmax(values, initial=0.0)
    scale = el("span", short(low), el("i", class_="ramp"), short(high), class_="scale")
    drawn = [scale, Html("</figcaption>")]
    for name, colour, k in groups:
        cells = []
        for n in range(0, len(run.records), per):
            value, at = m.mean(values[k, n : n + per]), run.records[n].cycle
            shade = 20 + 80 * (value - low) / (high - low) if high > low else 100
            unused = lost[k, n : n + per].any()
            text = f"{name}, round {at:,}: {short(value)} {key}" + (", not used" if unused else "")
            style = f"--v:{shade if value > 0 else 0:.0f}%"
            cells.append(el("i", class_="lost" if unused else None, style=style, title=text))
        amount = el("span", span(values[k]), class_="val")
        drawn.append(_row(name, colour, el("div", cells, class_="cells"), amount))
    return [*drawn, _foot(f"round {run.records[0].cycle:,}", f"{run.records[-1].cycle:,}")]


def _bar(end: float, title: str, **pieces: tuple[float, float]) -> Html:
    """Draw a bar of pieces from start to stop whose whole length is `end`."""
    drawn = []
    for kind, ends in pieces.items():
        left, right = (100 * min(max(float(x), 0.0), end) / end for x in ends)
        drawn.append(el("i", class_=kind, style=f"left:{left:.2f}%;width:{max(right - left, 0):.2f}%"))
    return el("span", drawn, class_="bar", title=title)


def _one_round(run: Run, work: Work, groups: Groups) -> Html:
    """Draw the last round with work: how long each client is busy, and T."""
    worked = np.flatnonzero(np.isfinite(work.values["spent_s"]).any(axis=0))
    if not len(worked):
        return el("p", "No client had a task in any round.", class_="lead")
    n = int(worked[-1])
    record, limit = run.records[n], run.records[n].cycle_time_s
    busy, plan = (np.nan_to_num(work.values[key][:, n]) for key in ("spent_s", "plan_s"))
    # The axis is a little longer than T and every bar; a plan far beyond them ends at its edge.
    end = 1.01 * max(limit, float(busy.max())) or 1.0
    drawn = []
    for name, colour, k in groups:
        spent, planned = float(busy[k].mean()), float(plan[k].mean())
        pieces = {"fill": (0, spent), "rest": (spent, limit), "stop": (limit, limit)}
        text = f"{name}: {short(spent, 's')}"
        if run.real and planned:
            pieces["mark"] = (planned, planned)
            text += f", planned {short(planned, 's')}"
        amount = el("span", short(spent, "s") if spent else "no task", class_="val")
        drawn.append(_row(name, colour, _bar(end, text, **pieces), amount))
    until = f"T = {short(limit, 's')}"
    text = f"Round {record.cycle:,}. According to the cost model, the last reply comes after "
    text += f"{short(record.makespan_s, 's')} of {until}."
    if run.real:
        kept = int((run.column("waited_s") <= run.column("cycle_time_s")).sum())
        text = (
            f"Round {record.cycle:,}, as measured. The last reply came after {short(record.waited_s, 's')}; "
        )
        text += f"{until}, and {kept:,} of {m.plural(len(run.records), 'round')} ended within T."
    mark = el("span", el("i", class_="mark"), "planned") if run.real else ""
    foot = _foot("0", short(end / 1.01, "s"))
    return m.fill("one_round.html", text=text, mark=mark, bars=[*drawn, foot])


def _limits(work: Work, groups: Groups, limited: bool) -> Iterator[Html]:
    """Draw how much of T and, if energy is known, of E_k each client uses."""
    v = work.values
    for name, colour, k in groups:
        uses = [_use(v["time_share"][k], v["spent_s"][k], "s")]
        uses += [_use(v["energy_share"][k], v["energy_j"][k], "J")] * limited
        idle = el("span", short(round(m.mean(v["idle_s"][k]), 3), "s"), class_="idle")
        by = ", ".join(sorted({work.limited_by[i] for i in k} - {""})) or DASH
        yield _row(name, colour, *uses, idle, el("span", by, class_="by"), kind="use")


def _use(shares: FloatArray, costs: FloatArray, unit: str) -> Html:
    """Draw the use of one limit: the mean, the range and the limit itself; colour a mean beyond it."""
    known, amount, end = shares[np.isfinite(shares)], m.mean(costs), 1.06
    bar, text, middle = el("span", class_="bar"), "no limit" if amount > 0 else "", 0.0
    if len(known):
        middle = float(known.mean())
        text, most = f"{math.floor(100 * middle + 1e-9)}%", percent(float(known.max()), 0)
        pieces = {
            "fill": (0, middle),
            "rest": (middle, 1),
            "range": (known.min(), known.max()),
            "stop": (1, 1),
        }
        bar = _bar(end, f"mean {text}, most {most}", **pieces)
    kind = "amount over" if middle > 1 + 1e-9 else "amount"
    return el("span", bar, el("span", el("b", text), f" {short(amount, unit)}", class_=kind), class_="pair")


def _absent(run: Run) -> Html:
    """Say which clients were skipped or whose work was lost, when and why."""
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for record in run.records:
        for name, row in clients(record):
            if row.outcome is not Outcome.USED:
                key = row.outcome.value, row.reason or "no reason on record"
                found.setdefault(key, []).append((name, record.cycle))
    rows = [
        [*key, len(times), some(list(dict(times))), m.at_rounds([cycle for _, cycle in times])]
        for key, times in found.items()
    ]
    if not rows:
        return el("p", "No client was skipped, and no work was lost.", class_="lead")
    return m.table(["outcome", "reason", "count", "clients", "rounds"], rows, words=(0, 1, 3, 4))
