"""Fleets in files: TOML for people, CSV for spreadsheets. docs/CLI.md describes both formats."""

from __future__ import annotations

import csv
import io
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from flwr_mel._validate import NOTHING, Phrase
from flwr_mel.costs import Workload
from flwr_mel.devices import Channel
from flwr_mel.fleets.fleet import Fleet
from flwr_mel.fleets.rows import DEVICE_KEYS, FleetError, Place, build_fleet, label

#: Per table name, where each such table begins and where its keys are.
Tables: TypeAlias = dict[str, list[tuple[int | None, dict[str, int]]]]

_FROM_LAYERS = ("model_parameters", "operations_per_sample", "features")


def read_fleet(path: str | Path) -> Fleet:
    """Read a fleet from a ``.toml`` or ``.csv`` file.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    FleetError
        Names the file, the line, the device and the field.
    """
    file, kind = str(path), Path(path).suffix.lower()
    if kind not in (".toml", ".csv"):
        raise FleetError("the file's name", "*.toml or *.csv", file, file=file)
    try:
        raw = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        hint = "Write an example with: flwr-mel fleet --paper --seed 0 > fleet.toml" if missing else ""
        got = Phrase(f"none: {getattr(error, 'strerror', None) or error}")
        raise FleetError("the fleet", "a file that can be read", got, hint, file=file) from error
    return parse_fleet(raw, file, csv_text=kind == ".csv")


def parse_fleet(raw: bytes, file: str, *, csv_text: bool = False) -> Fleet:
    """Parse the contents of a fleet file.

    Parameters
    ----------
    raw : bytes
        UTF-8 text.
    file : str
        Named in errors.
    csv_text : bool
        CSV in place of TOML.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        bad = raw[error.start : error.start + 1]
        raise FleetError("the text", "UTF-8", bad, file=file, line=line) from None
    return _parse_csv(text, file) if csv_text else _parse_toml(text, file)


# TOML


def _parse_toml(text: str, file: str) -> Fleet:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _syntax_error(error, text, file) from None
    tables = _locate(text)
    lines = {name: found[0][0] for name, found in tables.items()}
    # Errors about a whole table point at its header, or at its key where it is written inline.
    top = Place(file, None, {**{n: at for n, at in lines.items() if at}, **tables[""][0][1]})
    top.only(("workload", "channel", "device"), document, "a table")
    workload, channel = None, Channel()
    if "workload" in document:
        workload = _workload(document["workload"], _place(tables, "workload", top))
    if "channel" in document:
        at = _place(tables, "channel", top)
        channel = at.check(Channel, **_table(document["channel"], at, "channel", _names(Channel)))
    entries = document.get("device", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        top.fail("device", "given as [[device]] tables, with two brackets, one per device", entries)
    found = tables.get("device", [])
    spots = found if len(found) == len(entries) else [(top.keys.get("device"), {})] * len(entries)
    rows = [(entry, Place(file, line, keys)) for entry, (line, keys) in zip(entries, spots, strict=True)]
    if not rows:
        top.fail("device", "at least one [[device]] table", Phrase("none"))
    return build_fleet(rows, channel, workload)


def _syntax_error(error: Exception, text: str, file: str) -> FleetError:
    at = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
    if isinstance(error, RecursionError):
        return FleetError("the text", "valid TOML", Phrase("tables nested too deeply"), file=file)
    if at is None:
        line = _last_line(str(error), text)
        return FleetError(
            "the text", "valid TOML", Phrase("something else"), f"{error}.", file=file, line=line
        )
    line, column = int(at[1]), int(at[2])
    shown, why = text.split("\n")[line - 1].strip()[:60], str(error)[: at.start()]
    return FleetError("the text", "valid TOML", shown, f"Column {column}: {why}.", file=file, line=line)


def _last_line(message: str, text: str) -> int | None:
    return text.rstrip().count("\n") + 1 if "end of document" in message else None


_HEADER = re.compile(r"""^\s*\[\[?\s*["']?([\w-]+)["']?\s*\]\]?\s*(#.*)?$""")
_KEY = re.compile(r"""^\s*["']?([\w-]+)["']?\s*[=.]""")


def _locate(text: str) -> Tables:
    """Find the lines of table headers and keys, which tomllib does not tell."""
    tables: Tables = {"": [(None, {})]}
    keys = tables[""][0][1]
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            keys = {}
            tables.setdefault(header[1], []).append((number, keys))
        elif key := _KEY.match(line):
            keys.setdefault(key[1], number)
    return tables


def _place(tables: Tables, name: str, top: Place) -> Place:
    line, keys = tables.get(name, [(top.keys.get(name), {})])[0]
    return Place(top.file, line, keys)


def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _table(table: object, at: Place, what: str, known: Iterable[str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        at.fail(what, f"a table, [{what}]", table)
    at.only(known, table, f"a key of [{what}]")
    return table


def _workload(table: object, at: Place) -> Workload:
    given = dict(_table(table, at, "workload", ("layers", *_names(Workload))))
    if "layers" not in given:
        for key in _FROM_LAYERS:
            if key not in given:
                at.fail(key, "given", NOTHING, "Or give layers = [784, 300, 10].")
        return at.check(Workload, **given)
    for key in _FROM_LAYERS:
        if key in given:
            at.fail(key, "left out beside layers, which determines it", given[key])
    layers = given.pop("layers")
    if not isinstance(layers, list):
        at.fail("layers", "a list of layer sizes", layers)
    workload: Workload = at.check(replace, at.check(Workload.mlp, layers), **given)
    return workload


# CSV


def _parse_csv(text: str, file: str) -> Fleet:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    rows: list[tuple[dict[str, Any], Place]] = []
    header: list[str] = []
    start = 1  # a quoted cell may span lines; errors name the row's first
    try:
        for cells in reader:
            at, start = Place(file, start), reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = _csv_header(cells, at)
            else:
                rows.append((_csv_row(header, cells, at), at))
    except csv.Error as error:
        line = reader.line_num
        raise FleetError(
            "the text", "valid CSV", Phrase("something else"), f"{error}.", file=file, line=line
        ) from None
    if not header:
        raise FleetError("the first line", "a header row", Phrase("an empty file"), file=file, line=1)
    if not rows:
        raise FleetError("the file", "a header and at least one device row", Phrase("no rows"), file=file)
    return build_fleet(rows, Channel(), None)


def _csv_header(cells: list[str], at: Place) -> list[str]:
    header = [cell.strip() for cell in cells]
    if len(header) == 1 and re.search("[;\t]", header[0]):
        at.fail("the header's separator", "a comma", header[0])
    at.only(DEVICE_KEYS, dict.fromkeys(header, Phrase("it")), "a column")
    for name in header:
        if header.count(name) > 1:
            at.fail(name, "one column", Phrase(f"{header.count(name)} of it"))
    return header


def _csv_row(header: list[str], cells: list[str], at: Place) -> dict[str, Any]:
    if len(cells) != len(header):
        at.fail("a row", f"{len(header)} cells, as the header", Phrase(f"{len(cells)} cells"))
    cells = [cell.strip() for cell in cells]
    row = dict(zip(header, cells, strict=True))
    at = replace(at, device=label(row))
    return {key: cell if key == "name" else _cell(key, cell, at) for key, cell in row.items() if cell}


def _cell(key: str, cell: str, at: Place) -> float | int:
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        at.fail(key, "a finite number", cell, "Leave the cell empty if there is none.")
    return value
