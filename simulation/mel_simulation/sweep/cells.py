"""The cells of a sweep: which runs a TOML file asks for."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from flwr_mel._validate import InputError, Phrase, complain
from mel_simulation.scenario.config import RunConfig, option, refuse_idle

#: How the learners' models become one: weighted by samples, as in the paper, or by FedNova's rule.
AVERAGES = ("data", "nova")
#: FedAvg without allocation: fixed epochs on equal batches; every cycle waits for the slowest learner.
BASELINES = ("", "fedavg")


@dataclass(frozen=True, slots=True)
class Cell(RunConfig):
    """One run of a sweep: options of a simulation, and some of its own."""

    average: str = option("data", "weighted by samples, or by FedNova's rule", AVERAGES)
    baseline: str = option("", "in place of the scheme", BASELINES)
    epochs: int = option(5, "of the baseline", least=1)

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)
        mine = f"left out with baseline {self.baseline!r}"
        refuse_idle(
            self,
            (True, "run_dir resume api target_accuracy", "left out of a sweep"),
            (self.baseline != "", "scheme staleness solver handout", mine),
            (not self.baseline, "epochs", "left out without a baseline"),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all that the result depends on, without paths of this machine."""
        left_out = ("run-dir", "data-dir", "resume", "api")
        return {key: value for key, value in RunConfig.as_dict(self).items() if key not in left_out}

    @property
    def key(self) -> str:
        """A short name that depends on the configuration alone."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:16]


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
        lists = [value if isinstance(value, list) else [value] for value in grid.values()]
        for values in product(*lists):
            try:
                cell = Cell.parse({**base, **dict(zip(grid, values, strict=True))})
            except InputError as error:
                error.where = f"{path}, grid {number_}"
                raise
            cells.setdefault(cell.key, cell)
    return list(cells.values())


def profiles() -> dict[str, Path]:
    """Return the sweeps of the package."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "profiles").glob("*.toml"))}
