"""The projects of examples/ on virtual fleets, as they are and planned: ``python -m bench.gallery``.

`flwr-mel try` runs each project with exactly its diff on the built-in fleets; no number is given to
MelStrategy. What a sample takes is measured when a project is computed for the first time, and is saved with
the results: from then on they are the same to the bit, on any machine. Needs the extra `examples`. Results
are saved run by run; what is there is not computed again, except with ``--again``.

With ``--real`` two projects are run in real time instead, with `flwr run` and four clients that sleep, as a
check of the virtual clock; with ``--best`` each run is computed with `cycle_time_s="best"` beside.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.tables import load, save, table
from examples.run import GALLERY, UNEQUAL, Run, copy, run, superlink
from flwr_mel.tools.report import load_run
from flwr_mel.tools.trial.fleets import BUILT_IN

CLIENTS, ROUNDS = 20, 10
#: Run in real time too, with four clients, for so many rounds as they are and wrapped.
REAL, REAL_ROUNDS = ("quickstart_pytorch", "sklearn_logreg"), (5, 12)


def attempt(
    app: Path, fleet: str, out: Path, reference: dict[str, Any] | None, *options: object
) -> dict[str, Any]:
    """Run `flwr-mel try` on a wrapped copy of a project; return its answer and what a sample takes.

    Parameters
    ----------
    app, out : Path
        The copy, and where results go.
    fleet : str
        One of the built-in ones.
    reference : dict, optional
        What a sample takes. None: measured.
    options
        Of the command.
    """
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "reference.json"
    if reference is not None:
        kept.write_text(json.dumps(reference))
    words = ["try", app, "--fleet", fleet, "--out", out, "--json", *options]
    done = subprocess.run(
        [sys.executable, "-m", "flwr_mel.tools.cli", *map(str, words)], stdout=subprocess.PIPE, check=True
    )
    return {**json.loads(done.stdout), "reference": json.loads(kept.read_text())}


def real(name: str, out: Path, env: dict[str, str]) -> dict[str, Any]:
    """Run a project in real time both ways, and on the virtual clock with the same clients.

    Parameters
    ----------
    name : str
        Of the project.
    out : Path
        Where the copies go.
    env : dict
        From `superlink`.
    """
    plain, wrapped = (
        run(copy(name, out / kind, wrapped=kind == "wrapped", speeds=UNEQUAL), env, rounds=number)
        for kind, number in zip(("plain", "wrapped"), REAL_ROUNDS, strict=True)
    )
    reference = {"seconds_per_sample": GALLERY[name], "model_bytes": 0}
    rounds = ("--clients", len(UNEQUAL), "--rounds", REAL_ROUNDS[0])
    app = copy(name, out / "virtual", wrapped=True, speeds=None)
    attempt(app, "1-2-5-10", out / "try", reference, *rounds)
    own, planned = (load_run(out / "try" / kind).round_s[1:] for kind in ("as-it-is", "planned"))
    return {
        "real": [round_s(plain), round_s(wrapped)],
        "virtual": [float(own.mean()), float(planned.mean())],
    }


def round_s(done: Run) -> float:
    """Return the mean time of a round after the first, in which libraries and data are loaded."""
    times = [seconds for seconds, _ in done.accuracies.values()]
    return (times[-1] - times[0]) / (len(times) - 1)


def row(name: str, found: dict[str, Any]) -> list[str]:
    """Return a project's line: time to the accuracy as it is and planned, and the energy, on each fleet."""
    cells = [f"`{name}`"]
    for fleet in BUILT_IN:
        runs = found.get(fleet, {}).get("runs")
        cells.append(
            "-" if runs is None else " to ".join(_time(runs[kind]) for kind in ("as it is", "planned"))
        )
    return cells


def _time(run: dict[str, Any]) -> str:
    """Return the time to the accuracy, and the energy if it is known."""
    if run["seconds"] is None:
        return "not reached"
    return f"{run['seconds']:.3g} s" + (f", {run['joules']:.3g} J" if run["joules"] else "")


def section(results: dict[str, Any]) -> str:
    """Return the section of the page."""
    rows = [row(name, results["projects"][name]) for name in GALLERY if name in results["projects"]]
    checks = [
        [f"`{name}`", *(f"{x[clock][0] / x[clock][1]:.2f} x" for clock in ("real", "virtual"))]
        for name, x in results.get("real", {}).items()
    ]
    checked = f"""

A check of the virtual clock: the same projects with four clients that need 1, 2, 5 and 10 times as long, in
real time (`--real`: `flwr run`, where the clients sleep) and on the virtual clock. The gain in the time of a
round after the first:

{table(["project", "real time", "virtual clock"], checks)}"""
    return f"""## Examples on virtual fleets

The projects of `examples/` with exactly their `mel.diff`, by `flwr-mel try` with {CLIENTS} clients: time and
energy to the best accuracy that the original and the planned run both reach, the original in {ROUNDS} rounds.
Both are virtual: counted work times the costs of the devices. The [README](../README.md) has the gains.

{table(["project", *BUILT_IN], rows)}{checked if checks else ""}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GALLERY)}; default: all")
    parser.add_argument("--fleets", nargs="*", default=BUILT_IN, help=f"of {', '.join(BUILT_IN)}")
    parser.add_argument("--again", action="store_true", help="compute again what is there")
    parser.add_argument("--best", action="store_true", help='add runs with cycle_time_s="best"')
    parser.add_argument("--real", action="store_true", help="run in real time instead, as a check")
    given = parser.parse_args()
    results = load("gallery")
    with tempfile.TemporaryDirectory() as scratch:
        if given.real:
            with superlink() as env:
                for name in given.names or REAL:
                    keep(results, ("real", name), real(name, Path(scratch, name), env))
            return
        for name in given.names or GALLERY:
            app = copy(name, Path(scratch, name), wrapped=True, speeds=None)
            for fleet in given.fleets:
                found = results.setdefault("projects", {}).setdefault(name, {})
                if fleet in found and not given.again:
                    continue
                measured = next((x["reference"] for x in found.values()), None)
                rounds = ("--clients", CLIENTS, "--rounds", ROUNDS, *["--best"] * given.best)
                answer = attempt(app, fleet, Path(scratch, f"{name}-{fleet}"), measured, *rounds)
                keep(results, ("projects", name, fleet), answer)


def keep(results: dict[str, Any], place: tuple[str, ...], found: dict[str, Any]) -> None:
    """Save what was found, and print it."""
    table_of = results
    for key in place[:-1]:
        table_of = table_of.setdefault(key, {})
    table_of[place[-1]] = found
    print(*place, json.dumps(found), flush=True)
    save("gallery", {key: value for key, value in results.items() if key != "version"})


if __name__ == "__main__":
    main()
