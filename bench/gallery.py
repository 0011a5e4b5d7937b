"""The projects of examples/, as they are and with their diffs: ``python -m bench.gallery [NAME ...]``.

Every run is a real `flwr run` with four simulated devices: 1, 2, 5 and 10 times slower, or equally fast.
The wrapped project has exactly its diff, and no number is given to MelStrategy. Measured are the time of a
round and the time to the accuracy that the project itself reaches in its last round. Needs the extra
`examples`. Results are saved project by project.

With ``--best`` the guide's recipe for short rounds (`cycle_time_s="best"`, FedAdam) is compared with both
on the unequal devices, for each step in `ETAS`.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from bench.tables import load, save, table
from examples.run import EQUAL, GALLERY, ROOT, UNEQUAL, Run, copy, run, superlink
from flwr_mel.records import CycleRecord, read_jsonl

#: Devices, and rounds of the project as it is and wrapped: those are shorter.
FLEETS = {"unequal": (UNEQUAL, 5, 12), "equal": (EQUAL, 4, 5)}


def measure(name: str, fleet: str, out: Path, env: dict[str, str]) -> dict[str, Any]:
    """Run a project both ways.

    Parameters
    ----------
    name : str
        Of the project.
    fleet : str
        Which devices.
    out : Path
        Where the copies go.
    env : dict
        From `superlink`.
    """
    speeds, *rounds = FLEETS[fleet]
    plain, wrapped = (
        run(copy(name, out / f"{fleet}-{kind}", wrapped=kind == "wrapped", speeds=speeds), env, rounds=number)
        for kind, number in zip(("plain", "wrapped"), rounds, strict=True)
    )
    target = plain.accuracies[rounds[0]][1]
    notes = [text.partition(":")[2].strip() for _, text in wrapped.lines if "rounds took" in text.lower()]
    return {
        "target": target,
        "plain_s": seconds_to(plain, target),
        "wrapped_s": seconds_to(wrapped, target),
        "plain_round_s": round_s(plain),
        "wrapped_round_s": round_s(wrapped),
        "best": max(accuracy for _, accuracy in wrapped.accuracies.values()),
        "summary": notes[-1] if notes else "",
    }


#: Steps of the server's optimizer, all of which are reported, and how long a run may last.
ETAS, LIMIT_S = (0.005, 0.01, 0.02, 0.05), 60
#: More rounds than that takes.
MANY = 1500
#: What takes the place of FedAvg. One run with FedAdam shows what it does to BatchNorm.
ADAM = {"quickstart_pytorch": "FedAdamBatchNorm", "sklearn_logreg": "FedAdam"}
_DIFF = "strategy = MelStrategy(strategy)"


def measure_best(name: str, out: Path, env: dict[str, str]) -> dict[str, Any]:
    """Run a project as it is, with its diff, and with the recipe for short rounds.

    Parameters
    ----------
    name : str
        Of the project.
    out : Path
        Where the copies go.
    env : dict
        From `superlink`.
    """
    speeds, *rounds = FLEETS["unequal"]
    plain = run(copy(name, out / "plain", wrapped=False, speeds=speeds), env, rounds=rounds[0])
    target = plain.accuracies[rounds[0]][1]
    variants = {"its diff": ("FedAvg", 0.0)}
    variants |= {f"best, {ADAM[name]}, eta {eta}": (ADAM[name], eta) for eta in ETAS}
    variants |= {f"best, FedAdam, eta {ETAS[1]}": ("FedAdam", ETAS[1])}
    found: dict[str, Any] = {}
    for title, (server, eta) in variants.items():
        records = out / f"{server}-{eta}.jsonl"
        app = copy(name, out / f"{server}-{eta}", wrapped=True, speeds=speeds)
        change(app, server, eta, f"Stopping(target={target}, time_s={LIMIT_S})", records)
        done = run(app, env, rounds=MANY if eta else rounds[1])
        found[title] = outcome(done, target) | work_to(done, list(read_jsonl(records)), target)
    first = next(iter(read_jsonl(out / "FedAvg-0.0.jsonl")))
    needed = next(n for n, (_, accuracy) in plain.accuracies.items() if accuracy >= target)
    work = {"rounds": needed, "samples": needed * samples_of(first)}
    return {"target": target, "as it is": outcome(plain, target) | work, **found}


def change(app: Path, server: str, eta: float, stopping: str, records: Path) -> None:
    """Let a copy write its records; with an eta also use the recipe, with this strategy inside."""
    (file,) = app.glob("*/server_app.py")
    text, options = file.read_text(), "callbacks=[writer]"
    if eta:
        package = file.parent
        (package / "batchnorm_fedadam.py").write_text((ROOT / "batchnorm_fedadam.py").read_text())
        text = text.replace(
            "from flwr.serverapp.strategy import FedAvg",
            f"from {package.name}.batchnorm_fedadam import FedAdam, FedAdamBatchNorm",
        ).replace("FedAvg(", f"{server}(eta={eta}, beta_1=0.8, beta_2=0.99, tau=1e-6, ")
        options = f'cycle_time_s="best", average="nova", callbacks=[writer, {stopping}]'
    planned = f"writer = JsonlWriter({str(records)!r})\n    strategy = MelStrategy(strategy, {options})"
    file.write_text(text.replace(_DIFF, f"from flwr_mel import JsonlWriter, Stopping\n\n    {planned}"))


def outcome(done: Run, target: float) -> dict[str, Any]:
    """Return the time to an accuracy, the best accuracy, and the time of a round."""
    best = max(accuracy for _, accuracy in done.accuracies.values())
    return {"seconds": seconds_to(done, target), "best": best, "round_s": round_s(done)}


def work_to(done: Run, records: list[CycleRecord], target: float) -> dict[str, Any]:
    """Return the rounds and samples to an accuracy, and T of the last round."""
    needed = next((n for n, (_, accuracy) in done.accuracies.items() if accuracy >= target), None)
    samples = None if needed is None else sum(samples_of(record) for record in records[:needed])
    return {"rounds": needed, "samples": samples, "cycle_time_s": records[-1].cycle_time_s}


def samples_of(record: CycleRecord) -> int:
    """Return the samples that all clients processed in a round, every epoch counted."""
    own = record.metrics.get("train-epochs-run", 1.0)
    return round(sum(row.weight * (own if row.baseline else row.epochs) for row in record.asked))


def seconds_to(done: Run, target: float) -> float | None:
    """Return the time from the first training to an accuracy; None: it was not reached."""
    times = (seconds - done.began_s for seconds, accuracy in done.accuracies.values() if accuracy >= target)
    return next(times, None)


def round_s(done: Run) -> float:
    """Return the mean time of a round after the first, in which libraries and data are loaded."""
    times = [seconds for seconds, _ in done.accuracies.values()]
    return (times[-1] - times[0]) / (len(times) - 1)


def time_to(x: dict[str, Any], seconds: str = "seconds") -> str:
    """Return the time to the accuracy; where it was not reached, the best accuracy."""
    return f"{x[seconds]:.0f} s" if x[seconds] is not None else f"not reached ({x['best']:.1%})"


def row(name: str, found: dict[str, Any]) -> list[str]:
    """Return a line of the table of times to an accuracy."""
    x = found["unequal"]
    return [f"`{name}`", f"{x['target']:.1%}", time_to(x, "plain_s"), time_to(x, "wrapped_s")]


def best_row(name: str, found: dict[str, Any]) -> list[str]:
    """Return the project, its diff, and the fastest and the slowest of the runs with short rounds."""
    variants = {title: x for title, x in found.items() if title.startswith("best")}
    order = sorted(variants, key=lambda title: variants[title]["seconds"] or math.inf)
    ends = [
        f"{time_to(variants[title])}, {variants[title]['samples']:,} samples ({title.removeprefix('best, ')})"
        for title in (order[0], order[-1])
    ]
    plain = [f"{time_to(found[key])}, {found[key]['samples']:,} samples" for key in ("as it is", "its diff")]
    return [f"`{name}`", *plain, *ends]


def section(results: dict[str, Any]) -> str:
    """Return the section of the page."""
    projects = [row(name, results["projects"][name]) for name in GALLERY if name in results["projects"]]
    best = [best_row(name, found) for name, found in results["best"].items()]
    return f"""## Examples, original and with flwr_mel

The projects of `examples/` with `flwr run` and four simulated clients that need 1, 2, 5 and 10 times as
long, without and with exactly their `mel.diff`. The [README](../README.md) has the round times, this table
the time to the accuracy that the original reaches in {FLEETS["unequal"][1]} rounds, with the baseline round.
Single runs; times vary by about a fifth.

{table(["project", "accuracy", "original", "with flwr_mel"], projects)}

The same clients with the guide's recipe for short rounds (`--best`): `cycle_time_s="best"`, `average="nova"`
and FedAdam with one of {len(ETAS)} steps eta. The costs are learned, including the time that Flower itself
takes in each round. The table shows the time to an accuracy and the samples processed until then.

{table(["project", "original", "with its diff", "best, fastest", "best, slowest"], best)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GALLERY)}; default: all")
    parser.add_argument("--best", action="store_true", help="measure the recipe for short rounds instead")
    given = parser.parse_args()
    results = load("gallery")
    kind = "best" if given.best else "projects"
    with superlink() as env, tempfile.TemporaryDirectory() as scratch:
        for name in given.names or (ADAM if given.best else GALLERY):
            out = Path(scratch, name)
            out.mkdir()
            if given.best:
                found = measure_best(name, out, env)
            else:
                found = {fleet: measure(name, fleet, out, env) for fleet in FLEETS}
            results.setdefault(kind, {})[name] = found
            print(name, json.dumps(found), flush=True)
            save("gallery", {key: value for key, value in results.items() if key != "version"})


if __name__ == "__main__":
    main()
