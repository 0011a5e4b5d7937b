"""The projects of examples/, as they are and with their diffs: ``python -m bench.gallery [NAME ...]``.

Every run is a real `flwr run` with four simulated devices: 1, 2, 5 and 10 times slower, or equally fast.
The wrapped project has exactly its diff, and no number is given to MelStrategy. Measured are the time of a
round and the time to the accuracy that the project itself reaches in its last round. Needs the extra
`examples`. Writes a section of docs/BENCHMARKS.md and bench/results/gallery.json, project by project.

With ``--best`` the guide's recipe for short rounds (`cycle_time_s="best"`, FedAdam) is compared with both
on the unequal devices, for each step in `ETAS`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import flwr_mel
from bench.tables import PAGE, table, write_section
from examples.run import EQUAL, GALLERY, ROOT, UNEQUAL, Run, copy, run, superlink
from flwr_mel.records import CycleRecord, read_jsonl
from flwr_mel.solvers.rate import LEAST

RESULTS = Path(__file__).parent / "results" / "gallery.json"
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
LEAST_S = LEAST * GALLERY["quickstart_pytorch"] * max(UNEQUAL)
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


def row(name: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """Return a line of the table."""
    cells = [f"`{name}`"]
    for fleet in FLEETS:
        x = found[fleet]
        cells += [f"{x['plain_round_s']:.1f} s", f"{x['wrapped_round_s']:.1f} s"]
        if fleet == "unequal":
            reached = x["wrapped_s"] is not None
            cells += [f"{100 * x['target']:.1f} %", f"{x['plain_s']:.0f} s"]
            cells += [f"{x['wrapped_s']:.0f} s" if reached else f"not reached ({100 * x['best']:.1f} %)"]
            cells += [f"**{x['plain_s'] / x['wrapped_s']:.1f}**" if reached else "-"]
    return cells


#: Names of two variants on the page.
TITLES = {"as it is": "original", "its diff": "with its diff"}


def best_table(found: dict[str, Any]) -> str:
    """Return the table of the runs with short rounds."""
    head = ["project", "target accuracy", "variant", "time", "samples", "rounds", "T", "round"]
    lines = []
    for name, x in found.items():
        for title, v in x.items():
            if title == "target":
                continue
            reached = v["seconds"] is not None
            lines.append(
                [
                    f"`{name}`",
                    f"{100 * x['target']:.1f} %",
                    TITLES.get(title, title),
                    f"{v['seconds']:.0f} s" if reached else f"not reached ({100 * v['best']:.1f} %)",
                    f"{v['samples']:,}" if reached else "-",
                    str(v.get("rounds") or "-"),
                    f"{v['cycle_time_s']:.2f} s" if "cycle_time_s" in v else "-",
                    f"{v['round_s']:.2f} s",
                ]
            )
    return table(head, lines)


def section(results: dict[str, Any]) -> str:
    """Return the section of the page."""
    found = {name: results["projects"][name] for name in GALLERY if name in results["projects"]}
    head = [
        "project",
        "original round",
        "with flwr_mel",
        "target accuracy",
        "original time",
        "with flwr_mel",
        "speedup",
    ]
    head += ["equal devices: original", "with flwr_mel"]
    ratio = median(x["unequal"]["plain_round_s"] / x["unequal"]["wrapped_round_s"] for x in found.values())
    return f"""## Examples, original and with flwr_mel

Generated by `python -m bench.gallery` (version {results["version"]}). The projects of `examples/` with
`flwr run` and four simulated devices that are 1, 2, 5 and 10 times slower than the fastest. The wrapped
project has exactly its `mel.diff`. Round times are means without the first round. In the median a wrapped
round is {ratio:.1f} times shorter. The time to the accuracy that the project reaches in
{FLEETS["unequal"][1]} rounds includes the baseline round. The last two columns are for four equally fast
devices. One run each; single times vary by about a fifth.

{table(head, [row(name, x) for name, x in found.items()])}

### With rounds of the best length

`python -m bench.gallery --best`: the same devices, with the guide's recipe `cycle_time_s="best"`, FedAdam and
`average="nova"`, compared with the original project and its diff, all in one session. Costs are learned and
the clock is real. T is what the plan gives to the clients; the slowest one needs {LEAST_S:.2g} s for the
smallest task of {LEAST} samples in the first project. T is longer because a round also costs time outside of
the tasks, which the plan learns. Runs end after {LIMIT_S} s of rounds. `FedAdamBatchNorm` is
`examples/batchnorm_fedadam.py`.

{best_table(results.get("best", {}))}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GALLERY)}; default: all")
    parser.add_argument("--best", action="store_true", help="measure the recipe for short rounds instead")
    parser.add_argument("--page", action="store_true", help="only write the page from the results at hand")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    if not given.page:
        results |= {"version": flwr_mel.__version__}
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
                RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_section(PAGE, "gallery", section(results))


if __name__ == "__main__":
    main()
