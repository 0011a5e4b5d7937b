"""Writing fleets: the text that `read_fleet` reads back to the last bit."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields

from flwr_mel.costs import Workload
from flwr_mel.devices import Device, Measured
from flwr_mel.fleets.fleet import Fleet
from flwr_mel.fleets.rows import DEVICE_KEYS
from flwr_mel.paper import PAPER_LAYERS

_COMMENTS = {
    "cpu_hz": "operations per second",
    "rate_bps": "link, bits per second; or distance_m and a [channel]",
    "tx_power_w": "while sending; or tx_power_dbm",
    "energy_limit_j": "per cycle; leave it out for no limit",
    "max_samples": "the most this device holds; leave it out for no limit",
    "c2": "seconds per sample and epoch",
    "c1": "seconds per sample",
    "c0": "seconds per cycle",
    "g2": "joules per sample and epoch",
    "g1": "joules per sample",
    "g0": "joules per cycle",
    "ship_data": "true: PL, the server ships the samples; false: FL, data stay where they are",
}


def write_fleet(
    fleet: Fleet | Sequence[Device | Measured], workload: Workload | None = None, *, title: str = ""
) -> str:
    """Return a fleet as TOML text.

    Parameters
    ----------
    fleet : Fleet or sequence of Device or Measured
        Who.
    workload : Workload, optional
        In place of the fleet's own; without either the file has no ``[workload]``.
    title : str
        Put into a comment on top.
    """
    fleet = fleet if isinstance(fleet, Fleet) else Fleet(fleet)
    blocks = [[f"# {line}" for line in title.splitlines()]] if title else []
    job = workload or fleet.workload
    if job is not None:
        blocks.append(["[workload]", *_workload_lines(job)])
    explained: set[str] = set()
    for name, learner in zip(fleet.names, fleet.learners, strict=True):
        lines = ["[[device]]"]
        for key, value in _entries(name, learner):
            comment = "" if key in explained else _COMMENTS.get(key, "")
            explained.add(key)
            lines.append(f"{key} = {_toml(value)}" + (f"  # {comment}" if comment else ""))
        blocks.append(lines)
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def write_fleet_csv(fleet: Fleet | Sequence[Device | Measured]) -> str:
    """Return a fleet as CSV text. CSV has no place for a workload.

    Parameters
    ----------
    fleet : Fleet or sequence of Device or Measured
        Who.
    """
    fleet = fleet if isinstance(fleet, Fleet) else Fleet(fleet)
    rows = [dict(_entries(name, x)) for name, x in zip(fleet.names, fleet.learners, strict=True)]
    used = [key for key in DEVICE_KEYS if any(key in row for row in rows)]
    text = io.StringIO()
    writer = csv.DictWriter(text, used, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: v if k == "name" else _plain(v) for k, v in row.items()} for row in rows)
    return text.getvalue()


def _entries(name: str, learner: Device | Measured) -> Iterator[tuple[str, object]]:
    yield "name", name
    for field in fields(learner):
        value = getattr(learner, field.name)
        if field.name != "name" and value is not None and value != field.default:
            yield field.name, value


def _workload_lines(workload: Workload) -> Iterator[str]:
    paper = Workload.mlp(PAPER_LAYERS)
    derived = ("model_parameters", "operations_per_sample", "features")
    as_paper = all(getattr(workload, key) == getattr(paper, key) for key in derived)
    if as_paper:
        yield f"layers = {list(PAPER_LAYERS)}"
    for field in fields(workload):
        value = getattr(workload, field.name)
        shown = field.name == "ship_data" or field.default is MISSING or value != field.default
        if shown and not (as_paper and field.name in derived):
            comment = _COMMENTS.get(field.name, "")
            yield f"{field.name} = {_toml(value)}" + (f"  # {comment}" if comment else "")


def _toml(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else _plain(value)


def _plain(value: object) -> str:
    """Write a number so that reading gives it back: 2.4e9 where that is exact, else all digits."""
    if isinstance(value, int):
        return str(value)
    x = float(value)  # type: ignore[arg-type]
    mantissa, exponent = f"{x:.3e}".split("e")
    short = f"{float(mantissa):g}"
    short = f"{short if '.' in short else short + '.0'}e{int(exponent)}"
    return short if float(short) == x and not 1e-4 <= abs(x) < 1e6 and x else repr(x)
