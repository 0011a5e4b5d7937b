"""The numbers behind the page, for programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.report.ledger import ledger
from flwr_mel.report.numerals import finite, mean
from flwr_mel.report.run import Run

#: Beyond this many learners times cycles, only means per learner are embedded: the records have the rest.
MOST_CELLS = 20_000
_CYCLE_FIELDS = (
    "cycle", "cycle_time_s", "makespan_s", "total_samples", "asked_samples", "staleness", "status",
    "mean_epochs", "bound", "energy_j", "clock_s", "total_energy_j", "metrics", "notes", "stopped",
)  # fmt: skip
_LEARNER_FIELDS = ("epochs", "samples", "time_s", "energy_j", "energy_limit_j", "idle_s")


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
        "cycles": [{field: clean(record[field]) for field in _CYCLE_FIELDS} for record in cycles],
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
