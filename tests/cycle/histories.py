"""Random histories of trainings, and what must hold in each: ``python -m tests.cycle.histories``.

A history is a value: clients, options, and what happens in which round. `drawn` makes one from choices, which
hypothesis or a seed makes; `failures` runs it through the public strategies (`tests.lab`) and returns what is
wrong, by kind.
"""

import argparse
import dataclasses
import gc
import logging
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from hypothesis import strategies

from flwr_mel import Estimation, Infeasible, Robust, Rounds, Shards, wire
from flwr_mel.checkpoint import Checkpointed
from flwr_mel.cycle.errors import NoWork
from tests import identity
from tests.lab import HONEST, LATE, OFFLINE, REPAIRED, SILENT, WORKS, Client, World, train, wrapped

#: A round may take so many times T; of `ROUNDS` such rounds so many may take longer.
SLACK, ROUNDS, EXCEEDED = 1.15, 20, 2
#: Of 20 rounds a client that needs more than T is asked so often at most: at first, and after 2, 4, 8 rounds.
ASKED = 5
#: Rounds in which a repaired client takes part before its work must be planned again.
PATIENCE = 3
DATA = (np.zeros((400, 2)), np.zeros(400))


@dataclass(frozen=True)
class Happens:
    """Something that happens before a round."""

    round: int
    what: str
    k: int = 0
    value: float = 0.0


@dataclass(frozen=True)
class History:
    """A training from its beginning to its end."""

    api: str
    clients: tuple
    options: dict
    rounds: int
    #: Factor of the declared costs on the true ones, by client; None: it declares no costs.
    declares: tuple
    energy: tuple
    limits: tuple
    simulated: bool = True
    noise: float = 0.0
    wobble: tuple = ()
    #: Which clients are sampled, by round; rounds that are missing: all.
    sampled: dict = field(default_factory=dict)
    events: tuple = ()
    resumes_after: int | None = None
    #: Whether the last client needs more than T for any task.
    hopeless: bool = False
    #: Whether T must be kept: honest clients whose speed does not change, all of them in every round.
    steady: bool = False
    seed: int = 0


class Seeded:
    """Choices from a seed."""

    def __init__(self, seed):
        self.random = Random(seed)

    def one(self, *values):
        return values[self.random.randrange(len(values))]

    def whole(self, low, high):
        return self.random.randint(low, high)

    def chance(self, p):
        return self.random.random() < p

    def power(self, low, high):
        """Return a power of ten."""
        return float(f"{10 ** self.random.uniform(low, high):.3g}")


class Drawn:
    """Choices that hypothesis makes, so that it can make them simpler."""

    def __init__(self, draw):
        self.draw, self.from_ = draw, strategies

    def one(self, *values):
        return values[self.draw(self.from_.integers(0, len(values) - 1))]

    def whole(self, low, high):
        return self.draw(self.from_.integers(low, high))

    def chance(self, p):
        return self.draw(self.from_.integers(0, 99)) >= 100 - round(100 * p)

    def power(self, low, high):
        return float(f"{10 ** (low + (high - low) * self.draw(self.from_.integers(0, 50)) / 50):.3g}")


def drawn(pick):
    """Return a history."""
    calm = pick.chance(0.35)
    clients = _clients(pick, pick.whole(1, 6), calm=calm)
    rounds = ROUNDS if calm else pick.whole(4, 16)
    options = _options(pick, clients, calm=calm)
    if options.get("shards"):
        clients = tuple(client | {"work": "shard"} for client in clients)
    simulated = bool(options.get("shards")) or pick.chance(0.5)
    hopeless = calm and len(clients) > 1 and options["cycle_time_s"] is not None and pick.chance(0.25)
    if hopeless:
        clients = (*clients[:-1], clients[-1] | {"fixed_s": 2.5 * options["cycle_time_s"]})
    api = pick.one("message", "classic")
    if api == "message" and not calm and pick.chance(0.3):
        options["rounds"] = dataclasses.replace(options["rounds"], deadline_slack=pick.one(0.25, 0.5))
    learns = options["estimation"] is not None
    kind = pick.one("none", "none", "all", "half")
    declares = tuple(
        None
        if kind == "none" or (kind == "half" and pick.chance(0.5))
        else pick.one(1.0, 1.0, 1 / 3, 1.3)
        if learns
        else 1.0
        for _ in clients
    )
    energy = tuple(
        pick.power(-1, 1.5) if d is not None and pick.chance(0.3) and not calm else None for d in declares
    )
    limits = tuple(pick.chance(0.6) for _ in clients)
    wobble = tuple(d is not None and pick.chance(0.3) for d in declares)
    sampled, events, resumes = {}, (), None
    if not calm:
        hangs = _ends_at_a_deadline(api, options, simulated)
        events = tuple(_events(pick, len(clients), rounds, clients, hangs=hangs))
        if pick.chance(0.4):
            share = pick.one(0.3, 0.6, 0.8)
            for number in range(1, rounds + 1):
                some = [k for k in range(len(clients)) if pick.chance(share)]
                sampled[number] = tuple(some) or (pick.whole(0, len(clients) - 1),)
        resumes = pick.whole(1, rounds - 1) if pick.chance(0.1) else None
    return History(
        api,
        clients,
        options,
        rounds,
        declares,
        energy,
        limits,
        simulated=simulated,
        noise=pick.one(0.0, 0.02) if calm else pick.one(0.0, 0.02, 0.1),
        wobble=wobble,
        sampled=sampled,
        events=events,
        resumes_after=resumes,
        hopeless=hopeless,
        steady=calm,
        seed=pick.whole(0, 999),
    )


def _ends_at_a_deadline(api, options, simulated):
    """Whether a client that hangs costs a round no more than a deadline."""
    return api == "message" and not simulated and options["rounds"].deadline_slack is not None


def _clients(pick, number, *, calm):
    """Draw the clients: one app runs on all, with an odd one among them at times."""
    work = pick.one(*HONEST) if calm or pick.chance(0.5) else pick.one(*WORKS)
    if work == "shard":
        work = "rows"
    found = []
    fixed = pick.one(0.01, 0.01, 0.1, 0.5)
    own = pick.whole(1, 3)
    cold = pick.one(0.0, 0.0, 0.0, 5.0)
    for _ in range(number):
        mine = (
            pick.one("own work", "steps", "all data", "rows")
            if not calm and number > 2 and pick.chance(0.1)
            else work
        )
        found.append(
            {
                "work": mine,
                "own": own,
                "held": pick.whole(1, 300) if not calm else pick.whole(40, 300),
                "pace": pick.power(-4, -1.5),
                "fixed_s": fixed,
                "cold_s": cold,
                "modded": calm or not pick.chance(0.03),
            }
        )
    return tuple(found)


def _options(pick, clients, *, calm):
    options = {
        "cycle_time_s": pick.one(None, None, "best", 2.0, 10.0, 0.3),
        "staleness": pick.one(None, None, 0, 2),
        "max_epochs": pick.one(None, None, 1, 3),
        "min_samples": pick.one(None, None, 1, 20, 100),
        "estimation": pick.one(None, None, Estimation()),
        "average": pick.one("samples", "nova", "nova-held"),
        "robust": Robust(
            max_samples=pick.one(None, None, None, 50),
            max_share=pick.one(None, None, 0.4),
            max_norm_ratio=pick.one(None, None, 2.0),
        ),
        "rounds": Rounds(on_infeasible=pick.one("relax", "relax", "skip", "error"), probe_timeout_s=5.0),
    }
    if calm:
        # A T in which every client can do its smallest task twice, if it is given.
        least_s = max(c["fixed_s"] + c["pace"] * min(c["held"], 32) * c["own"] for c in clients)
        options |= {"cycle_time_s": pick.one(None, round(2 * least_s + 0.1, 2)), "min_samples": None}
        options |= {"robust": Robust(), "estimation": pick.one(None, Estimation())}
    elif options["cycle_time_s"] is not None and pick.chance(0.15):
        options["shards"] = True
    if options["cycle_time_s"] != "best" and not calm:
        options["total_samples"] = pick.one(None, None, 100, 400)
        if (options["total_samples"] or 10**6) < (options["min_samples"] or 0):
            options["min_samples"] = None
    return options


def _events(pick, clients, rounds, specs, *, hangs):
    """Draw what happens: few things, so that a failure has few causes."""
    if hangs and pick.chance(0.3):
        first, k = pick.whole(1, 4), pick.whole(0, clients - 1)
        for n in range(first, rounds + 1):
            yield Happens(n, "fate", k, SILENT)
    broken = any(spec["work"] in REPAIRED for spec in specs)
    for _ in range(pick.whole(0, 6)):
        number, k = pick.whole(1, rounds), pick.whole(0, clients - 1)
        what = pick.one(
            "error",
            "error",
            "silent",
            "offline",
            "online",
            "withdraw",
            "change",
            "slower",
            "battery",
            "fails",
        )
        if what == "error":
            yield Happens(number, "fate", k, pick.whole(0, 8))
        elif what == "silent":
            yield Happens(number, "fate", k, SILENT)
        elif what == "fails":  # for some rounds
            code = pick.whole(-1, 8)
            for n in range(number, min(number + pick.whole(2, 6), rounds + 1)):
                yield Happens(n, "fate", k, code)
        elif what in ("change", "slower"):
            yield Happens(number, what, k, pick.one(0.3, 3.0, 10.0))
        elif what == "battery":
            yield Happens(number, what, k, pick.power(-3, -1))
        else:
            yield Happens(number, what, k)
    if broken and pick.chance(0.6):
        yield Happens(pick.whole(2, max(2, rounds // 2)), "repair")


# --- one history -----------------------------------------------------------------------------------------


class Killed(BaseException):
    """The server's process ends."""


class Lived(World):
    """The world of a history."""

    def __init__(self, history):
        self.history = history
        clients = [Client(**spec, simulated=history.simulated) for spec in history.clients]
        super().__init__(clients, seed=history.seed, noise=history.noise)
        self.sampled = history.sampled
        self.declared = list(history.declares)
        self.energy = list(history.energy)
        self.limits = list(history.limits)
        self.repaired = None
        self.kill = None
        self.online = {}
        for event in history.events:
            if event.what == "fate":
                self.fates[event.round, event.k] = int(event.value)

    def begin(self, number):
        if self.kill is not None and number > self.kill:
            self.kill = None
            raise Killed
        super().begin(number)
        for event in self.history.events:
            if event.round == number and event.what != "fate":
                getattr(self, f"_{event.what}")(event, self.clients[event.k])
        self.online[number] = sum(client.online for client in self.clients)

    def _offline(self, event, client):
        if sum(x.online for x in self.clients) > 1:
            client.online = False

    def _online(self, event, client):
        for client in self.clients:
            client.online = True

    def _withdraw(self, event, client):
        self.energy[event.k] = None
        self.limits[event.k] = False

    def _change(self, event, client):
        client.pace *= event.value

    def _slower(self, event, client):
        """Without a word: what it declares is now wrong."""
        client.pace *= event.value
        if self.declared[event.k] is not None:
            self.declared[event.k] /= event.value

    def _battery(self, event, client):
        if self.declared[event.k] is not None:
            self.energy[event.k] = event.value

    def _repair(self, event, client):
        self.repaired = event.round
        for client in self.clients:
            client.work = REPAIRED.get(client.work, client.work)

    def profile(self, cycle, client):
        k, words = client.k, {}
        if (factor := self.declared[k]) is not None:
            if self.history.wobble[k]:
                factor *= 1 + 1e-3 * float(np.sin(cycle + k))
            costs = (client.pace, 0.0, client.fixed_s, 1e-3, 0.0, 0.1)
            words |= dict(zip(wire.COEFFICIENTS, (factor * x for x in costs), strict=True))
        if self.limits[k]:
            words[wire.MAX_SAMPLES] = client.held
        if self.energy[k] is not None:
            words[wire.ENERGY_LIMIT_J] = self.energy[k]
        return words


class Lines(logging.Handler):
    """What is logged as a warning."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@dataclass
class Run:
    """What a history came to."""

    world: Lived
    records: list
    warnings: list
    error: BaseException | None = None


def lived(history):
    """Run a history."""
    world, lines, logger = Lived(history), Lines(), logging.getLogger("flwr.mel")
    logger.addHandler(lines)
    levels = [(x, x.level, x.propagate) for x in (logger, logging.getLogger("flwr"))]
    logger.setLevel(logging.WARNING)
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    logger.propagate = False
    records, error = [], None
    try:
        with world.clock.running(), tempfile.TemporaryDirectory() as directory:
            try:
                _lives(history, world, records, Path(directory))
            except Exception as found:
                error = found
    finally:
        logger.removeHandler(lines)
        for x, level, propagate in levels:
            x.setLevel(level)
            x.propagate = propagate
    return Run(world, records, lines.lines, error)


def _lives(history, world, records, directory):
    """Train, and after a kill once more."""
    options = {**history.options, "callbacks": [records.append]}
    if options.pop("shards", False):
        options["shards"] = Shards(DATA)
    if history.resumes_after is None:
        train(wrapped(world, history.api, **options), world, history.rounds, history.api)
        return
    world.kill = history.resumes_after
    try:
        first = Checkpointed(wrapped(world, history.api, **options), directory)
        train(first, world, history.rounds, history.api)
    except Killed:
        del records[history.resumes_after :]
        second = Checkpointed(wrapped(world, history.api, **options), directory)
        left = history.rounds if history.api == "message" else second.rounds_left(history.rounds)
        train(second, world, left, history.api)


# --- what must hold --------------------------------------------------------------------------------------


def failures(history):
    """Run a history; return what is wrong as pairs of kind and details."""
    run = lived(history)
    found = [*_ends(history, run)]
    for record in run.records:
        found += _consistent(run, record)
        found += _counted(run, record)
    found += _keeps_time(history, run)
    found += _trusts_honest_clients(history, run)
    found += _asks_silent_clients_seldom(history, run)
    found += _plans_repaired(history, run)
    found += _errors_change_nothing(history, run)
    return found


def _ends(history, run):
    """Nothing raises, except NoWork before the first success, and Infeasible where it was asked for."""
    error, trained = run.error, any(row.outcome == "used" for x in run.records for row in x.learners)
    if error is None or (isinstance(error, NoWork) and not trained):
        return
    if isinstance(error, Infeasible) and history.options["rounds"].on_infeasible == "error":
        return
    frames = [x for x in traceback.extract_tb(error.__traceback__) if "flwr_mel" in x.filename]
    where = f"{Path(frames[-1].filename).name} {frames[-1].name}" if frames else "the lab"
    yield f"raises {type(error).__name__} in {where}", str(error)[:120]


def _consistent(run, record):
    """Whoever has no task has a reason; status, T and outcomes go together."""
    asked, number = record.asked, record.cycle
    for row in record.learners:
        if not row.asked and not row.reason:
            yield "skipped without a reason", f"round {number}, client {row.learner}: {record.notes}"
            break
    for row in asked:
        done = run.world.done.get((number, int(row.node) - 1001))
        if done is None:
            yield "a task in the record that no client got", f"round {number}, client {row.learner}"
        elif done.fate is not None and str(row.outcome) == "used":
            yield "used without a reply", f"round {number}, client {row.learner}"
        elif done.fate is None and str(row.outcome) in ("failed", "rejected"):
            yield "an honest reply is not used", f"round {number}, client {row.learner}: {row.reason}"
    if record.status == "skipped" and asked:
        yield 'status "skipped" in a round with tasks', f"round {number}"
    if any(str(row.outcome) == "used" for row in asked) and not record.cycle_time_s > 0:
        yield "T = 0 in a round with updates", f"round {number}, status {record.status}"
    alone = f"round {number}: no client has a task: no client is connected"
    if alone in run.warnings and run.world.online.get(number):
        yield "no client is connected, though some are", f"round {number}"


def _counted(run, record):
    """What the record says of a client's work is what the client did."""
    world, specs = run.world, run.world.history.clients
    tasks = []
    for row in record.learners:
        client = world.clients[int(row.node) - 1001]
        done = world.done.get((record.cycle, client.k))
        if done is None:
            continue
        tasks.append((client, done, str(row.outcome) == "used"))
        if str(row.outcome) != "used":
            continue
        who = f"round {record.cycle}, client {client.k} ({done.work})"
        if row.epochs_done is not None and row.samples_used is not None:
            said = row.epochs_done * row.samples_used
            if abs(said - done.drawn) > 2 + row.epochs_done + 0.01 * done.drawn:
                yield "a client's counted work is wrong", f"{who}: {said:.0f}, did {done.drawn}"
        elif done.work in HONEST and row.epochs:
            # Before its first task the server may not know how many samples it holds.
            known = done.work == "shard" or any(n < record.cycle and k == client.k for n, k in world.done)
            planned = row.epochs * (row.samples if known else min(row.samples, client.held))
            if abs(planned - done.drawn) > 2 * row.epochs + 0.01 * planned:
                yield (
                    "planned work is not the work of an honest client",
                    f"{who}: {planned}, did {done.drawn}",
                )
    if record.work is None or not tasks or world.history.options.get("shards"):
        return
    if any("steps" in (done.work, specs[x.k]["work"]) and not done.baseline for x, done, _ in tasks):
        return  # on other samples, a number of steps is another number of epochs
    # The project's own work: of the app as it is or as it was before a repair, as its config says, or one
    # epoch where nothing says how many they are.
    shares = [
        _share((x.own_work(done.work), done.drawn * used) for x, done, used in tasks),
        _share((x.own_work(specs[x.k]["work"]), done.drawn * used) for x, done, used in tasks),
        _share(
            (x.own_work(done.work if used else specs[x.k]["work"]), done.drawn * used)
            for x, done, used in tasks
        ),
        _share((x.own * x.held, done.drawn * used) for x, done, used in tasks),
        _share(_hidden(x, done, used) for x, done, used in tasks),
    ]
    if not any(abs(record.work - share) <= 0.05 * max(share, 1) for share in shares):
        works = ", ".join(sorted({done.work for _, done, _ in tasks}))
        said = f"round {record.cycle} ({works}): {record.work:.0%}, counted {shares[0]:.0%}"
        yield "recorded work is not counted work", said


def _share(pairs):
    own, used = map(sum, zip(*pairs, strict=True))
    return used / own


def _hidden(client, done, used):
    """Return own and used work; one epoch is the own work where the server cannot know how many they are."""
    if done.work == "own work":
        return client.held, done.drawn * used / client.own
    return client.own_work(done.work), done.drawn * used


def _keeps_time(history, run):
    """Of 20 rounds at most 2 exceed 1.15 T."""
    if not history.steady or history.options["cycle_time_s"] == "best" or run.error is not None:
        return
    if history.options["estimation"] is None and any(x not in (None, 1.0) for x in history.declares):
        return
    late = []
    for record in run.records:
        took = run.world.seconds(record.cycle)
        if took is not None and took > SLACK * record.cycle_time_s > 0:
            late.append(f"{record.cycle}: {took / record.cycle_time_s:.2f} T")
    if history.hopeless:
        if len(late) > ASKED:
            yield (
                f"a client that needs more than T delays more than {ASKED} of {ROUNDS} rounds",
                ", ".join(late),
            )
    elif len(late) > EXCEEDED:
        time_s = history.options["cycle_time_s"]
        kind = "derived" if time_s is None else "given"
        yield f"T ({kind}) is exceeded in more than {EXCEEDED} of {ROUNDS} rounds", ", ".join(late)


def _trusts_honest_clients(history, run):
    """An honest client whose task fits is neither skipped nor given its own work, once it is known."""
    if not history.steady or run.error is not None:
        return
    for client in run.world.clients[: -1 if history.hopeless else None]:
        tasks = skipped = 0
        for record in run.records:
            row = next(x for x in record.learners if int(x.node) - 1001 == client.k)
            if tasks >= PATIENCE and row.baseline:
                text = f"round {record.cycle}, client {client.k}: {record.notes}"
                yield "an honest client is given its own work again", text
                break
            tasks += str(row.outcome) == "used"
            skipped += not row.asked
            if skipped > ROUNDS // 2 and _fits_easily(record, client):
                yield "an honest client that fits is skipped", f"round {record.cycle}: {row.reason}"
                break


def _asks_silent_clients_seldom(history, run):
    """A client that hangs costs a few deadlines, not one per round."""
    silent = {at for at, fate in run.world.fates.items() if fate == SILENT}
    for k in range(len(history.clients)):
        first = next(
            (n for n in range(1, 5) if all((m, k) in silent for m in range(n, history.rounds + 1))), None
        )
        if first is None or not _ends_at_a_deadline(history.api, history.options, history.simulated):
            continue
        asked = sum(n >= first and j == k for n, j in run.world.done)
        if asked > ASKED:
            yield (
                "a client that hangs is asked again and again",
                f"client {k}: {asked} of {history.rounds} rounds",
            )


def _plans_repaired(history, run):
    """A client that follows its tasks again is planned again after three rounds in which it takes part."""
    since = run.world.repaired
    # What most clients follow is planned, so all have to.
    if since is None or run.error is not None or any(x.work not in HONEST for x in run.world.clients):
        return
    for spec, client in zip(history.clients, run.world.clients, strict=True):
        if spec["work"] not in REPAIRED:
            continue
        took_part = skipped = 0
        for record in run.records:
            row = next((x for x in record.learners if int(x.node) - 1001 == client.k), None)
            if record.cycle < since or row is None:
                continue
            if took_part >= PATIENCE and row.baseline:
                yield "a repaired client is not planned again", f"round {record.cycle}, client {client.k}"
                break
            if not row.asked:
                skipped += 1
                if skipped > PATIENCE and _fits_easily(record, client) and "follow" in row.reason:
                    yield "a repaired client stays skipped", f"round {record.cycle}: {row.reason}"
                    break
            elif str(row.outcome) == "used":
                took_part, skipped = took_part + 1, 0


def _fits_easily(record, client):
    """Whether the round's T leaves a third of itself beside the client's smallest task."""
    return 1.5 * (client.fixed_s + client.pace * min(client.held, 32)) < record.cycle_time_s


def _errors_change_nothing(history, run):
    """After an error, the client's tasks are those of a history in which it was not sampled in that round.

    Compared where a client's task depends on that client only: T given, all data, no cap.
    """
    o = history.options
    if not isinstance(o["cycle_time_s"], float) or o.get("total_samples") or o.get("shards"):
        return
    if o["staleness"] is not None or run.error is not None or history.resumes_after is not None:
        return
    broken = [at for at, fate in sorted(run.world.fates.items()) if fate not in LATE and at[0] >= 2]
    everyone = range(len(history.clients))
    twin = dict(history.sampled)
    for number, k in broken:
        twin[number] = tuple(x for x in twin.get(number, everyone) if x != k)
    if not broken or any(not some for some in twin.values()):
        return
    events = tuple(x for x in history.events if (x.round, x.k) not in broken or x.what != "fate")
    other = lived(dataclasses.replace(history, sampled=twin, events=events))
    if other.error is not None:
        return
    for number, k in broken:
        rows = _next_rows(run, other, number, k)
        # Without a reply, a client is known by what it answers to probes, which fail as well.
        if rows is None or not any(
            n < number and j == k and x.took_s for (n, j), x in run.world.done.items()
        ):
            continue
        mine, theirs = (row if row.asked else None for row in rows)
        if theirs is None:  # it waits, or the others leave no room for it
            same = True
        elif mine is None or mine.baseline or theirs.baseline:
            same = mine is not None and mine.baseline == theirs.baseline
        else:
            a, b = mine.epochs * mine.samples, theirs.epochs * theirs.samples
            same = abs(a - b) <= 2 + 0.1 * max(a, b)
        if not same:
            code = run.world.fates[number, k]
            kind = "offline" if code in OFFLINE else "an error"
            text = f"round {number}, client {k}, code {code}: {_short(mine)} instead of {_short(theirs)}"
            yield f"{kind} changes a client's next task", text


def _next_rows(run, other, number, k):
    """Return the client's rows of the next round in which both histories sample it."""
    for mine, theirs in zip(run.records, other.records, strict=False):
        rows = [
            next((x for x in record.learners if int(x.node) - 1001 == k), None) for record in (mine, theirs)
        ]
        if mine.cycle > number and None not in rows:
            return rows
    return None


def _short(row):
    return "no task" if row is None else "own work" if row.baseline else f"{row.epochs} x {row.samples}"


# --- many histories --------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--histories", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument(
        "--show", type=int, metavar="SEED", help="print one history and what is wrong with it"
    )
    given = parser.parse_args()
    identity.pretend()
    gc.freeze()
    if given.show is not None:
        show(given.show)
        return
    kinds, first, broken, rounds, start = Counter(), {}, 0, 0, time.process_time()
    for seed in range(given.seed, given.seed + given.histories):
        history = drawn(Seeded(seed))
        found = failures(history)
        rounds += history.rounds
        broken += bool(found)
        for kind, details in dict(found).items():
            kinds[kind] += 1
            first.setdefault(kind, (seed, details))
    seconds = time.process_time() - start
    print(f"{broken} of {given.histories} histories fail ({rounds:,} rounds, {seconds:.0f} s of CPU)\n")
    print(f"{'histories':>9}  {'first seed':>10}  what is wrong")
    for kind, number in kinds.most_common():
        seed, details = first[kind]
        print(f"{number:>9}  {seed:>10}  {kind}\n{'':23}{details}")


def show(seed):
    """Print a history, its rounds and what is wrong."""
    history = drawn(Seeded(seed))
    for f in dataclasses.fields(history):
        print(f"{f.name}: {getattr(history, f.name)}")
    run = lived(history)
    for record in run.records:
        took = run.world.seconds(record.cycle)
        took = "no reply" if took is None else f"{took:.3g} s"
        print(
            f"\nround {record.cycle}: {record.status}, T {record.cycle_time_s:.3g}, took {took}, "
            f"work {record.work}"
        )
        for row in record.learners:
            done = run.world.done.get((record.cycle, int(row.node) - 1001))
            did = "" if done is None else f" did {done.drawn}"
            print(f"  {row.learner}: {_short(row if row.asked else None)}{did} {row.outcome} {row.reason}")
        for note in record.notes:
            print(f"  note: {note}")
    print()
    for kind, details in failures(history):
        print(f"{kind}: {details}")
    if run.error is not None:
        print(f"ends with {type(run.error).__name__}: {run.error}")


if __name__ == "__main__":
    main()
