"""The server's side of a cycle in large fleets of phones: ``python -m bench.scale``.

No training and no network: what learners say is heard, their costs are estimated, the cycle is planned,
replies are settled and put on record as JSON, by the functions that the strategies call. Times are processor
seconds of one thread per cycle, after the first one, in which everybody is new. Memory is what the process
holds at most.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import statistics
import sys
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from time import process_time

from mel_simulation.scenario.phones import PhoneFleet

from bench.tables import PAGE, table, write_section
from flwr_mel import Workload, wire
from flwr_mel.clientapp import describe
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import Orchestrator, Returned, Settings

RESULTS = Path(__file__).parent / "results" / "scale.json"
LAYERS, CYCLE_S, LEAST, HELD = (784, 300, 124, 60, 10), 4.0, 200, 1000
PARTS = ("hear", "plan", "settle", "record")


@dataclass
class Run:
    """What one replay took.

    Parameters
    ----------
    learners, cycles : int
        How large.
    policy : str
        What becomes of slow ones.
    learning : bool
        Whether times are learnt.
    hear, plan, settle, record : float
        Processor seconds per cycle, the median.
    worst : float
        Of the slowest cycle after the first.
    memory_mb : float
        The most that the process held.
    early_mb : float
        The same after a tenth of the cycles: what is held does not grow with them.
    in_progress : int
        Tasks that were, at the end.
    idle_most : int
        The most cycles that anybody able to take part was without work.
    """

    learners: int
    cycles: int
    policy: str
    learning: bool
    hear: float = 0.0
    plan: float = 0.0
    settle: float = 0.0
    record: float = 0.0
    worst: float = 0.0
    memory_mb: float = 0.0
    early_mb: float = 0.0
    in_progress: int = 0
    idle_most: int = 0

    @property
    def whole(self) -> float:
        """Seconds per cycle."""
        return self.hear + self.plan + self.settle + self.record


def replay(learners: int, cycles: int, policy: str, *, learning: bool) -> Run:
    """Replay cycles of a fleet of phones, whose links change from cycle to cycle.

    Parameters
    ----------
    learners, cycles : int
        How large, how long.
    policy : str
        "keep", "exclude" or "span".
    learning : bool
        Whether times are learnt.
    """
    settings = Settings(
        cycle_time_s=CYCLE_S,
        total_samples=400 * learners,
        min_samples=LEAST,
        staleness=2,
        workload=Workload.mlp(LAYERS, ship_data=False),
        stragglers=policy,  # type: ignore[arg-type]
        learning=Learning() if learning else None,
    )
    brain, fleet = Orchestrator(settings, keep_records=1), PhoneFleet(0, learners)
    nodes = [str(k) for k in range(learners)]
    seconds: list[list[float]] = []
    idle, early_mb = 0, 0.0
    for cycle in range(1, cycles + 1):
        print(f"{learners:,} phones, {policy}: cycle {cycle} of {cycles}", file=sys.stderr, flush=True)
        devices = fleet.devices(cycle)
        said = {
            node: {**describe(d), wire.LEARNER: d.name, wire.MAX_SAMPLES: HELD}
            for node, d in zip(nodes, devices, strict=True)
        }
        times = [process_time()]
        brain.strangers(nodes)
        brain.hear_all(said)
        times.append(process_time())
        tasks = brain.plan(cycle, nodes).tasks
        times.append(process_time())
        _settle(brain, cycle, {t.node: t.samples for t in tasks})
        brain.close()
        times.append(process_time())
        record = brain.records[-1]
        json.dumps(record.as_dict(), allow_nan=False)
        times.append(process_time())
        seconds.append([b - a for a, b in pairwise(times)])
        idle = max([idle, *(row.idle for row in record.learners)])
        if cycle <= max(cycles // 10, 2):  # everybody is new in the first
            early_mb = _held_mb()
    usual = seconds[1:] or seconds
    medians = dict(zip(PARTS, map(statistics.median, zip(*usual, strict=True)), strict=True))
    return Run(
        learners,
        cycles,
        policy,
        learning,
        **medians,
        worst=max(map(sum, usual)),
        memory_mb=_held_mb(),
        early_mb=early_mb,
        in_progress=len(brain.state.flights),
        idle_most=idle,
    )


def _held_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _settle(brain: Orchestrator, cycle: int, given: dict[str, int]) -> None:
    """Let everybody take as long as planned, by the virtual clock."""
    flights = {x.node: x for x in brain.state.flights.values()}
    due = set(brain.due()) if flights else set(given)
    earlier = {node: flights[node].samples for node in due if node in flights and flights[node].cycle < cycle}
    times = {row.node: row.time_s for row in brain.record.learners} if brain.record else {}
    brain.arrive({node: {wire.TRAIN_SECONDS: 0.9 * flights[node].time_s} for node in earlier}, {})
    used = {node: samples for node, samples in given.items() if node in due}
    brain.settle(
        Returned(
            used,
            {},
            {node: {wire.TRAIN_SECONDS: 0.9 * times[node]} for node in used},
            {node: 0.95 * times[node] for node in used},
            moved=earlier,
            open=set(given) - set(used),
        )
    )


def document(runs: list[Run]) -> str:
    """Return the section of docs/BENCHMARKS.md."""
    rows = [
        [
            f"{r.learners:,}",
            r.policy + (", learning" if r.learning else ""),
            f"{r.cycles}",
            *(f"{1e3 * getattr(r, part):,.0f}" for part in PARTS),
            f"{1e3 * r.whole:,.0f}",
            f"{1e6 * r.whole / r.learners:.1f}",
            f"{1e3 * r.worst:,.0f}",
            f"{r.memory_mb:,.0f}",
            f"{r.early_mb:,.0f}" if r.early_mb else "",
            f"{r.in_progress:,}",
        ]
        for r in runs
    ]
    head = ["phones", "policy", "cycles", *(f"{part}, ms" for part in PARTS), "cycle, ms"]
    head += ["us per phone", "slowest, ms", "memory, MB", "after a tenth", "tasks in progress"]
    return f"""## Large fleets

Generated by `python -m bench.scale`.

The server's side of a cycle without training and network: phones with links that change from cycle to cycle,
T = {CYCLE_S:g} s, least batch {LEAST}. Processor time of one thread, medians over the cycles after the first.

{table(head, rows)}"""


def merged(before: list[Run], now: list[Run]) -> list[Run]:
    """Put new lines in the place of old ones of the same fleet and policy."""
    lines = {(r.learners, r.policy, r.learning): r for r in (*before, *now)}
    return [lines[key] for key in sorted(lines)]


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and write unless in a hurry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, prints only")
    parser.add_argument("--phones", type=int, help="only this size; the other lines of the table stay")
    parser.add_argument("--learning", action="store_true", help="only the line with learning")
    parser.add_argument("--cycles", type=int, default=100, help="at most so many per fleet")
    options = parser.parse_args(arguments)
    logging.getLogger("flwr.mel").setLevel(logging.ERROR)
    plans = [(1000, 5)] if options.quick else [(1_000, 20), (10_000, 20), (100_000, 100)]
    if options.phones:
        plans = [(options.phones, options.cycles)]
    runs = []
    for learners, cycles in plans:
        for policy, learning in (("keep", False), ("span", False), ("span", True)):
            if (learners > 10_000 and policy == "keep") or (options.learning and not learning):
                continue
            length = min(cycles if learning else 20, cycles, options.cycles)
            runs.append(replay(learners, length, policy, learning=learning))
            print(asdict(runs[-1]), flush=True)
    if options.quick:
        print(document(runs))
        return
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if options.phones and RESULTS.exists() else []
    runs = merged([Run(**line) for line in before], runs)
    text = document(runs)
    print(text)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(r) for r in runs], indent=1) + "\n", encoding="utf-8")
    write_section(PAGE, "scale", text)


if __name__ == "__main__":
    main()
