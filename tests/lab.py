"""A fleet in one process on a virtual clock: real strategies, real mod and loader, scripted clients.

A client's app is one of `WORKS`: it follows its task as projects do, or does not. What it really did is
counted where it does it (`Done`), so that records can be compared with it. A `World` has the clients and what
happens to them; `train` runs Flower's own loop (Message API) or drives the strategy as Flower's server does
(classic API).
"""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.common import Code, FitIns, GetPropertiesIns, ndarrays_to_parameters
from flwr.server import SimpleClientManager
from flwr.server import strategy as classic_flower
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import Grid
from flwr.serverapp import strategy as message_flower
from torch.utils.data import DataLoader

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel import wire
from flwr_mel.clientapp import Assignment, MelClient, MelMod
from flwr_mel.clientapp import loader as _loader  # noqa: F401 - loaded before the clock runs
from tests.clock import Clock

#: Node ids are far from the numbers of the clients.
FIRST = 1001
KEY, BATCH, STEPS = "local-epochs", 16, 8
MODEL = np.zeros(2, np.float32)
_GIVEN = ArrayRecord({"w": Array(MODEL)})
_MOVED = ArrayRecord({"w": Array(MODEL + 1)})
_PARAMETERS = ndarrays_to_parameters([MODEL])
_ERRORS = {
    0: "unknown",
    1: "the ClientApp could not be loaded",
    2: "the ClientApp raised an exception",
    3: "Error: Message Unavailable - The requested message could not be found",
    4: "Error: Reply Message Unavailable - The reply message has expired.",
    5: "Error: Node Unavailable - The destination node failed to report a heartbeat",
    6: "the mod's precondition failed",
    7: "the FAB is not valid",
    8: "the ClientApp stopped responding",
}
SILENT = -1
#: Failed, late and offline, by Flower's code; silence is late.
LATE, OFFLINE = (SILENT, 3, 4), (5,)


# --- what apps do with their tasks -----------------------------------------------------------------------


class Asked:
    """A task as the app of either API sees it."""

    def __init__(self, client, task, config):
        self.client, self.task, self.config = client, task, config

    def epochs(self):
        return int(self.config[KEY])


def over_loader(asked, epochs):
    """Train on batches of `Assignment.loader`."""
    client = asked.client
    loader = asked.task().loader(client.loader)
    used = 0
    for _ in range(epochs):
        drawn = 0
        for batch in loader:
            client.works(batch)
            drawn += batch
        used = max(used, drawn)
    return used


def over_rows(asked, task, epochs):
    rows = len(task.choose(asked.client.held))
    for _ in range(epochs):
        asked.client.works(rows)
    return rows


def until_over(asked):
    """Train on arrays batch by batch while there is time."""
    task = asked.task(asked.client.own)
    rows = len(task.choose(asked.client.held))
    epochs, used = task.epochs, 0
    for _ in range(epochs):
        for start in range(0, rows, BATCH):
            if task.seconds_left <= 0 and used:
                return min(used, rows)
            size = min(BATCH, rows - start)
            asked.client.works(size)
            task.trained(size)
            used += size
    return rows


def whole(asked, epochs):
    for _ in range(epochs):
        asked.client.works(asked.client.held)
    return asked.client.held


def steps(asked):
    """`max_steps`, whatever the epochs are."""
    client, done = asked.client, 0
    loader = asked.task().loader(client.loader)
    while done < STEPS:
        before = done
        for batch in loader:
            client.works(batch)
            done += 1
            if done == STEPS:
                break
        if done == before:
            break
    return client.held


def _task_choose(asked):
    task = asked.task(asked.client.own)
    return over_rows(asked, task, task.epochs)


def over_shard(asked):
    """Train on the samples that the server sent."""
    task = asked.task(asked.client.own)
    rows = len(task.shard[0])
    for _ in range(task.epochs):
        asked.client.works(rows)
    return rows


#: By name: the work. Those of `HONEST` follow their tasks.
WORKS = {
    "loader": lambda a: over_loader(a, a.epochs()),
    "rows": lambda a: over_rows(a, a.task(), a.epochs()),
    "task rows": _task_choose,
    "until over": until_over,
    "loader, own epochs": lambda a: over_loader(a, a.client.own),
    "rows, own epochs": lambda a: over_rows(a, a.task(), a.client.own),
    "all data": lambda a: whole(a, a.epochs()),
    "own work": lambda a: whole(a, a.client.own),
    "steps": steps,
    "shard": over_shard,
}
HONEST = ("loader", "rows", "task rows", "until over", "shard")
#: What an app becomes when it is repaired.
REPAIRED = {"loader, own epochs": "loader", "rows, own epochs": "task rows", "steps": "loader"}
#: Apps without the number of epochs in a config.
HARD_CODED = (
    "shard",
    "task rows",
    "until over",
    "rows, own epochs",
    "own work",
    "loader, own epochs",
    "steps",
)


# --- clients ---------------------------------------------------------------------------------------------


@dataclass
class Done:
    """One task: what was asked and what was done, counted in the app."""

    cycle: int
    k: int
    config: dict
    start_s: float
    drawn: int = 0
    used: int = 0
    took_s: float | None = None
    fate: int | None = None
    #: What the app was then: see `WORKS`.
    work: str = ""

    @property
    def baseline(self):
        return wire.SAMPLES not in self.config


@dataclass
class Client:
    """A device and its app: `pace` seconds per sample, `fixed_s` per task, times what the world says."""

    work: str = "loader"
    own: int = 1
    held: int = 100
    pace: float = 1e-3
    fixed_s: float = 0.01
    #: Seconds for the model's way there and back, outside of the app.
    link_s: float = 0.0
    #: Words under which it describes itself.
    profile: dict = field(default_factory=dict)
    simulated: bool = False
    modded: bool = True
    #: Loading libraries and data in its first task.
    cold_s: float = 0.0
    online: bool = True
    k: int = 0
    world: Any = None
    doing: Done | None = None
    factor: float = 1.0
    trained: bool = False
    _loader: Any = None

    @property
    def loader(self):
        if self._loader is None:
            # A batch is its number of samples: nothing is computed.
            self._loader = DataLoader(range(self.held), batch_size=BATCH, collate_fn=len)
        return self._loader

    def works(self, samples):
        self.doing.drawn += samples
        self.world.clock.spend(self.factor * self.pace * samples)

    def does(self, asked):
        """Do the task; return the samples that were used."""
        world, done = self.world, self.doing
        self.factor = world.factor(done.cycle, self)
        world.clock.spend(self.factor * self.fixed_s + (0.0 if self.trained else self.cold_s))
        self.trained = True
        done.used = WORKS[self.work](asked)
        return done.used

    @property
    def own_work(self):
        """Samples that its app draws in a round of its own."""
        batches = [min(BATCH, self.held - at) for at in range(0, self.held, BATCH)]
        steps = sum((batches * STEPS)[:STEPS])
        return steps if self.work == "steps" else self.own * self.held

    @property
    def config(self):
        return {} if self.work in HARD_CODED else {KEY: self.own}


class LabMod(MelMod):
    """The real mod; the lab says how the client describes itself."""

    def __init__(self, client):
        super().__init__({}, clock=client.world.clock.read)
        self.client = client

    def words(self, context, cycle):
        client = self.client
        found = {wire.MODDED: 1, wire.LEARNER: str(client.k), **client.world.profile(cycle, client)}
        return found | ({wire.SIMULATED: 1, wire.PARTITION: client.k} if client.simulated else {})


class World:
    """The clients, the clock, and what happens in which round."""

    def __init__(self, clients, *, seed=0, noise=0.0):
        self.clients, self.clock, self.seed, self.noise = list(clients), Clock(), seed, noise
        self.round, self.done, self.fates, self.sampled = 0, {}, {}, {}
        self.began = {}
        for k, client in enumerate(self.clients):
            client.k, client.world = k, self

    def begin(self, number):
        """Called before the clients of a round are sampled."""
        self.round = number

    def factor(self, cycle, client):
        """By how much a task takes longer than usual."""
        if not self.noise:
            return 1.0
        return float(np.exp(self.noise * np.random.default_rng([self.seed, cycle, client.k]).normal()))

    def profile(self, cycle, client):
        return client.profile

    def participants(self, number):
        """Return the clients that the wrapped strategy samples."""
        chosen = self.sampled.get(number)
        online = [k for k, client in enumerate(self.clients) if client.online]
        return online if chosen is None else [k for k in chosen if k in online] or online[:1]

    def fate(self, k):
        """Return an error's code, SILENT, or None for a client that does its task."""
        return self.fates.get((self.round, k))

    def begins(self, client, config):
        cycle = config.get(wire.CYCLE, self.round)
        done = Done(cycle, client.k, dict(config), self.clock.now, fate=self.fate(client.k), work=client.work)
        self.began.setdefault(cycle, self.clock.now)
        self.done[cycle, client.k] = client.doing = done
        return done

    def seconds(self, cycle):
        """Return how long the round's slowest client really took; None: no client replied."""
        took = [x.took_s for (n, _), x in self.done.items() if n == cycle and x.took_s is not None]
        return max(took, default=None)


# --- Message API -----------------------------------------------------------------------------------------


class LabGrid(Grid):
    """A reply is there when its client is done, by the virtual clock."""

    run = None

    def __init__(self, world):
        self.world, self.numbers = world, 0
        #: Replies under way, by the id of their message, and when they arrive.
        self.coming = {}
        self.contexts = {}
        self.mods = [LabMod(client) for client in world.clients]

    def set_run(self, run):
        pass

    def create_message(self, *given, **more):
        raise NotImplementedError

    def get_node_ids(self):
        return [FIRST + client.k for client in self.world.clients if client.online]

    def push_messages(self, messages):
        sent, clock = [], self.world.clock
        for message in messages:
            self.numbers += 1
            message.metadata.__dict__["_message_id"] = f"m{self.numbers}"  # as Flower's own grids do
            sent.append(message.metadata.message_id)
            with clock.at(clock.now):
                reply = self._received(message, message.metadata.dst_node_id - FIRST)
                arrives = clock.now
            if reply is not None:
                self.coming[message.metadata.message_id] = arrives, reply
                clock.expect(arrives)
        return sent

    def pull_messages(self, message_ids):
        now = self.world.clock.now
        ids = set(message_ids)
        here = sorted(
            (arrives, name) for name, (arrives, _) in self.coming.items() if arrives <= now and name in ids
        )
        return [self.coming.pop(name)[1] for _, name in here]

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError  # MelStrategy waits by itself

    def _received(self, message, k):
        world, client = self.world, self.world.clients[k]
        config = next(iter(message.content.config_records.values()), {})
        probe = wire.PROBE in config
        done = None if probe else world.begins(client, config)
        fate = world.fate(k)
        if fate == SILENT:
            return None
        if fate is not None and not (probe and fate in (1, 2)):  # the app is not called for a probe
            world.clock.spend(0.1)
            return Message(Error(fate, _ERRORS[fate]), reply_to=message)
        if probe and not client.modded:
            return Message(Error(2, "KeyError: 'arrays'"), reply_to=message)
        context = Context(1, FIRST + k, {"partition-id": k}, RecordDict(), client.config)
        app = self._app
        world.clock.spend(client.link_s / 2)
        try:
            reply = self.mods[k](message, context, app) if client.modded else app(message, context)
        except Exception as error:
            return Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message)
        world.clock.spend(client.link_s / 2)
        if done is not None:
            done.took_s = world.clock.now - done.start_s
        return reply

    def _app(self, message, context):
        client = self.world.clients[context.node_config["partition-id"]]
        task = lambda own=None: Assignment.from_message(message, own)  # noqa: E731
        used = client.does(Asked(client, task, context.run_config))
        metrics = MetricRecord({"num-examples": used, "loss": 0.5})
        return Message(RecordDict({"arrays": _MOVED, "metrics": metrics}), reply_to=message)


def _message_strategy(world):
    class Scripted(message_flower.FedAvg):
        """Samples as the world says; the model does not matter."""

        def configure_train(self, server_round, arrays, config, grid):
            world.begin(server_round)
            content = RecordDict({"arrays": arrays, "config": config})
            nodes = [FIRST + k for k in world.participants(server_round)]
            return [Message(content, dst_node_id=node, message_type="train") for node in nodes]

        def aggregate_train(self, server_round, replies):
            return (_GIVEN, None) if list(replies) else (None, None)

    return Scripted(fraction_evaluate=0.0)


# --- classic API -----------------------------------------------------------------------------------------


class _App(NumPyClient):
    def __init__(self, client):
        self.client = client

    def fit(self, parameters, config):
        task = lambda own=None: Assignment.from_config(config, own)  # noqa: E731
        used = self.client.does(Asked(self.client, task, config))
        return [MODEL + 1], used, {"loss": 0.5}


class Proxy(ClientProxy):
    """A client of the classic API."""

    def __init__(self, client):
        super().__init__(str(FIRST + client.k))
        self.client, app = client, _App(client)
        self.app = MelClient(app, LabMod(client)) if client.modded else app.to_client()

    def get_properties(self, ins, timeout, group_id):
        fate = self.client.world.fate(self.client.k)
        if fate is not None and fate not in (1, 2):
            raise TimeoutError(_ERRORS.get(fate, "no answer"))
        return self.app.get_properties(GetPropertiesIns(ins.config))

    def fit(self, ins, timeout, group_id):
        world, client = self.client.world, self.client
        done = world.begins(client, ins.config)
        if done.fate is not None:
            world.clock.spend(0.1)
            raise ValueError(_ERRORS.get(done.fate, "Expected one Message but got: 0"))
        world.clock.spend(client.link_s / 2)
        result = self.app.fit(FitIns(ins.parameters, dict(ins.config)))
        world.clock.spend(client.link_s / 2)
        done.took_s = world.clock.now - done.start_s
        return result

    def get_parameters(self, ins, timeout, group_id):
        raise NotImplementedError

    evaluate = reconnect = get_parameters


def _classic_strategy(world):
    proxies = [Proxy(client) for client in world.clients]

    class Scripted(classic_flower.FedAvg):
        """Samples as the world says; the model does not matter."""

        def configure_fit(self, server_round, parameters, client_manager):
            world.begin(server_round)
            for proxy in proxies:
                if proxy.client.online and proxy.cid not in client_manager.clients:
                    client_manager.register(proxy)
                elif not proxy.client.online and proxy.cid in client_manager.clients:
                    client_manager.unregister(proxy)
            here = client_manager.all()
            sampled = [here[str(FIRST + k)] for k in world.participants(server_round)]
            shared = world.clients[0].config
            return [(proxy, FitIns(parameters, {**shared, **proxy.client.config})) for proxy in sampled]

        def aggregate_fit(self, server_round, results, failures):
            return (_PARAMETERS if results else None), {}

    return Scripted(fraction_evaluate=0.0, initial_parameters=_PARAMETERS)


def _classic_rounds(strategy, world, rounds):
    """Drive the strategy as Flower's server does: all clients of a round at the same time."""
    manager, clock, before = SimpleClientManager(), world.clock, set(threading.enumerate())
    parameters = strategy.initialize_parameters(manager) or _PARAMETERS
    for number in range(1, rounds + 1):
        sent = strategy.configure_fit(number, parameters, manager)
        results, failures, ends = [], [], [clock.now]
        for proxy, ins in sent:
            with clock.at(clock.now):
                try:
                    result = proxy.fit(ins, None, number)
                except Exception as error:
                    failures.append(error)
                else:
                    good = result.status.code is Code.OK
                    (results if good else failures).append((proxy, result))
                ends.append(clock.now)
        clock.now = max(ends)
        for thread in set(threading.enumerate()) - before:  # probes: one seed, one result
            thread.join()
        parameters = strategy.aggregate_fit(number, results, failures)[0] or parameters
        strategy.evaluate(number, parameters)
        strategy.configure_evaluate(number, parameters, manager)


# --- a training ------------------------------------------------------------------------------------------


def wrapped(world, api="message", **options):
    """Return a MelStrategy of the API that samples what the world says."""
    if api == "message":
        return flwr_mel.serverapp.MelStrategy(_message_strategy(world), **options)
    return flwr_mel.server.MelStrategy(_classic_strategy(world), **options)


def train(strategy, world, rounds, api="message", timeout=3600.0):
    """Run rounds on the world's clock; it must be `running`."""
    if api == "message":
        start = {"num_rounds": rounds, "timeout": timeout}
        start["train_config"] = ConfigRecord({"lr": 0.1})
        strategy.start(LabGrid(world), _GIVEN, **start)
    else:
        _classic_rounds(strategy, world, rounds)
