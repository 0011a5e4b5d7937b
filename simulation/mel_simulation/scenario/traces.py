"""Links as they were measured, second by second: rates of a cycle in place of a formula.

A trace file is CSV with a header and the columns ``trace``, ``second``, ``down_kbit_s`` and ``up_kbit_s``;
others are ignored. Lines of one trace follow each other.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flwr_mel._validate import FloatArray, Phrase, complain, count, number

_COLUMNS = ("trace", "second", "down_kbit_s", "up_kbit_s")
#: Bits per second of a link that carries nothing: a rate must not be zero.
_DEAD_BPS = 1.0
_STREAM = 13


@dataclass(frozen=True, slots=True, eq=False)
class Traces:
    """Some recorded links; every learner follows one of them, from a second of its own on.

    Parameters
    ----------
    rates : sequence of arrays of shape (2, seconds)
        Down and up in bits per second, one array per trace.
    """

    rates: Sequence[FloatArray]

    @classmethod
    def read(cls, path: Path) -> Traces:
        """Read a file, plain or gzip.

        Parameters
        ----------
        path : Path
            The CSV file.
        """
        read = gzip.open if path.suffix == ".gz" else open
        try:
            with read(path, "rt", encoding="utf-8") as file:
                return cls.parse(file, str(path))
        except (OSError, UnicodeDecodeError) as error:
            got = Phrase(f"none: {getattr(error, 'strerror', None) or error}")
            raise complain("links", "a CSV file that can be read", got, where=str(path)) from error

    @classmethod
    def parse(cls, lines: Iterable[str], where: str = "") -> Traces:
        """Read lines of CSV.

        Parameters
        ----------
        lines : iterable of str
            The first has the names of the columns.
        where : str
            For errors.
        """
        reader = csv.DictReader(lines)
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise complain(
                "links", f"a table with the columns {', '.join(_COLUMNS)}", reader.fieldnames, where=where
            )
        found: dict[str, list[tuple[float, float]]] = {}
        for line, row in enumerate(reader, 2):
            place = f"{where}, line {line}"
            try:
                down, up = (number(name, float(row[name]), least=0) for name in _COLUMNS[2:])
            except (TypeError, ValueError):
                got = [row[name] for name in _COLUMNS[2:]]
                raise complain("down_kbit_s, up_kbit_s", "numbers of at least 0", got, where=place) from None
            found.setdefault(row["trace"], []).append((1e3 * down, 1e3 * up))
        if not found:
            raise complain("links", "a table with at least one line", Phrase("none"), where=where)
        return cls([np.array(trace).T for trace in found.values()])

    def rates_bps(self, seed: int, learners: int, cycle: int, cycle_time_s: float) -> FloatArray:
        """Return the rate of each learner in a cycle: both ways take as long as down and up together.

        Learners are spread over the traces and their seconds; traces begin anew at their end.

        Parameters
        ----------
        seed, learners : int
            One seed, one spread of K learners.
        cycle : int
            From 1.
        cycle_time_s : float
            T: as many seconds pass from cycle to cycle, and over as many the rate is averaged, at least one.
        """
        count("cycle", cycle, least=1)
        rng = np.random.default_rng([count("seed", seed), _STREAM])
        chosen = rng.integers(len(self.rates), size=learners)
        begin = rng.random(learners)
        seconds = max(round(cycle_time_s), 1)
        found = np.empty(learners)
        for k, n in enumerate(chosen.tolist()):
            down_up = self.rates[n]
            length = down_up.shape[1]
            at = int(begin[k] * length) + (cycle - 1) * seconds
            down, up = np.maximum(down_up[:, np.arange(at, at + seconds) % length].mean(axis=1), _DEAD_BPS)
            found[k] = 2 / (1 / down + 1 / up)
        return found
