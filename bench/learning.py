"""What learning from the replies is worth: real plans against hidden true costs, seeded traces."""

from __future__ import annotations

import argparse
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from time import perf_counter
from types import ModuleType

import numpy as np
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import Orchestrator, Returned, Settings

from bench.hidden_costs import CYCLE_S, LEARNERS, NOISE, SCENARIOS, Truth, trace
from bench.tables import PAGE, table, write_section
from flwr_mel import wire
from flwr_mel.records import LearnerRecord, Outcome

RESULTS = Path(__file__).parent / "results" / "learning.json"
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "learning"

SAMPLES, SLACK = 4000, 0.25
#: Cycles at the start that do not count: what is promised is promised for learners that are known.
SETTLING = 5
#: Cycles of the long traces.
LONG = 200


class Declared:
    """Believes what was declared, whatever happens."""

    learning: Learning | None = None
    #: How replies after the deadline are put on record; the orchestrator's own rule looks at LATE.
    late = Outcome.FAILED

    def costs(self, truth: Truth, _: int, k: int) -> list[float]:
        """Return the costs that the learner is said to have in a cycle."""
        return [float(x) for x in truth.declared[k]]

    def see(self, k: int, compute: float, link: float) -> None:
        """Take in the ratios of observed to declared seconds."""


class LateRule(Declared):
    """The orchestrator without learning: slower by half after a late reply, then trusted again."""

    late = Outcome.LATE


class MovingAverage(Declared):
    """Plain mean of the last ratios, and so many of their standard deviations on top of it."""

    def __init__(self, window: int = 5, margin: float = 0.0) -> None:
        self.window, self.margin = window, margin
        self.seen: dict[int, list[tuple[float, float]]] = defaultdict(list)

    def costs(self, truth: Truth, _: int, k: int) -> list[float]:
        """Return the declared costs times the mean ratios."""
        c2, c1, c0 = truth.declared[k]
        last = self.seen[k][-self.window :] or [(1.0, 1.0)]
        compute, link = (fmean(x) + self.margin * pstdev(x) for x in zip(*last, strict=True))
        return [c2 * compute, c1 * link, c0 * link]

    def see(self, k: int, compute: float, link: float) -> None:
        """Keep the ratios."""
        self.seen[k].append((compute, link))


class Oracle(Declared):
    """Knows the true mean of this very cycle, and so many deviations of the noise on top of it."""

    def __init__(self, margin: float = 0.0) -> None:
        self.margin = margin

    def costs(self, truth: Truth, cycle: int, k: int) -> list[float]:
        """Return the truth."""
        return truth.costs(cycle, k, self.margin)


class Ours(Declared):
    """Declares once; the orchestrator learns."""

    late = Outcome.LATE

    def __init__(self, on_time: float, of: str = "learner") -> None:
        self.learning = Learning(on_time=on_time, of=of)  # type: ignore[arg-type]


METHODS: dict[str, Callable[[], Declared]] = {
    "declared": Declared,
    "late rule": LateRule,
    "moving average": MovingAverage,
    "moving average, 0.95": lambda: MovingAverage(10, 1.645),
    "oracle, mean": Oracle,
    "oracle, 0.95": lambda: Oracle(1.645),
    "learning, 0.9": lambda: Ours(0.9),
    "learning, 0.95": lambda: Ours(0.95),
    "learning, 0.99": lambda: Ours(0.99),
    "learning, 0.9 of cycles": lambda: Ours(0.9, "cycle"),
}


@dataclass
class Tally:
    """Counts of one method on some traces, after the settling cycles."""

    reports: int = 0
    missed: int = 0
    beyond_plan: int = 0
    cycles: int = 0
    cycles_missed: int = 0
    idle: list[float] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    epochs_in_time: list[float] = field(default_factory=list)
    planned: list[list[float]] = field(default_factory=list)

    def add(self, rows: Sequence[tuple[LearnerRecord, float]], cycle_s: float) -> None:
        """Take in the tasks of one cycle and what they really took."""
        late = [seconds > cycle_s for _, seconds in rows]
        self.reports += len(rows)
        self.missed += sum(late)
        self.beyond_plan += sum(seconds > row.time_s for row, seconds in rows)
        self.cycles += 1
        self.cycles_missed += any(late)
        self.idle += [max(0.0, 1 - seconds / cycle_s) for _, seconds in rows]
        self.epochs.append(sum(row.epochs for row, _ in rows) / LEARNERS)
        kept = (row.epochs for (row, _), x in zip(rows, late, strict=True) if not x)
        self.epochs_in_time.append(sum(kept) / LEARNERS)

    def summary(self) -> dict[str, float]:
        """Return shares and means."""
        return {
            "missed": self.missed / self.reports,
            "beyond_plan": self.beyond_plan / self.reports,
            "cycles_missed": self.cycles_missed / self.cycles,
            "idle": fmean(self.idle),
            "epochs": fmean(self.epochs),
            "epochs_in_time": fmean(self.epochs_in_time),
            "reports": self.reports,
            "cycles": self.cycles,
        }


def run(method: Declared, truth: Truth, tally: Tally, settling: int = SETTLING) -> None:
    """Let the orchestrator plan a whole trace.

    Parameters
    ----------
    method : Declared
        What it is told, and whether it learns.
    truth : Truth
        What tasks really take.
    tally : Tally
        Told the outcome.
    settling : int
        Cycles that do not count.
    """
    brain = Orchestrator(
        Settings(
            cycle_time_s=truth.cycle_s,
            total_samples=SAMPLES,
            staleness=3,
            enforce_deadline=True,
            deadline_slack=SLACK,
            learning=method.learning,
        )
    )
    nodes, lost_s = [str(k) for k in range(LEARNERS)], truth.cycle_s * (1 + SLACK)
    for cycle in range(truth.cycles):
        for k, node in enumerate(nodes):
            costs = (*method.costs(truth, cycle, k), 0.0, 0.0, 0.0)
            words = dict(zip(wire.COEFFICIENTS, costs, strict=True))
            brain.hear(node, {wire.LEARNER: node, wire.MAX_SAMPLES: SAMPLES, **words})
        plan = brain.plan(cycle + 1, nodes)
        record = brain.record
        if record is None:
            raise RuntimeError("the orchestrator stopped by itself")
        rows = {row.node: row for row in record.learners}
        used, failed, reports, trips = {}, {}, {}, {}
        for task in plan.tasks:
            k = int(task.node)
            train, link = truth.seconds(cycle, k, task)
            c2, c1, c0 = truth.declared[k]
            told = (c2 * task.epochs * task.samples, c1 * task.samples + c0)
            trips[task.node] = train + link
            if train + link <= lost_s:
                used[task.node] = task.samples
                reports[task.node] = {wire.TRAIN_SECONDS: train}
                method.see(k, train / told[0], link / told[1])
            else:
                failed[task.node] = (method.late, "no reply in time")
                least = lost_s / rows[task.node].time_s
                now = method.costs(truth, cycle, k)
                method.see(k, least * now[0] / c2, least * now[2] / c0)
        brain.settle(Returned(used, failed, reports, {node: trips[node] for node in used}))
        if cycle >= settling:
            tally.add([(rows[node], seconds) for node, seconds in trips.items()], truth.cycle_s)
        tally.planned.append([rows[node].slowdown for node in nodes])
        brain.close()


def study(seeds: int, cycles: int) -> dict[str, dict[str, dict[str, float]]]:
    """Run every method on the same traces.

    Parameters
    ----------
    seeds, cycles : int
        How many traces of each kind, and how long.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for i, (scenario, changes) in enumerate(SCENARIOS.items()):
        traces = [trace(changes, cycles, np.random.default_rng([i, seed])) for seed in range(seeds)]
        found[scenario] = {}
        for name, make in METHODS.items():
            tally = Tally()
            for truth in traces:
                run(make(), truth, tally)
            found[scenario][name] = tally.summary()
    return found


def long_run(seeds: int, cycles: int = LONG) -> dict[str, float]:
    """Return the share that misses T in the second half of long traces with many jumps.

    Parameters
    ----------
    seeds, cycles : int
        How many traces of each kind, and how long.
    """
    missed = {}
    for i, scenario in enumerate(("bursts", "spikes")):
        tally = Tally()
        for seed in range(seeds):
            truth = trace(SCENARIOS[scenario], cycles, np.random.default_rng([50 + i, seed]))
            run(Ours(0.95), truth, tally, settling=cycles // 2)
        missed[scenario] = tally.summary()["missed"]
    return missed


def document(
    found: dict[str, dict[str, dict[str, float]]], long: dict[str, float], seeds: int, cycles: int
) -> str:
    """Return the section of docs/BENCHMARKS.md."""
    reports = int(next(iter(found["steady"].values()))["reports"])
    parts = [
        f"""## Learning what learners take

Generated by `python -m bench.learning`.

{LEARNERS} learners, {SAMPLES:,} samples, T = {CYCLE_S:g} s, c = 3; the orchestrator with the exact solver
plans, hidden true costs answer. Declared costs are off by about 20 percent; single cycles deviate by
{NOISE["compute"]:.0%} (computing) and {NOISE["link"]:.0%} (link). {seeds} seeded traces of {cycles} cycles
for each kind, the same for all methods; the first {SETTLING} cycles do not count, which leaves about
{reports:,} reports per cell. Replies later than {1 + SLACK:g} T are lost, and only that is known of them.

Throttling: twice as slow for 10 to 20 cycles. Link changes: three times as slow. Faster devices: half of them
become twice as fast. Single outliers: one report in 50 computes three times as long. Bursts: 1 to 4 cycles
that are 1.5 to 3 times as slow, 14 cycles apart on average. Spikes: one report in 25 computes four times as
long. "Late rule" is the orchestrator without learning. Moving average: of the last 5 ratios; "0.95": of the
last 10, and 1.645 of their standard deviations. The oracles know the true mean of the very cycle; "0.95" also
the noise, and adds its 0.95 quantile to both costs.

What is promised holds while nothing jumps. A report that took longer than planned bounds the next task at
once, so that each jump upwards costs about one late report, whatever was promised, and a single outlier a
task or two that are shorter than they need be. A jump downwards is believed at the second report, step by
step. Where a learner jumps again and again, the margin grows until the promised share is kept, which takes a
few late reports of each learner: over cycles {LONG // 2} to {LONG}, learning at 0.95 misses
{long["bursts"]:.1%} in bursts and {long["spikes"]:.1%} with spikes.

Share of reports that miss T:
""",
        _by_scenario(found, "missed", lambda x: f"{x:.1%}"),
        "\nShare of cycles in which at least one learner misses T:\n",
        _by_scenario(found, "cycles_missed", lambda x: f"{x:.0%}"),
        "\nIdle share of T, over all reports (a late one idles not at all):\n",
        _by_scenario(found, "idle", lambda x: f"{x:.1%}"),
        "\nMean epochs that arrive within T, as a ratio to those of the oracle at 0.95:\n",
        _by_scenario(_relative(found), "ratio", lambda x: f"{x:.2f}"),
        "\n![Misses of T by method, and one throttled learner](figures/learning.png)",
    ]
    return "\n".join(parts)


def _relative(found: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, dict[str, float]]]:
    return {
        scenario: {
            name: {"ratio": x["epochs_in_time"] / methods["oracle, 0.95"]["epochs_in_time"]}
            for name, x in methods.items()
        }
        for scenario, methods in found.items()
    }


def _by_scenario(
    found: dict[str, dict[str, dict[str, float]]], key: str, form: Callable[[float], str]
) -> str:
    rows = [[name, *(form(found[scenario][name][key]) for scenario in found)] for name in METHODS]
    return table(["", *found], rows)


def draw(found: dict[str, dict[str, dict[str, float]]], cycles: int) -> None:
    """Plot misses by method and the plans for one throttled learner, in the style of all figures."""
    from mel_simulation.paper import style as look

    with look.style():
        _draw(found, cycles, look)


def _draw(found: dict[str, dict[str, dict[str, float]]], cycles: int, look: ModuleType) -> None:
    figure, panels = look.canvas(1, 2, height=2.9)
    left, right = panels[0]
    shown = {
        "declared": ("#000000", "x"),
        "late rule": ("#7F7F7F", "v"),
        "moving average": ("#E69F00", "s"),
        "moving average, 0.95": ("#D55E00", "<"),
        "oracle, 0.95": ("#009E73", "D"),
        "learning, 0.9": ("#56B4E9", "^"),
        "learning, 0.95": ("#0072B2", "o"),
        "learning, 0.99": ("#CC79A7", "P"),
    }
    for i, (name, (colour, marker)) in enumerate(shown.items()):
        at = np.arange(len(found)) + (i - len(shown) / 2) * 0.09
        misses = [100 * found[scenario][name]["missed"] for scenario in found]
        left.scatter(misses, at, color=colour, marker=marker, s=26, label=name)
    left.axvline(5, color="0.6", lw=0.8, ls="--")
    left.set_yticks(range(len(found)), list(found))
    left.invert_yaxis()
    left.set_xscale("symlog", linthresh=2)
    left.set_xticks([0, 1, 2, 5, 10, 20, 50], ["0", "1", "2", "5", "10", "20", "50"])
    left.set(xlabel="reports that miss T, percent", title="Misses; the line is 5 percent")
    left.set_xlim(-0.2, 75)
    look.legend(figure, left.get_legend_handles_labels()[0], "", 1.8)
    truth = trace(SCENARIOS["throttling"], cycles, np.random.default_rng([2, 0]))
    tally = Tally()
    run(Ours(0.95), truth, tally)
    k = int(np.argmax(truth.compute.max(axis=0) - truth.compute.min(axis=0)))
    x = np.arange(1, cycles + 1)
    right.plot(
        x, np.exp(truth.noisy_compute[:, k]), ".", color="#7F7F7F", ms=4, label="computing, single cycles"
    )
    right.step(
        x, np.exp(truth.compute[:, k]), where="mid", color="#000000", lw=1.5, label="computing, true mean"
    )
    right.step(
        x,
        [p[k] for p in tally.planned],
        where="mid",
        color="#0072B2",
        lw=1.5,
        label="planned, computing and link",
    )
    right.set(
        xlabel="cycle", ylabel="time over declared time", title="One throttled learner, planned for 0.95"
    )
    right.set_ylim(bottom=0)
    right.legend(fontsize=7)
    look.headline(figure, "How often does a device miss the deadline, by what is known of it?")
    look.save(figure, FIGURE.parent, FIGURE.name)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and write unless in a hurry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, prints only")
    options = parser.parse_args(arguments)
    logging.getLogger("flwr.mel").setLevel(logging.ERROR)
    seeds, cycles = (1, 40) if options.quick else (4, 60)
    start = perf_counter()
    found, long = study(seeds, cycles), long_run(seeds)
    text = document(found, long, seeds, cycles)
    print(text, f"\n{perf_counter() - start:.0f} s")
    if options.quick:
        return
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    raw = {"seeds": seeds, "cycles": cycles, "learners": LEARNERS, "noise": NOISE, "results": found}
    raw["long_run"] = long
    RESULTS.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    draw(found, cycles)
    write_section(PAGE, "learning", text)


if __name__ == "__main__":
    main()
