"""Work per second of whole fleets, and how often T is kept: ``python -m bench.fleet``.

The real strategy, mod and DataLoader run on a virtual clock (`tests.lab`): seeded, the same on any machine.
``--rows "10 of 1,000"`` measures the rows whose names contain the text, and only prints them.
"""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np

from bench.tables import arguments, save, table
from flwr_mel import Rounds
from tests import identity
from tests.lab import SILENT, Client, World, train, wrapped

Row = dict[str, Any]

ROUNDS, FROM, SLACK = 45, 6, 1.15
#: At speed 1 an epoch over all samples takes 4.5 s; the project does two. The exchange takes 0.2 s.
HELD, PACE_S, OWN, LINK_S = 450, 0.01, 2, 0.2
#: As many clients of each.
SPEEDS = (1.0, 1.78, 3.16, 5.62, 10.0)
GIVEN_S = 1.5
APPS = {"loader": "loader", "arrays": "task rows"}
OUTAGE, FIRST_OUT = 8, 15


@dataclass(frozen=True)
class Fleet:
    """How many clients there are, and what becomes of them.

    Parameters
    ----------
    sampled, clients : int
        Per round, and in all.
    drift : float
        Deviation of the change of a client's speed from round to round.
    leaves, returns : float
        Chance per round that a client goes, and that it comes back.
    equal : bool
        Whether all are equally fast.
    noise : float
        Of a single task.
    """

    sampled: int
    clients: int
    drift: float = 0.0
    leaves: float = 0.0
    returns: float = 1.0
    equal: bool = False
    noise: float = 0.0

    def world(self, work: str, seed: int) -> Moving:
        """Draw the clients."""
        speeds = (SPEEDS[2],) if self.equal else SPEEDS
        clients = [
            Client(work, own=OWN, held=HELD, pace=PACE_S / speeds[k % len(speeds)], fixed_s=0, link_s=LINK_S)
            for k in range(self.clients)
        ]
        return Moving(clients, self, seed)


class Moving(World):  # type: ignore[misc]
    """Clients whose speed drifts, and that leave and come back; a part of those that are there is sampled."""

    def __init__(self, clients: list[Any], fleet: Fleet, seed: int) -> None:
        super().__init__(clients, seed=seed, noise=fleet.noise)
        self.fleet, self.rng = fleet, np.random.default_rng([seed, 7])
        #: By round: when it began, who took part, and the seconds of the project's own round with them.
        self.starts: dict[int, float] = {}
        self.parts: dict[int, list[int]] = {}
        self.plain_s: dict[int, float] = {}
        self.best_s: dict[int, float] = {}

    def begin(self, number: int) -> None:
        """Let a round's time pass."""
        super().begin(number)
        self.starts[number] = self.clock.now
        if self.fleet.drift:
            steps = np.exp(self.fleet.drift * self.rng.normal(size=len(self.clients)))
            for client, step in zip(self.clients, steps.tolist(), strict=True):
                client.pace *= step
        if self.fleet.leaves:
            for client, x in zip(self.clients, self.rng.random(len(self.clients)).tolist(), strict=True):
                client.online = x >= self.fleet.leaves if client.online else x < self.fleet.returns

    def participants(self, number: int) -> list[int]:
        """Sample, and note what the round would take without planning, and if all were known."""
        here = [client.k for client in self.clients if client.online]
        count = min(self.fleet.sampled, len(here))
        chosen = here if count == len(here) else sorted(self.rng.choice(here, count, replace=False).tolist())
        self.parts[number] = chosen
        paces = [self.clients[k].pace * self.factor(number, self.clients[k]) for k in chosen]
        self.plain_s[number] = max(paces) * OWN * HELD + LINK_S
        self.best_s[number] = len(chosen) * OWN * HELD / sum(1 / pace for pace in paces) + LINK_S
        return chosen


def measure(fleet: Fleet, app: str, given_s: float | None, seed: int) -> Row:
    """Run one training; return work per second against the unwrapped project, and how often T was kept."""
    world, strategy = run(fleet.world(APPS[app], seed), ROUNDS, cycle_time_s=given_s)
    numbers = range(FROM, ROUNDS + 1)
    ends = {number: world.starts.get(number + 1, world.clock.now) for number in numbers}
    seconds = {number: ends[number] - world.starts[number] for number in numbers}
    records = {record.cycle: record for record in strategy.records}
    used = {(n, int(x.node)) for n in numbers for x in records[n].learners if str(x.outcome) == "used"}
    work = sum(world.done[n, node - 1001].drawn for n, node in used)
    own = sum(len(world.parts[n]) * OWN * HELD for n in numbers)
    plain = own / sum(world.plain_s[n] for n in numbers)
    late = [n for n in numbers if records[n].asked and seconds[n] > SLACK * records[n].cycle_time_s]
    best = sum(world.plain_s[n] for n in numbers) / sum(world.best_s[n] for n in numbers)
    return {
        "gain": work / sum(seconds.values()) / plain,
        "best": best,
        "late": len(late) / len(numbers),
        "work": work / own,
        "round_s": sum(seconds.values()) / len(numbers),
        "longest": max(seconds[n] / records[n].cycle_time_s for n in numbers if records[n].cycle_time_s),
    }


def run(world: Any, number: int, /, **options: Any) -> tuple[Any, Any]:
    """Train so many rounds on the world's clock; return the world and the strategy."""
    strategy = wrapped(world, **options)
    with world.clock.running():
        train(strategy, world, number)
    return world, strategy


def omniscient(app: str, seed: int, noise: float) -> Row:
    """Return the work that is done within a given T, as a share of what a plan that knows all could do."""
    fleet, time_s = Fleet(16, 16, noise=noise), 3.0
    world, strategy = run(fleet.world(APPS[app], seed), 2 * ROUNDS, cycle_time_s=time_s)
    done = able = late = tasks = 0.0
    for record in list(strategy.records)[FROM - 1 :]:
        for client in world.clients:
            task = world.done.get((record.cycle, client.k))
            pace = client.pace * world.factor(record.cycle, client)
            able += min((time_s - LINK_S) / pace, 5 * OWN * HELD)
            tasks += task is not None
            if task is not None and task.took_s is not None and task.took_s <= 1.01 * time_s:
                done += task.drawn
            elif task is not None:
                late += 1
    return {"useful": done / able, "late": late / tasks}


class Outage(World):  # type: ignore[misc]
    """One client is silent, or three times slower, for some rounds."""

    how = "silent"

    def factor(self, cycle: int, client: Any) -> float:
        """Return by how much a task takes longer."""
        out = client.k == 2 and FIRST_OUT <= cycle < FIRST_OUT + OUTAGE
        return float(super().factor(cycle, client)) * (3.0 if out and self.how == "slow" else 1.0)


def recovery(app: str, how: str, seed: int) -> Row:
    """Return how many tasks and rounds a client needs to be back at 90 % of its work."""
    clients = [Client(APPS[app], own=1, held=1000, pace=1e-3 * x, link_s=LINK_S) for x in (1, 1, 2)]
    world = Outage(clients, seed=seed, noise=0.1)
    world.how = how
    if how == "silent":
        world.fates = {(n, 2): SILENT for n in range(FIRST_OUT, FIRST_OUT + OUTAGE)}
    # The first task of each client is in time, and more than fits into T with a margin.
    options = {"cycle_time_s": 2.0, "max_epochs": 1, "rounds": Rounds(deadline_slack=0.25)}
    world, _ = run(world, 300, **options)
    drawn = {n: task.drawn for (n, k), task in world.done.items() if k == 2 and task.took_s is not None}
    usual = float(np.mean([drawn[n] for n in range(8, FIRST_OUT)]))
    after = sorted(n for n in drawn if n >= FIRST_OUT + OUTAGE)
    back = next((i for i, n in enumerate(after) if drawn[n] >= 0.9 * usual), None)
    if back is None:
        return {"tasks": math.inf, "rounds": math.inf}
    return {"tasks": back + 1, "rounds": after[back] - FIRST_OUT - OUTAGE + 1}


SIZES = {
    "20 of 20": (20, 20),
    "10 of 100": (10, 100),
    "10 of 1,000": (10, 1_000),
    "50 of 10,000": (50, 10_000),
}


def rows() -> Iterator[tuple[str, Any]]:
    """Name the rows; each comes with a function of the seed."""
    for name, (sampled, clients) in SIZES.items():
        for app in APPS:
            for given_s in (None, GIVEN_S):
                kind = "derived T" if given_s is None else f"T = {given_s:g} s"
                fleet = Fleet(sampled, clients)
                yield f"{name}, {app}, {kind}", lambda seed, x=(fleet, app, given_s): measure(*x, seed)
    changing = {
        "speeds drift": Fleet(10, 100, drift=0.05),
        "clients leave and return": Fleet(10, 100, leaves=0.1, returns=0.1),
        "noise 0.1": Fleet(10, 100, noise=0.1),
        "equal clients": Fleet(20, 20, equal=True),
        "equal clients, noise 0.1": Fleet(20, 20, equal=True, noise=0.1),
    }
    for name, fleet in changing.items():
        for app in APPS:
            size = f"{fleet.sampled} of {fleet.clients}"
            yield f"{size}, {name}, {app}, derived T", lambda seed, x=(fleet, app, None): measure(*x, seed)
    for app in APPS:
        for noise in (0.0, 0.1):
            yield (
                f"against a plan that knows all, noise {noise:g}, {app}",
                (lambda seed, x=(app, noise): omniscient(x[0], seed, x[1])),
            )
    for app in APPS:
        for how in ("silent", "slow"):
            yield f"after {OUTAGE} {how} rounds, {app}", lambda seed, x=(app, how): recovery(*x, seed)


def study(part: str, seeds: int) -> dict[str, Row]:
    """Measure the rows whose names contain a text; return means over the seeds."""
    found: dict[str, Row] = {}
    for name, one in rows():
        if part in name:
            start = process_time()
            results = [one(seed) for seed in range(1 if "10,000" in name else seeds)]
            means = {key: float(np.mean([x[key] for x in results])) for key in results[0]}
            values = ", ".join(f"{key} {value:.3g}" for key, value in means.items())
            found[name] = {key: value if math.isfinite(value) else None for key, value in means.items()}
            print(f"{name}: {values} ({process_time() - start:.0f} s)", flush=True)
    return found


def section(found: Row) -> str:
    """Return the section of the page."""
    all_rows: dict[str, Row] = found["rows"]
    gains = [
        [name, f"{x['gain']:.2f}", f"{x['best']:.2f}", f"{x['late']:.0%}", f"{x['work']:.0%}"]
        for name, x in all_rows.items()
        if "gain" in x
    ]
    useful = [
        [name, f"{x['useful']:.2f}", f"{x['late']:.1%}"] for name, x in all_rows.items() if "useful" in x
    ]
    back = [[name, _whole(x["tasks"]), _whole(x["rounds"])] for name, x in all_rows.items() if "tasks" in x]
    speeds = ", ".join(f"{x:g}" for x in SPEEDS)
    slow_s = OWN * HELD * PACE_S / SPEEDS[0]
    return f"""## Fleets on a virtual clock

The real strategy, mod and DataLoader with clients that only draw samples, on a virtual clock. There are
equally many clients of each speed: {speeds}. The slowest ones need {slow_s:.0f} s for
the project's own {OWN} epochs, and the exchange takes {LINK_S:g} s. *Work per second*: samples drawn in all
epochs per second, relative to the same clients without MelStrategy, from round {FROM} to {ROUNDS}. *All
known*: the same for a plan that knows all times and does the work of the project's own round. *Late*: rounds
that take more than {SLACK:g} T. Means over {found["seeds"]} seeds (50 of 10,000: one).

{table(["clients, app, T", "work per second", "all known", "late", "work per round"], gains)}

Work that 16 clients do within T = 3 s, as a share of what a plan that knows every single time could do:

{table(["clients", "share", "late tasks"], useful)}

One of three clients is silent or three times slower for {OUTAGE} rounds. What it takes until it is back at
90 % of its work:

{table(["outage", "tasks", "rounds"], back)}
"""


def _whole(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", default="", help="only the rows whose names contain this; prints only")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    identity.pretend()
    gc.freeze()  # Flower collects garbage after every array
    found = {"seeds": given.seeds, "rows": study(given.rows, given.seeds)}
    print(section(found))
    if not (given.rows or given.no_write):
        save("fleet", found)


if __name__ == "__main__":
    main()
