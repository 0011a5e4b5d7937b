"""The page around the sections, the numbers behind it for programs, and the file it goes to."""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flwr_mel import __version__
from flwr_mel._files import atomically
from flwr_mel._validate import FloatArray, complain
from flwr_mel.report.headline import title
from flwr_mel.report.ledger import ledger
from flwr_mel.report.markup import Html, data_block, el
from flwr_mel.report.numerals import finite, mean
from flwr_mel.report.overlay import overlay
from flwr_mel.report.run import Run, load_run
from flwr_mel.report.series import labels
from flwr_mel.report.single import single
from flwr_mel.report.style import CSS, JS

#: Beyond this many learners times cycles, only means per learner are embedded: the records have the rest.
MOST_CELLS = 20_000
_CYCLE_FIELDS = (
    "cycle", "cycle_time_s", "makespan_s", "total_samples", "asked_samples", "staleness", "status",
    "mean_epochs", "objective", "value", "bound", "gap", "energy_j", "clock_s", "total_energy_j",
    "metrics", "notes", "stopped", "began_at", "ended_at", "duration_s", "waited_s", "flower_s", "gone",
)  # fmt: skip
_LEARNER_FIELDS = (
    "epochs", "samples", "time_s", "receive_s", "send_s", "energy_j", "energy_limit_j", "idle_s",
)  # fmt: skip


def write_report(runs: Sequence[str | Path], out: str | Path) -> Path:
    """Write one self-contained HTML page about one run or several.

    Parameters
    ----------
    runs : sequence of paths
        Run directories. One: the full report. Several: a comparison.
    out : path
        The HTML file. It is replaced in one step: readers never see half a page.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    ValueError
        A run cannot be read, or the page cannot be written; the message names the path.
    """
    if isinstance(runs, str | os.PathLike):
        runs = [runs]
    if not runs:
        raise complain("runs", "at least one run directory", list(runs))
    page = render([load_run(path) for path in runs])
    target = Path(out)
    try:
        atomically(target, lambda file: file.write(page))
    except OSError as error:
        why = f"{error.strerror or error}."
        raise complain("out", "a file that can be written", str(target), why) from error
    return target


def render(runs: Sequence[Run]) -> str:
    """Return the page as text.

    Parameters
    ----------
    runs : sequence of Run
        One or more.
    """
    one = len(runs) == 1
    sections = single(runs[0]) if one else overlay(runs)
    name = title(runs[0]) if one else f"{len(runs):,} runs compared"
    data = [run_data(run, label) for run, label in zip(runs, labels(runs), strict=True)]
    # Inside script and style nothing may be escaped; both are our own text.
    script, style = Html(JS), Html(CSS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        # Even a name that got around the escaping could not run or load anything.
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{name} \u00b7 flwr-mel"),
        el("style", style),
    )
    source = "Times and energies come from the cost model, not from a clock or a meter."
    if any(run.real for run in runs):
        source = "Energies and planned times come from the cost model; other times are the server's clock's."
    foot = el(
        "footer",
        f"Made by flwr-mel {__version__}. {source} The numbers of this page are in it as JSON, "
        "in the element ",
        el("code", "flwr-mel-data"),
        ".",
    )
    body = el("body", el("main", sections, foot), data_block("flwr-mel-data", data), el("script", script))
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def run_data(run: Run, label: str) -> dict[str, Any]:
    """Return a run in plain types, ready for JSON.

    Parameters
    ----------
    run : Run
        The run.
    label : str
        What the page calls it.
    """
    who = ledger(run)
    whole = who.epochs.size <= MOST_CELLS
    arrays = {field: getattr(who, field) for field in _LEARNER_FIELDS}
    cycles = [record.as_dict() for record in run.records]
    return {
        "run": label,
        "ended": run.ending,
        "config": clean(run.config),
        "versions": clean(run.versions),
        "notices": list(run.notices),
        "cycles": [{f: clean(record[f]) for f in _CYCLE_FIELDS if f in record} for record in cycles],
        "learner_values": "per cycle" if whole else "mean over the cycles with work",
        "learners": [
            {
                "learner": name,
                "class": group.name,
                "limited_by": who.limited_by[k],
                **{
                    field: _listed(array[k]) if whole else clean(mean(array[k]))
                    for field, array in arrays.items()
                },
            }
            for k, (name, group) in enumerate(zip(who.learners, who.class_of, strict=True))
        ],
    }


def _listed(values: FloatArray) -> list[float | int | None]:
    whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)
    return [
        None if math.isnan(v) else int(v) if w else v for v, w in zip(values.tolist(), whole, strict=True)
    ]


def clean(value: Any) -> Any:
    """Return `value` with only what JSON can carry."""
    if isinstance(value, dict):
        return {str(key): clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean(inner) for inner in value]
    if isinstance(value, float):
        return None if math.isnan(finite(value)) else value
    return value if isinstance(value, str | int | None) else str(value)
