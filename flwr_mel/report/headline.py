"""The top of a report: what ran, how it ended, and the numbers that matter most."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_mel.allocation.objectives import in_words
from flwr_mel.report.ledger import Ledger, column, metric, rising, time_spent
from flwr_mel.report.markup import Html, el
from flwr_mel.report.numerals import (
    JOULES,
    SECONDS,
    finite,
    mean,
    measure,
    percent,
    plural,
    ranges,
    short,
    span,
)
from flwr_mel.report.run import Run

_MODES = {"pl": "parallelized", "fl": "federated"}
_SCHEMES = {
    "ha-asyn": "HA-Asyn",
    "ha-sync": "HA-Sync",
    "hu-asyn": "HU-Asyn",
    "hu-sync": "HU-Sync",
    "ha-progress": "HA-Progress",
    "soonest": "Soonest",
    "cheapest": "Cheapest",
}
_DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
_MOST_NOTES = 8


def target(run: Run) -> float:
    """Return the accuracy that the run was to reach; NaN if none."""
    value = finite(run.setting("target-accuracy"))
    return value if 0 < value <= 1 else math.nan


def goal_of(run: Run) -> str:
    """Name what the run's cycles were allocated for."""
    text = in_words(run.records[-1].objective)
    return text[:1].upper() + text[1:]


def scheme_name(run: Run) -> str:
    """Return the scheme as the paper spells it; "" if it is not known."""
    scheme = run.setting("scheme")
    return _SCHEMES.get(str(scheme), str(scheme)) if scheme else ""


def title(run: Run) -> str:
    """Name a run by its scheme and data, or by its directory."""
    name, data = scheme_name(run), run.setting("dataset")
    if not name:
        return run.name
    return f"{name} on {_DATASETS.get(str(data), str(data))}" if data else name


def facts(run: Run, who: Ledger) -> list[Html]:
    """Say under which limits a run worked."""
    parts: list[object] = [
        plural(len(who.learners), "learner"),
        Html(f"<i>T</i> = {span(column(run, 'cycle_time_s'))}&nbsp;s"),
        _energy(who),
        Html(f"<i>c</i> = {span(column(run, 'staleness'))}"),
        _MODES.get(str(run.config.get("mode")), run.config.get("mode")),
        f"seed {run.config['seed']}" if "seed" in run.config else None,
    ]
    return [el("li", part) for part in parts if part]


def _energy(who: Ledger) -> Html | str | None:
    """Say which energy limits were in force; a fleet file has its own, whatever the configuration says."""
    limited = np.isfinite(who.energy_limit_j).any(axis=1)
    if not limited.any():
        # Records of cycles without work do not tell the limits.
        return "no energy limits" if np.isfinite(who.epochs).any() else None
    text = f"<i>E<sub>k</sub></i> = {span(who.energy_limit_j, 3)}&nbsp;J"
    worked = np.isfinite(who.epochs).any(axis=1)
    free = int((worked & ~limited).sum())
    return Html(f"{text}, none for {plural(free, 'learner')}" if free else text)


def headline(run: Run, who: Ledger) -> Html:
    """Make the header of one run's report.

    Parameters
    ----------
    run : Run
        The run.
    who : Ledger
        Its learners.
    """
    state = el("p", el("i", class_="lamp"), run.ending, class_="state" if run.complete else "state open")
    return el(
        "header",
        el("p", "flwr-mel run report", el("span", run.name), class_="over"),
        el("h1", title(run)),
        el("ul", facts(run, who), class_="facts"),
        state,
        el("dl", _tiles(run, who), class_="tiles"),
        notices([*run.notices, *cycle_notes(run)]),
    )


def _tiles(run: Run, who: Ledger) -> list[Html]:
    accuracy = metric(run, "accuracy")
    known = accuracy[np.isfinite(accuracy)]
    best = (
        f"best {percent(known.max())} in cycle {run.records[int(np.nanargmax(accuracy))].cycle:,}"
        if len(known)
        else "not on record"
    )
    joules = float(rising(run, "total_energy_j")[-1])
    n = len(run.records)
    wanted = finite(run.config.get("cycles"))
    worked = int((~np.isnan(who.epochs)).any(axis=1).sum())
    return [
        tile("Final accuracy", percent(known[-1] if len(known) else math.nan), best, main=True),
        tile("Cycles", f"{n:,}", f"of {wanted:,.0f}" if not math.isnan(wanted) else "on record"),
        _time(run),
        tile("Energy", measure(joules, JOULES), f"{measure(joules / n, JOULES, 3)} per cycle"),
        tile(
            goal_of(run),
            short(mean(column(run, "value")), 3),
            f"bound {short(mean(column(run, 'bound')), 3)}",
        ),
        tile("Learners", f"{worked:,}", f"worked, of {len(who.learners):,}"),
    ]


def _time(run: Run) -> Html:
    """Say how long it took, by the server's clock or by the cost model."""
    name, passed = time_spent(run)
    clock = float(passed[-1])
    detail = f"{measure(clock / len(run.records), SECONDS, 3)} per cycle"
    if run.real:
        detail += f", planned {measure(float(rising(run, 'clock_s')[-1]) / len(run.records), SECONDS, 3)}"
    return tile(name[:1].upper() + name[1:], measure(clock, SECONDS), detail)


def tile(name: str, value: str, detail: str, *, main: bool = False) -> Html:
    """Make one reading: a name, a large number, a remark."""
    return el(
        "div",
        el("dt", name),
        el("dd", value, class_="big"),
        el("dd", detail),
        class_="tile main" if main else "tile",
    )


def cycle_notes(run: Run) -> list[str]:
    """Return the cycles' notes, equal ones together."""
    found: dict[str, list[int]] = {}
    for record in run.records:
        for text in record.notes or []:
            found.setdefault(str(text), []).append(record.cycle)
    idle = [
        r.cycle for r in run.records if not r.notes and not any(finite(x.samples) > 0 for x in r.learners)
    ]
    if idle:
        found["nobody worked"] = idle
    return [f"{'Cycle' if len(at) == 1 else 'Cycles'} {ranges(at)}: {text}" for text, at in found.items()]


def notices(texts: Sequence[str]) -> Html | None:
    """Make the box of remarks; None without any."""
    if not texts:
        return None
    rest = len(texts) - _MOST_NOTES
    items = [el("li", text) for text in texts[:_MOST_NOTES]]
    if rest > 0:
        folded = el("ul", [el("li", text) for text in texts[_MOST_NOTES:]])
        items.append(el("li", el("details", el("summary", f"{rest:,} more"), folded)))
    return el("aside", el("ul", items), class_="notices", aria_label="notices")
