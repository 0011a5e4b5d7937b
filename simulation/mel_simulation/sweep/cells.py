"""The cells of a sweep: which runs a TOML file asks for."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from flwr_mel._validate import InputError, Phrase, complain, count
from mel_simulation.scenario.config import RunConfig, refuse_changed

#: Options that came after the first results: keys of cells name them only where they are set.
_LATER = {"optimizer": "average", "eta": 0.004, "frugality": 0.0}
#: Former options, which had these values in all results that were kept: keys of cells still name them.
_FORMER = {"mobility": 0.0, "proximal": 0.01, "exclude": "infeasible"}
#: How the learners' models become one: weighted by samples, as in the paper, or by FedNova's rule.
AVERAGES = ("data", "nova")
#: FedAvg without allocation: fixed epochs on equal batches; every cycle waits for the slowest learner.
BASELINES = ("", "fedavg")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a sweep.

    Parameters
    ----------
    config : RunConfig
        As for a single simulation.
    average : str
        One of `AVERAGES`.
    baseline : str
        One of `BASELINES`; empty: the scheme of the configuration.
    epochs : int
        Of the baseline.
    """

    config: RunConfig
    average: str = "data"
    baseline: str = ""
    epochs: int = 5

    def __post_init__(self) -> None:
        for name, choices in (("average", AVERAGES), ("baseline", BASELINES)):
            if getattr(self, name) not in choices:
                raise complain(name, f"one of {', '.join(map(repr, choices))}", getattr(self, name))
        count("epochs", self.epochs, least=1)
        idle = dict.fromkeys(("run_dir", "resume", "api", "target_accuracy"), "left out of a sweep")
        if self.baseline:
            rules = ("scheme", "staleness", "solver", "handout")
            idle |= dict.fromkeys(rules, f"left out with baseline {self.baseline!r}")
        refuse_changed(self.config, idle)
        if not self.baseline:
            refuse_changed(self, {"epochs": "left out without a baseline"})
        if not self.config.learners:
            raise complain("learners", "at least 1 in every cell", 0)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Cell:
        """Read a cell from keys of both classes, spelled with dashes."""
        own = {f.name for f in fields(cls)} - {"config"}
        extra = {key: value for key, value in values.items() if key in own}
        rest = {key: value for key, value in values.items() if key not in own}
        return cls(RunConfig.parse(rest), **extra)

    def as_dict(self) -> dict[str, Any]:
        """Return all that the result depends on, without paths of this machine."""
        values = self.config.as_dict()
        for key in ("run-dir", "data-dir", "resume", "api"):
            del values[key]
        for key, default in _LATER.items():
            if values[key] == default:
                del values[key]
        own = {"average": self.average, "baseline": self.baseline, "epochs": self.epochs}
        return {**values, **_FORMER, **own}

    @property
    def key(self) -> str:
        """A short name that depends on the configuration alone."""
        return digest(self.as_dict())


def digest(value: Any) -> str:
    """Hash plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_sweep(path: Path, data_dir: str = "") -> list[Cell]:
    """Read a sweep: a table ``[base]`` and any number of ``[[grid]]`` tables whose lists are multiplied out.

    Parameters
    ----------
    path : Path
        The TOML file.
    data_dir : str
        Directory of idx files for all cells, in place of the file's.

    Returns
    -------
    list of Cell
        In the file's order, each once.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        got = Phrase(f"none: {getattr(error, 'strerror', None) or error}")
        remedy = f"Profiles: {', '.join(profiles())}."
        raise complain("the sweep", "a TOML file that can be read", got, remedy, where=str(path)) from error
    base, grids = content.get("base", {}), content.get("grid", [])
    tables = isinstance(base, dict) and isinstance(grids, list) and all(isinstance(g, dict) for g in grids)
    if not tables or not grids or content.keys() - {"base", "grid"}:
        raise complain(str(path), "made of a table [base] and at least one [[grid]]", sorted(content))
    base |= {"data-dir": data_dir} if data_dir else {}
    cells: dict[str, Cell] = {}
    for number_, grid in enumerate(grids, start=1):
        for values in _combinations(grid):
            try:
                cell = Cell.parse({**base, **values})
            except InputError as error:
                error.where = f"{path}, grid {number_}"
                raise
            cells.setdefault(cell.key, cell)
    return list(cells.values())


def profiles() -> dict[str, Path]:
    """Return the sweeps of the package."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "profiles").glob("*.toml"))}


def _combinations(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lists = {key: value if isinstance(value, list) else [value] for key, value in grid.items()}
    for values in product(*lists.values()):
        yield dict(zip(lists, values, strict=True))
