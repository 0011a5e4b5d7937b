"""A server step that finds its own length, against FedAdam with five etas and against plain averaging.

``python -m bench.step --data DIR`` trains what is missing in ``bench/results/step.jsonl``; without ``--data``
it prints the table. DIR holds Fashion-MNIST (four idx files, plain or gzip), ``tinyshakespeare.txt.gz`` and
``cifar10.npz``: the first 12,000 training and 1,000 test images of CIFAR-10, as bytes (n, 32, 32, 3), and
their labels, under the names x, y, test_x and test_y.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from bench.step_tasks import STATISTICS, Arrays, World
from bench.tables import RESULTS, arguments, table
from flwr_mel.cycle.average import weighted_average
from flwr_mel.cycle.step import _MATRICES, Slope, step

FILE = RESULTS / "step.jsonl"
ETAS = (0.001, 0.004, 0.01, 0.02, 0.05)
#: Parts of the way from chance to the best accuracy of any eta.
PARTS = (0.7, 0.85, 0.95)
OURS, AVERAGE = "slope ratio", "average"
#: First lengths that are far from ours.
STARTS = {f"{OURS}, start x 10": 10.0, f"{OURS}, start / 10": 0.1}
#: On these the rule was developed; none of the others was looked at before it was final.
DEVELOPMENT = (
    "mlp@digits/lr0.25",
    "mlp@digits/adam",
    "cnn-bn@digits",
    "cnn-bn@digits/adam",
    "cnn-gn@digits/10of50",
    "cnn@digits/flat16",
    "logistic@digits",
    "gru@digits",
    "vit@digits",
    "vit@digits/lr4",
    "lora@digits",
    "lora@digits/adam",
    "lora@digits/lr4",
    "mlp@mnist/a0.1",
    "wide@mnist",
)
JUDGED = (
    "logistic@fashion",
    "mlp@fashion/10of50",
    "wide@fashion",
    "cnn-bn@fashion",
    "cnn-bn@fashion/adam",
    "cnn-bn@fashion/lr4",
    "cnn-gn@fashion/10of50/a0.1",
    "cnn@fashion/flat16",
    "gru@fashion/adam",
    "vit@fashion/lr4",
    "lora@fashion",
    "lora@fashion/lr0.25",
    "lora@fashion/lr4",
    "lora@fashion/adam/10of50",
    "cnn-bn@cifar/10of50",
    "cnn-gn@cifar/lr0.25",
    "deep@cifar",
    "deep@cifar/adam",
    "vit@cifar",
    "lora@cifar/10of50",
    "gru@text",
    "gru@text/lr0.25",
    "gpt@text/10of50",
    "gpt@text/adam",
    "gpt@text/lr4",
)
#: With these, too.
STARTED = (
    "wide@fashion",
    "cnn-bn@fashion",
    "lora@fashion",
    "lora@fashion/lr4",
    "deep@cifar",
    "vit@cifar",
    "gru@text",
)
#: Three long ones.
LONG = ("wide@fashion/adam/10of50", "deep@cifar/10of50", "gru@text/10of50")
ROUNDS, LONG_ROUNDS = 40, 300
#: The page lists the runs in which the slope ratio needs more than so many times the rounds of the best eta.
SLOWER = 1.25

#: Gets the model, the clients' average, the samples it stands for, and weights and models of clients.
Server = Callable[[Arrays, Arrays, float, Mapping[str, tuple[float, Arrays]]], Arrays]


def adam(eta: float) -> Server:
    """Flower's FedAdam with betas 0.8 and 0.99 and tau 1e-6, which leaves BatchNorm's statistics alone."""
    m: Arrays = {}
    v: Arrays = {}
    t = 0

    def server(model: Arrays, average: Arrays, *_: object) -> Arrays:
        nonlocal t
        t += 1
        length, new = eta * math.sqrt(1 - 0.99 ** (t + 1)) / (1 - 0.8 ** (t + 1)), {}
        for name, x in model.items():
            if name.endswith(STATISTICS):
                new[name] = average[name]
                continue
            change = average[name] - x
            m[name] = 0.8 * m.get(name, np.zeros_like(x)) + 0.2 * change
            v[name] = 0.99 * v.get(name, np.zeros_like(x)) + 0.01 * change**2
            new[name] = x + np.float32(length) * m[name] / (np.sqrt(v[name]) + np.float32(1e-6))
        return new

    return server


def ours(history: list[list[float | None]], start: float = 1.0) -> Server:
    """Our step; the history gets length and slope ratio. `start` multiplies the first length."""
    state = Slope()

    def server(
        model: Arrays, average: Arrays, samples: float, clients: Mapping[str, tuple[float, Arrays]]
    ) -> Arrays:
        nonlocal state
        with mock.patch("flwr_mel.cycle.step._MATRICES", _MATRICES * start**2):
            state, new, facts = step(state, model, average, samples, clients)
        history.append([float(f"{facts.length:.3g}"), None if facts.ratio is None else round(facts.ratio, 3)])
        return new

    return server


def train(world: World, server: Server, rounds: int) -> list[float]:
    """Train, and return the test accuracy after each round."""
    model, found = world.first(), []
    for number in range(1, rounds + 1):
        replies = world.round(model, number)
        good = [
            (k, d, x)
            for k, d, x in zip(replies.clients, replies.samples.tolist(), replies.models, strict=True)
            if all(np.isfinite(a).all() for a in x.values())
        ]
        total = sum(d for _, d, _ in good)
        effective = sum(d * d for _, d, _ in good) / total if good else 1.0
        # FedNova: changes per sample, times the samples that the average stands for.
        scaled: dict[str, tuple[float, Arrays]] = {
            k: (
                d,
                {
                    n: a if n not in world.shapes else model[n] + (effective / d) * (a - model[n])
                    for n, a in x.items()
                },
            )
            for k, d, x in good
        }
        if good:
            layers = weighted_average([list(x.values()) for _, x in scaled.values()], [d for _, d, _ in good])
            average = dict(zip(good[0][2], layers, strict=True))
        else:
            average = {n: np.full_like(x, np.nan) if n in world.shapes else x for n, x in model.items()}
        with np.errstate(all="ignore"):
            new = server(model, average, effective, scaled)
        if all(np.isfinite(x).all() for x in new.values()):  # as MelStrategy does
            model = new
        found.append(round(world.accuracy(model), 4))
    return found


def rivals() -> dict[str, Callable[[], Server]]:
    """Return the servers by name."""
    return {AVERAGE: lambda: lambda _, average, *__: average} | {
        f"adam {eta}": (lambda eta=eta: adam(eta)) for eta in ETAS
    }


def run(directory: Path, cases: Iterable[str], seeds: Iterable[int], servers: list[str], rounds: int) -> None:
    """Train what is missing, and append it to the file."""
    done = set(runs())
    for seed in seeds:
        for case in cases:
            missing = [name for name in servers if (case, seed, name) not in done]
            if not missing:
                continue
            world = World(case, seed, directory)
            for name in missing:
                history: list[list[float | None]] = []
                server = rivals()[name]() if name in rivals() else ours(history, STARTS.get(name, 1.0))
                row: dict[str, Any] = {"case": case, "seed": seed, "server": name}
                row["accuracy"] = train(world, server, rounds)
                if history:
                    row["steps"] = history
                with FILE.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row, separators=(",", ":")) + "\n")
            print(case, seed, flush=True)


Runs = dict[tuple[str, int, str], list[float]]


def runs() -> Runs:
    """Read all runs: accuracy after each round by case, seed and server."""
    if not FILE.exists():
        return {}
    rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return {(x["case"], x["seed"], x["server"]): x["accuracy"] for x in rows}


# --- the table -------------------------------------------------------------------------------------------


def rounds_to(accuracy: list[float], target: float) -> float:
    """Return the rounds to a target, by linear interpolation; all of them if it is missed."""
    for i, x in enumerate(accuracy):
        if x >= target:
            return i + (target - accuracy[i - 1]) / (x - accuracy[i - 1]) if i else 1.0
    return float(len(accuracy))


def compared(found: Runs, case: str, seed: int) -> dict[str, dict[str, float]] | None:
    """Compare all servers of one case with the five etas; None: not all have run."""
    here = {server: x for (c, s, server), x in found.items() if (c, s) == (case, seed)}
    etas = [f"adam {eta}" for eta in ETAS]
    if not all(name in here for name in etas):
        return None
    best = max(float(np.convolve(here[name], np.ones(3) / 3, "valid").max()) for name in etas)
    chance = 0.02 if case.partition("/")[0].endswith("text") else 0.1
    targets = [chance + part * (best - chance) for part in PARTS]
    took = {name: math.exp(np.mean([math.log(rounds_to(x, t)) for t in targets])) for name, x in here.items()}
    ends = {name: float(np.mean(x[-5:])) for name, x in here.items()}
    least, middle = min(took[n] for n in etas), float(np.median([took[n] for n in etas]))
    end = float(np.median([ends[n] for n in etas]))
    return {
        name: {
            "rounds": took[name],
            "best": took[name] / least,
            "median": took[name] / middle,
            "end": ends[name] - end,
        }
        for name in here
    } | {
        "hindsight": {
            "eta": ETAS[int(np.argmin([took[n] for n in etas]))],
            "rounds": least,
            "median": middle / least,
        }
    }


def section(found: Runs) -> str:
    """Return the section of the page."""
    names = [OURS, AVERAGE, *(f"adam {eta}" for eta in ETAS)]
    parts = []
    for title, cases in (("Judged", JUDGED), ("Judged, 300 rounds", LONG), ("Development", DEVELOPMENT)):
        seeds = sorted({s for c, s, _ in found if c in cases})
        results = {(c, s): x for c in cases for s in seeds if (x := compared(found, c, s))}
        results = {key: x for key, x in results.items() if OURS in x}
        if not results:
            continue
        rows = []
        for name in names:
            some = [x[name] for x in results.values() if name in x]
            if not some:
                continue
            rows.append(
                [
                    name,
                    f"{math.exp(np.mean([math.log(x['best']) for x in some])):.2f}",
                    f"{max(x['best'] for x in some):.2f}",
                    f"{max(x['median'] for x in some):.2f}",
                    f"{sum(x['median'] > 1.25 for x in some)}",
                    f"{min(x['end'] for x in some) * 100:+.1f}",
                    f"{sum(x['end'] < -0.02 for x in some)}",
                ]
            )
        heads = [
            "server",
            "rounds / best eta",
            "worst",
            "worst / median eta",
            "above 1.25",
            "worst end",
            "below -2",
        ]
        parts.append(
            f"{title}: {len(results)} runs of {len({c for c, _ in results})} cases.\n\n{table(heads, rows)}"
        )
        single = [
            [
                f"`{case}`",
                str(seed),
                f"{x['hindsight']['eta']:g}",
                *(f"{z:.1f}" for z in (x["hindsight"]["rounds"],)),
                f"{x['hindsight']['median']:.2f}",
                f"{x[OURS]['best']:.2f}",
                f"{x[OURS]['median']:.2f}",
                f"{x[OURS]['end'] * 100:+.1f}",
            ]
            for (case, seed), x in results.items()
            if x[OURS]["best"] > SLOWER
        ]
        heads = [
            "case",
            "seed",
            "best eta",
            "its rounds",
            "median / best",
            "ours / best",
            "ours / median",
            "ours' end",
        ]
        if single:
            parts.append(f"More than {SLOWER} times as many:\n\n{table(heads, single)}")
    started = {x: compared(found, x, 0) for x in STARTED}
    rows = [
        [f"`{case}`", *(f"{x[name]['best']:.2f}" for name in (OURS, *STARTS))]
        for case, x in started.items()
        if x and all(name in x for name in STARTS)
    ]
    if rows:
        heads = ["ours / best eta", "as it is", "first length x 10", "first length / 10"]
        parts.append(f"First lengths that are far from right:\n\n{table(heads, rows)}")
    tables = "\n\n".join(parts)
    return f"""## The server's step

Rounds to {", ".join(f"{p:.0%}" for p in PARTS)} of the way from chance to the best accuracy of any eta
(geometric mean; a missed target counts with all rounds), relative to the best of FedAdam's five etas in
hindsight and to their median. *End*: accuracy of the last five rounds, in points above the median eta's.
Seed 1 has run for some of the cases only. 12 clients in every round or 10 of 50, with 1 to 4 batches each,
{ROUNDS} rounds ({LONG_ROUNDS} where it says so). A case is a network, its data, the clients' optimizer
(SGD unless it says adam), a factor of their learning rate, Dirichlet's alpha (0.5 unless it says otherwise),
and a divisor of the inputs (flat).

{tables}
"""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, help="directory of the data sets; without it, only the table")
    parser.add_argument("--part", choices=["judged", "starts", "long", "development", "all"], default="all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--servers", nargs="+", choices=[OURS, *rivals()], default=[OURS, *rivals()])
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts = {"judged": JUDGED, "starts": STARTED, "long": LONG, "development": DEVELOPMENT}
    for name, cases in parts.items() if given.data else ():
        if given.part in (name, "all"):
            rounds = LONG_ROUNDS if name == "long" else ROUNDS
            servers = list(STARTS) if name == "starts" else given.servers
            run(given.data, cases, [0] if name in ("starts", "long") else given.seeds, servers, rounds)
    print(section(runs()))


if __name__ == "__main__":
    main()
