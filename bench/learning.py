"""What learning costs from replies is worth: `plan` and `settle` against hidden true costs.

``python -m bench.learning`` runs seeded scenarios; with ``--links 5g-download.csv.gz`` also recorded 5G links
(the page says whose; they are not part of this repository) and recorded bursts of load.
"""

from __future__ import annotations

import gzip
import json
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench.tables import arguments, save, table
from flwr_mel import wire
from flwr_mel._validate import FloatArray
from flwr_mel.cycle.options import Estimation, Options, Rounds
from flwr_mel.cycle.plan import plan
from flwr_mel.cycle.settle import Reply, settle
from flwr_mel.cycle.state import State, with_answers, with_nodes

LOAD = Path(__file__).parent / "results" / "load.json"
LEARNERS, SAMPLES, SLACK = 8, 4000, 0.25
#: Noise of single cycles, computing and link; cycles at the start that do not count.
NOISE, SETTLING = (0.06, 0.15), 5
#: The paper's network in bits, each way, and the time in which a device measures what it declares.
MODEL_BITS, MEASURED_S = 271_000 * 32, 60.0
MODEL = {"w": np.zeros(1, np.float32)}

METHODS: dict[str, Estimation | None] = {
    "declared costs": None,
    "estimate, 0.95": Estimation(on_time=0.95),
    "estimate, 0.99": Estimation(on_time=0.99),
}
#: The constants of the estimator were tuned with smaller seeds; these fleets were not looked at before.
FIRST_SEED = 100


class Truth(Protocol):
    """A fleet whose true times are hidden from the planner."""

    @property
    def declared(self) -> FloatArray:
        """Costs that the clients declare."""

    @property
    def cycles(self) -> int:
        """Length."""

    @property
    def cycle_s(self) -> float:
        """T."""

    def seconds(self, cycle: int, k: int, epochs: int, samples: int) -> float:
        """Return what a task really takes."""


@dataclass(frozen=True)
class Trace:
    """Seeded truth: log-factors on declared costs, per cycle and learner."""

    declared: FloatArray
    compute: FloatArray
    link: FloatArray
    cycles: int
    cycle_s: float = 10.0

    def seconds(self, cycle: int, k: int, epochs: int, samples: int) -> float:
        """Return what a task really takes."""
        c2, c1, c0 = self.declared[k]
        train = c2 * epochs * samples * math.exp(self.compute[cycle, k])
        return float(train + (c1 * samples + c0) * math.exp(self.link[cycle, k]))


Change = Callable[[np.random.Generator, FloatArray, FloatArray], None]


def _drift(rng: np.random.Generator, compute: FloatArray, link: FloatArray) -> None:
    compute += np.cumsum(rng.normal(0, 0.03, compute.shape), axis=0)
    link += np.cumsum(rng.normal(0, 0.03, link.shape), axis=0)


def _spell(rng: np.random.Generator, values: FloatArray, factor: float) -> None:
    for k in range(values.shape[1]):
        start = int(rng.integers(10, len(values) // 2))
        values[start : start + int(rng.integers(10, 20)), k] += math.log(factor)


def _throttling(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    _spell(rng, compute, 2)


def _link_changes(rng: np.random.Generator, _: FloatArray, link: FloatArray) -> None:
    _spell(rng, link, 3)


def _faster(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    for k in range(0, compute.shape[1], 2):
        compute[int(rng.integers(10, len(compute) // 2)) :, k] -= math.log(2)


def _outliers(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    compute += math.log(3) * (rng.random(compute.shape) < 0.02)


def _bursts(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    for k in range(compute.shape[1]):
        start = int(rng.geometric(1 / 14))
        while start < len(compute):
            length = int(rng.integers(1, 5))
            compute[start : start + length, k] += math.log(rng.uniform(1.5, 3))
            start += length + int(rng.geometric(1 / 14))


def _spikes(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    compute += math.log(4) * (rng.random(compute.shape) < 0.04)


SCENARIOS: dict[str, tuple[Change, ...]] = {
    "steady": (),
    "drift": (_drift,),
    "throttling": (_throttling,),
    "link changes": (_link_changes,),
    "faster devices": (_faster,),
    "single outliers": (_outliers,),
    "bursts": (_bursts,),
    "spikes": (_spikes,),
    "all of these": (_drift, _throttling, _link_changes, _faster, _outliers),
}


def trace(changes: tuple[Change, ...], cycles: int, rng: np.random.Generator) -> Trace:
    """Draw a fleet and what becomes of it; declared costs are off by about 20 percent."""
    spread = np.exp(rng.normal(0, 0.5, (LEARNERS, 2)))
    declared = np.column_stack((5e-4 * spread[:, 0], 2e-3 * spread[:, 1], 0.5 * spread[:, 1]))
    off = rng.normal(0, 0.2, (2, LEARNERS))
    compute, link = np.tile(off[0], (cycles, 1)), np.tile(off[1], (cycles, 1))
    for change in changes:
        change(rng, compute, link)
    noisy = [x + rng.normal(0, noise, x.shape) for x, noise in zip((compute, link), NOISE, strict=True)]
    return Trace(declared, noisy[0], noisy[1], cycles)


@dataclass(frozen=True)
class Speed:
    """A recording of how much is done per second, step by step; it begins anew at its end."""

    values: FloatArray
    step_s: float

    @cached_property
    def _done(self) -> FloatArray:
        # Nothing stands still for ever: an amount must have an end.
        least = 1e-4 * float(self.values.max())
        return np.concatenate((np.zeros(1), np.cumsum(np.maximum(self.values, least) * self.step_s)))

    @cached_property
    def _times(self) -> FloatArray:
        return np.linspace(0.0, self.step_s * len(self.values), len(self._done))

    def until(self, time_s: float) -> float:
        """Return the amount that is done from 0 until a time."""
        laps, rest = divmod(time_s, float(self._times[-1]))
        return laps * float(self._done[-1]) + float(np.interp(rest, self._times, self._done))

    def takes(self, begin_s: float, amount: float) -> float:
        """Return the seconds that an amount takes from a time on."""
        laps, rest = divmod(self.until(begin_s) + amount, float(self._done[-1]))
        return laps * float(self._times[-1]) + float(np.interp(rest, self._done, self._times)) - begin_s


@dataclass(frozen=True)
class Replay:
    """A fleet whose links and computers follow recordings."""

    declared: FloatArray
    idle_c2: FloatArray
    links: list[Speed]
    loads: list[Speed]
    begin: FloatArray
    cycles: int
    cycle_s: float = 30.0

    def seconds(self, cycle: int, k: int, epochs: int, samples: int) -> float:
        """Return what a task really takes: model down, training, model up."""
        begin, shift = self.begin[k, 0] + cycle * self.cycle_s, self.begin[k, 1] - self.begin[k, 0]
        down = self.links[k].takes(begin, MODEL_BITS)
        train = self.loads[k].takes(begin + down + shift, self.idle_c2[k] * epochs * samples)
        return float(down + train + self.links[k].takes(begin + down + train, MODEL_BITS))

    @property
    def hopeless(self) -> float:
        """Share of the tasks whose link alone takes longer than T."""
        every = [self.seconds(i, k, 0, 0) for i in range(self.cycles) for k in range(LEARNERS)]
        return float(np.mean(np.array(every) > self.cycle_s))


def replay(links: list[Speed], loads: list[Speed], cycles: int, rng: np.random.Generator) -> Replay:
    """Draw a fleet; a device declares its mean rate and speed of the minute before the start."""
    idle_c2 = 5e-4 * np.exp(rng.normal(0, 0.5, LEARNERS))
    mine = [links[n] for n in rng.integers(len(links), size=LEARNERS)]
    theirs = [loads[n] for n in rng.integers(len(loads), size=LEARNERS)]
    begin = rng.uniform(MEASURED_S, 3600, (LEARNERS, 2))

    def before(speeds: list[Speed], at: FloatArray) -> FloatArray:
        means = [(x.until(t) - x.until(t - MEASURED_S)) / MEASURED_S for x, t in zip(speeds, at, strict=True)]
        return np.array(means)

    rates, pace = before(mine, begin[:, 0]), before(theirs, begin[:, 1])
    declared = np.column_stack((idle_c2 / pace, np.zeros(LEARNERS), 2 * MODEL_BITS / rates))
    return Replay(declared, idle_c2, mine, theirs, begin, cycles)


def read_links(path: Path, mobility: str) -> list[Speed]:
    """Read the rates of downloads in bits per second; the model goes both ways at that rate."""
    rates: dict[str, list[float]] = {}
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        next(file)
        for line in file:
            name, kind, _, kbit_s, *_ = line.split(",")
            if kind == mobility:
                rates.setdefault(name, []).append(float(kbit_s) * 1000)
    return [Speed(np.array(values), 1.0) for values in rates.values()]


def recordings(links: Path) -> Iterator[tuple[str, list[Speed], list[Speed]]]:
    """Name what is replayed, with its links and loads."""
    found = json.loads(LOAD.read_text(encoding="utf-8"))
    busy = [Speed(1 / np.array(found["slowdown"]), found["step_s"])]
    idle, even = [Speed(np.ones(2), 30.0)], [Speed(np.full(2, 1e7), 30.0)]
    static, driving = (read_links(links, mobility) for mobility in ("static", "driving"))
    yield "5G, static", static, idle
    yield "5G, driving", driving, idle
    yield "bursts of load", even, busy
    yield "driving and load", driving, busy


def run(truth: Truth, estimation: Estimation | None) -> tuple[int, int, int]:
    """Plan and settle a whole trace; return tasks, tasks that missed T, and epochs within T."""
    rounds = Rounds(deadline_slack=SLACK)
    options = Options(
        cycle_time_s=truth.cycle_s, total_samples=SAMPLES, staleness=3, estimation=estimation, rounds=rounds
    )
    words = {
        str(k): {wire.MODDED: 1, wire.MAX_SAMPLES: SAMPLES}
        | dict(zip(wire.COEFFICIENTS, (*map(float, truth.declared[k]), 0.0, 0.0, 0.0), strict=True))
        for k in range(LEARNERS)
    }
    state = with_answers(with_nodes(State(), list(words)), options, words)
    tasks = missed = epochs = 0
    late: set[str] = set()
    for cycle in range(truth.cycles):
        state, planned, record = plan(state, options, cycle + 1, list(words))
        # Clients that were late answer a probe while the others work.
        state = with_answers(state, options, {node: words[node] for node in late})
        took = {x.node: truth.seconds(cycle, int(x.node), x.epochs, x.samples) for x in planned}
        replies = {
            x.node: Reply(MODEL, x.samples, words[x.node], took[x.node])
            for x in planned
            if took[x.node] <= truth.cycle_s * (1 + SLACK)
        }
        late = {x.node for x in planned} - replies.keys()
        state, _, _ = settle(state, options, record, replies, MODEL)
        if cycle >= SETTLING:
            in_time = [x.epochs for x in planned if took[x.node] <= truth.cycle_s]
            tasks, missed = tasks + len(planned), missed + len(planned) - len(in_time)
            epochs += sum(in_time)
    return tasks, missed, epochs


def fleets(links: Path | None, seeds: int, cycles: int) -> Iterator[tuple[str, list[Truth]]]:
    """Name the situations, with their fleets: the same ones for all methods."""
    for i, (name, changes) in enumerate(SCENARIOS.items()):
        rngs = [np.random.default_rng([i, FIRST_SEED + seed]) for seed in range(seeds)]
        yield name, [trace(changes, cycles, rng) for rng in rngs]
    for i, (name, some, loads) in enumerate(() if links is None else recordings(links)):
        rngs = [np.random.default_rng([i, FIRST_SEED + seed]) for seed in range((seeds + 1) // 2)]
        yield name, [replay(some, loads, 100, rng) for rng in rngs]


Found = dict[str, dict[str, dict[str, float]]]


def study(links: Path | None, seeds: int, cycles: int) -> tuple[Found, dict[str, float]]:
    """Run every method on every situation; return the results and the share that no plan could save."""
    results: Found = {}
    hopeless = {}
    for name, truths in fleets(links, seeds, cycles):
        results[name] = {}
        for method, estimation in METHODS.items():
            tasks, missed, epochs = np.sum([run(truth, estimation) for truth in truths], axis=0).tolist()
            counted = sum(truth.cycles - SETTLING for truth in truths) * LEARNERS
            results[name][method] = {"missed": missed / tasks, "epochs": epochs / counted, "tasks": tasks}
        lost = [truth.hopeless for truth in truths if isinstance(truth, Replay)]
        if lost:
            hopeless[name] = float(np.mean(lost))
        print(name, results[name], flush=True)
    return results, hopeless


def section(found: dict[str, Any]) -> str:
    """Return the section of the page."""
    seeds, hopeless = found["seeds"], found["hopeless"]
    rows = []
    for name, methods in found["results"].items():
        shares = [f"{methods[method]['missed']:.1%}" for method in METHODS]
        more = methods["estimate, 0.95"]["epochs"] / methods["declared costs"]["epochs"]
        rows.append([name, *shares, f"{hopeless[name]:.1%}" if name in hopeless else "-", f"{more:.2f}"])
    heads = ["times", *METHODS, "impossible", "epochs, 0.95 / declared"]
    return f"""## Learned costs

Share of tasks that miss T when `plan` and `settle` meet true times that they do not know, for declared costs
and for learned costs with two on-time promises ({LEARNERS} clients, {SAMPLES:,} samples, c = 3). Declared
costs are wrong by about 20 %. *Impossible*: the link alone takes longer than T. The last column compares the
epochs that end within T. The first nine rows are simulated ({seeds} fleets, {found["cycles"]} rounds,
T = 10 s), the others replay recordings (T = 30 s): the load of a machine in use, and 5G downloads
(D. Raca et al., MMSys 2020; not part of this repository, `--links FILE`).

{table(heads, rows)}
"""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, prints only")
    parser.add_argument("--links", type=Path, help="CSV of recorded links; without it scenarios only")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    seeds, cycles = (1, 40) if given.quick else (8, 60)
    results, hopeless = study(given.links, seeds, cycles)
    found = {"seeds": seeds, "cycles": cycles, "results": results, "hopeless": hopeless}
    print(section(found))
    if not (given.quick or given.no_write):
        save("learning", found)


if __name__ == "__main__":
    main()
