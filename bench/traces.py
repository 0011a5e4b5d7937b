"""Is the promise kept on real traces? ``python -m bench.traces --links 5g-download.csv.gz``.

Links are replayed second by second from a file of measured rates (the page says which; it is not part of this
repository), computing from bursts of load that were recorded on a machine in use:
``python -m bench.traces --record 600`` while other work comes and goes on it. The orchestrator plans as in
`bench.learning`, against the same rivals.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
from flwr_mel.orchestrator import Task
from mel_simulation.scenario.traces import Traces

from bench.hidden_costs import LEARNERS, FloatArray
from bench.learning import LONG, METHODS, SAMPLES, SETTLING, SLACK, Tally, run
from bench.tables import PAGE, table, write_section

RESULTS = Path(__file__).parent / "results" / "traces.json"
LOAD = Path(__file__).parent / "results" / "load.json"
#: Bits of the paper's network each way, and the seconds before the start in which a link is measured.
MODEL_BITS, MEASURED_S = 271_000 * 32, 60.0
#: T, in which a link alone rarely takes longer: with 10 s that would be 6 to 9 percent of the cycles.
CYCLE_S = 30.0
STEP_S, DEAD = 0.5, 1e-4
SHOWN = (
    "declared",
    "late rule",
    "moving average",
    "moving average, 0.95",
    "oracle, mean",
    "oracle, 0.95",
    "learning, 0.9",
    "learning, 0.95",
    "learning, 0.99",
)


@dataclass(frozen=True)
class Speed:
    """How fast something goes, step by step; it begins anew at its end.

    Parameters
    ----------
    values : array
        Amount per second in each step.
    step_s : float
        Length of a step.
    """

    values: FloatArray
    step_s: float

    @cached_property
    def _done(self) -> FloatArray:
        # Nothing stands still for ever: an amount must have an end.
        least = DEAD * float(self.values.max())
        done: FloatArray = np.cumsum(np.maximum(self.values, least) * self.step_s)
        return np.concatenate((np.zeros(1), done))

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

    def mean(self, begin_s: float, end_s: float) -> float:
        """Return the mean speed between two times."""
        return (self.until(end_s) - self.until(begin_s)) / (end_s - begin_s)


@dataclass(frozen=True)
class Replay:
    """A fleet whose links and computers follow recordings, as `bench.learning` runs it.

    Parameters
    ----------
    declared : array
        c2, c1, c0 of each learner, by the mean speeds of its computer and its link in the minute before the
        start.
    idle_c2 : array
        c2 on an idle machine.
    links, loads : tuple of Speed
        Bits per second; work per second, 1 on an idle machine.
    begin : array
        Seconds of its recordings at which each learner begins, link and load.
    cycles : int
        How long.
    """

    declared: FloatArray
    idle_c2: FloatArray
    links: tuple[Speed, ...]
    loads: tuple[Speed, ...]
    begin: FloatArray
    cycles: int
    cycle_s: float = CYCLE_S

    def seconds(self, cycle: int, k: int, task: Task) -> tuple[float, float]:
        """Return what training and the link really take, one after the other."""
        return self._seconds(cycle, k, self.idle_c2[k] * task.epochs * task.samples)

    def _seconds(self, cycle: int, k: int, work_s: float) -> tuple[float, float]:
        begin, shift = self.begin[k, 0] + cycle * CYCLE_S, self.begin[k, 1] - self.begin[k, 0]
        down = self.links[k].takes(begin, MODEL_BITS)
        train = self.loads[k].takes(begin + down + shift, work_s)
        return train, down + self.links[k].takes(begin + down + train, MODEL_BITS)

    def costs(self, cycle: int, k: int, margin: float = 0.0) -> list[float]:
        """Return what the mean speeds of this very cycle give, and so many deviations on top."""
        link, load = self.begin[k] + cycle * CYCLE_S
        compute = 1 / self.loads[k].mean(load, load + CYCLE_S)
        c0 = 2 * MODEL_BITS / self.links[k].mean(link, link + CYCLE_S)
        off = self._deviations if margin else (0.0, 0.0)
        c2 = self.idle_c2[k] * compute
        return [c2 * math.exp(margin * off[0]), 0.0, c0 * math.exp(margin * off[1])]

    @property
    def hopeless(self) -> float:
        """Share of the tasks whose link alone would take longer than T."""
        every = [self._seconds(i, k, 0.0)[1] for i in range(self.cycles) for k in range(len(self.declared))]
        return float(np.mean(np.array(every) > self.cycle_s))

    @cached_property
    def _deviations(self) -> tuple[float, float]:
        """How far single tasks are from the mean speeds of their cycles, as deviations of the logarithm."""
        found = []
        for k in range(len(self.declared)):
            for cycle in range(self.cycles):
                c2, _, c0 = self.costs(cycle, k)
                planned = max(CYCLE_S - c0, 0.1 * CYCLE_S)
                train, link = self._seconds(cycle, k, planned * self.idle_c2[k] / c2)
                found.append((math.log(train / planned), math.log(link / c0)))
        compute, link = np.std(np.array(found), axis=0).tolist()
        return compute, link


def replay(links: list[Speed], loads: list[Speed], cycles: int, rng: np.random.Generator) -> Replay:
    """Draw a fleet that follows recordings.

    Parameters
    ----------
    links, loads : list of Speed
        Each learner has one of either.
    cycles : int
        How long.
    rng : numpy Generator
        One seed, one fleet.
    """
    idle_c2 = 5e-4 * np.exp(rng.normal(0, 0.5, LEARNERS))
    mine = tuple(links[n] for n in rng.integers(len(links), size=LEARNERS))
    theirs = tuple(loads[n] for n in rng.integers(len(loads), size=LEARNERS))
    begin = rng.uniform(MEASURED_S, 3600, (LEARNERS, 2))

    def before(speeds: tuple[Speed, ...], at: FloatArray) -> FloatArray:
        return np.array([x.mean(t - MEASURED_S, t) for x, t in zip(speeds, at, strict=True)])

    rates, pace = before(mine, begin[:, 0]), before(theirs, begin[:, 1])
    declared = np.column_stack((idle_c2 / pace, np.zeros(LEARNERS), 2 * MODEL_BITS / rates))
    return Replay(declared, idle_c2, mine, theirs, begin, cycles)


def read_links(path: Path, mobility: str) -> list[Speed]:
    """Read the rates of downloads, static or driving, in bits per second.

    What a phone sends while it downloads are acknowledgements, not what it could send, so that the model
    goes both ways at the rate of the download.

    Parameters
    ----------
    path : Path
        CSV, plain or gzip, with the columns of `mel_simulation.scenario.traces` and ``mobility``.
    mobility : str
        Which lines.
    """
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        head, *lines = file
    at = head.strip().split(",").index("mobility")
    some = [line for line in lines if line.strip().split(",")[at] == mobility]
    return [Speed(rates[0], 1.0) for rates in Traces.parse([head, *some], str(path)).rates]


def read_load(path: Path = LOAD) -> Speed:
    """Read recorded bursts of load: work per second, 1 where the machine was idle."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return Speed(1 / np.array(found["slowdown"]), found["step_s"])


def record(seconds: float) -> dict[str, object]:
    """Record how many times slower than at best a small piece of training is, twice per second.

    Parameters
    ----------
    seconds : float
        How long.
    """
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(64, 784)), rng.normal(size=(784, 100))
    begins, took, end = [], [], perf_counter() + seconds
    while (now := perf_counter()) < end:
        for _ in range(5):
            x.T @ np.tanh(x @ w)
        begins.append(now)
        took.append(perf_counter() - now)
        sleep(max(0.0, STEP_S - took[-1]))
    # What was seen last counts until the next look, which came late where the machine was busy.
    grid = np.arange(begins[0], begins[-1], STEP_S)
    last = np.searchsorted(begins, grid, side="right") - 1
    slowdown = np.maximum(np.array(took)[last] / np.percentile(took, 1), 1.0)
    return {"step_s": STEP_S, "slowdown": slowdown.round(2).tolist()}


def situations(links: Path) -> Iterator[tuple[str, list[Speed], list[Speed]]]:
    """Name what is replayed, with its recordings."""
    steady = [Speed(np.ones(2), CYCLE_S)]
    even = [Speed(np.full(2, 1e7), CYCLE_S)]
    static, driving = (read_links(links, mobility) for mobility in ("static", "driving"))
    yield "5G, static", static, steady
    yield "5G, driving", driving, steady
    yield "bursts of load", even, [read_load()]
    yield "driving and bursts", driving, [read_load()]


Found = dict[str, dict[str, dict[str, float]]]


def study(links: Path, seeds: int, cycles: int) -> tuple[Found, dict[str, float]]:
    """Run every method on the same replays; return what it found, and what is beyond all of them.

    Parameters
    ----------
    links : Path
        Measured rates.
    seeds, cycles : int
        How many fleets of each kind, and how long.
    """
    found: Found = {}
    hopeless = {}
    for i, (name, some, loads) in enumerate(situations(links)):
        fleets = [replay(some, loads, cycles, np.random.default_rng([i, seed])) for seed in range(seeds)]
        hopeless[name] = float(np.mean([fleet.hopeless for fleet in fleets]))
        found[name] = {}
        for method in SHOWN:
            tally = Tally()
            for fleet in fleets:
                run(METHODS[method](), fleet, tally)
            found[name][method] = {key: float(value) for key, value in tally.summary().items()}
            print(name, method, found[name][method], flush=True)
    return found, hopeless


def later(links: Path, seeds: int) -> dict[str, float]:
    """Return what learning at 0.95 misses on 5G links once its margins have had time to grow.

    Parameters
    ----------
    links : Path
        Measured rates.
    seeds : int
        How many fleets of each kind.
    """
    found = {}
    for i, (name, some, loads) in enumerate(situations(links)):
        if not name.startswith("5G"):
            continue
        tally = Tally()
        for seed in range(seeds):
            fleet = replay(some, loads, LONG, np.random.default_rng([i, seed]))
            run(METHODS["learning, 0.95"](), fleet, tally, settling=LONG // 2)
        found[name] = float(tally.summary()["missed"])
    return found


def document(
    found: Found, hopeless: dict[str, float], later: dict[str, float], seeds: int, cycles: int
) -> str:
    """Return the section of docs/BENCHMARKS.md."""
    after = ", ".join(f"{share:.1%} ({name})" for name, share in later.items())
    broken = [name for name, x in found.items() if x["learning, 0.95"]["missed"] > 0.05]
    # Of the reports that some plan could have had in time.
    possible = {
        name: (x["learning, 0.95"]["missed"] - hopeless[name]) / (1 - hopeless[name])
        for name, x in found.items()
    }
    mended = ", ".join(f"{possible[name]:.1%} ({name})" for name in found)
    beyond = "; ".join(name for name in found if possible[name] > 0.05)
    verdict = f"not kept in {beyond}" if beyond else "kept for them"
    load = read_load()
    slow = 1 / load.values
    misses = ", ".join(f"{x['learning, 0.95']['missed']:.1%} ({name})" for name, x in found.items())
    least = ", ".join(f"{name} {share:.1%}" for name, share in hopeless.items())
    parts = [
        f"""## The promise on real traces

Generated by `python -m bench.traces --links FILE`. As in *Learning what learners take* ({LEARNERS} learners,
{SAMPLES:,} samples, the orchestrator with the exact solver plans), but with T = {CYCLE_S:g} s, and every
transfer and every training is replayed from recordings, second by second; {seeds} fleets of
{cycles} cycles each, of which the first {SETTLING} do not count. Replies later than {1 + SLACK:g} T are lost.

- 5G links: rates of downloads, static and driving, of D. Raca et al., "Beyond Throughput, the Next
  Generation: a 5G Dataset with Channel and Context Metrics", MMSys 2020 (GPL-3, not part of this
  repository). The network of the paper, {MODEL_BITS / 8e6:.2f} MB, goes down and up at the rate of the
  download.
- Bursts of load: {len(slow) * load.step_s / 60:.0f} minutes of a machine with two cores on which tests and
  simulations came and went (`bench/results/load.json`): a small training took {np.median(slow):.1f} times as
  long as at best in the median, {np.quantile(slow, 0.95):.1f} times in one of 20 moments,
  {slow.max():.0f} times at worst.

A learner declares its mean rate and speed of the minute before it starts. Links alone would take longer
than T in so many cycles, whatever is planned: {least}.
The oracles know the mean speeds of the very cycle; "0.95" adds 1.645 standard deviations of what single tasks
take beyond that, which is not normal.

With 5 % promised, learning at 0.95 misses {misses}.
So more than 5 % are late here: {"; ".join(broken) or "nowhere"}. What the link alone makes late counts, too,
which no plan can help. If all of that is among the missed, which was reckoned without work and not counted in
these runs, {mended} of the other reports are:
the promise would be {verdict}. Margins grow with each late report; over
cycles {LONG // 2} to {LONG} it misses {after} of all.
Where links break down for longer than a cycle, that is dear: epochs are given for reports in time. There
`on_time=0.9` brings more epochs; a longer T was not tried.

Share of reports that miss T:
""",
        _by_situation(found, "missed", "{:.1%}"),
        "\nIdle share of T, over all reports:\n",
        _by_situation(found, "idle", "{:.1%}"),
        "\nMean epochs that arrive within T:\n",
        _by_situation(found, "epochs_in_time", "{:.1f}"),
    ]
    return "\n".join(parts)


def _by_situation(found: Found, key: str, form: str) -> str:
    rows = [[method, *(form.format(found[name][method][key]) for name in found)] for method in SHOWN]
    return table(["", *found], rows)


def main(arguments: list[str] | None = None) -> None:
    """Record, or replay and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--links", type=Path, help="CSV of measured links; writes the section of the page")
    what.add_argument("--page", action="store_true", help="write the section from the results at hand")
    what.add_argument("--record", type=float, metavar="SECONDS", help="record this machine's load anew")
    options = parser.parse_args(arguments)
    if options.record is not None:
        LOAD.write_text(json.dumps(record(options.record)) + "\n", encoding="utf-8")
        return
    logging.getLogger("flwr.mel").setLevel(logging.ERROR)
    if not options.page:
        seeds, cycles = 2, 100
        found, hopeless = study(options.links, seeds, cycles)
        raw = {"seeds": seeds, "cycles": cycles, "hopeless": hopeless, "found": found}
        raw["later"] = later(options.links, seeds)
        RESULTS.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    write_section(PAGE, "traces", document(**json.loads(RESULTS.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
