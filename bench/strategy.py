"""What the strategy itself costs per round, beside Flower's own round: ``python -m bench.strategy``.

At K = 20 the rounds are real ones of a Ray simulation. At K = 1,000 and 10,000 the same strategy talks to a
grid inside this process that calls the client app directly, with real messages and the real mod: no engine,
no network, so the share there is of a round that costs almost nothing but Flower's own bookkeeping.

A round's time is wall-clock time. Our own part is the processor time of the strategy's thread inside
`configure_train`, `aggregate_train` and `aggregate_evaluate`, less what the wrapped FedAvg uses there.
"""

from __future__ import annotations

import logging
import os
import statistics
from collections.abc import Iterable
from time import perf_counter, thread_time
from typing import Any
from uuid import uuid4

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from flwr_mel import Device, Workload
from flwr_mel.clientapp import MelMod
from flwr_mel.serverapp import MelStrategy

ROUNDS = 5
#: Parameters of the model: the paper's at K = 20; few where ten thousand replies must fit into memory.
PAPER_MODEL, SMALL_MODEL = 280_934, 1_000


def device(context: Context, cycle: int) -> Device:  # noqa: ARG001 - the mod's signature
    """Return one of the paper's four processors, with a link and limits of its own."""
    k = int(context.node_config["partition-id"])
    clock = (6e9, 2.4e9, 1.4e9, 0.7e9)[k % 4]
    return Device(clock, 2e7 + 1e3 * (k % 97), 0.2, energy_limit_j=8 + k % 5, max_samples=3000 + k % 13)


def no_op_app() -> ClientApp:
    """Return an app that sends the model back."""
    app = ClientApp(mods=[MelMod(device)])

    @app.train()
    def train(message: Message, context: Context) -> Message:  # noqa: ARG001
        metrics = MetricRecord({"num-examples": 10, "loss": 0.0})
        return Message(
            RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message
        )

    return app


class Clock:
    """Notes the processor time spent in each call of some methods of an object."""

    def __init__(self, target: object, names: Iterable[str]) -> None:
        self.seconds: list[float] = []
        for name in names:
            setattr(target, name, self._timed(getattr(target, name)))

    def _timed(self, method: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds.append(thread_time() - start)

        return timed


def rounds(grid: Grid, learners: int, parameters: int, *, wrapped: bool) -> dict[str, float]:
    """Run no-op rounds; return the medians per round of the whole and of the strategy's own part.

    Parameters
    ----------
    grid : Grid
        Connection to the nodes.
    learners : int
        K.
    parameters : int
        Size of the model.
    wrapped : bool
        Whether MelStrategy is around FedAvg.
    """
    names = ("configure_train", "aggregate_train", "aggregate_evaluate")
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=learners, min_available_nodes=learners)
    inside = Clock(inner, names)
    strategy: Strategy = inner
    outside = inside
    if wrapped:
        strategy = MelStrategy(
            inner,
            cycle_time_s=10.0,
            total_samples=2000 * learners,
            staleness=2,
            workload=Workload.mlp((784, 300, 124, 60, 10), ship_data=False),
        )
        outside = Clock(strategy, names)
    marks: list[float] = []
    strategy.configure_train = _marking(strategy.configure_train, marks)  # type: ignore[method-assign]
    arrays = ArrayRecord([np.zeros(parameters, np.float32)])
    strategy.start(grid, arrays, num_rounds=ROUNDS, train_config=ConfigRecord({"lr": 0.1}))
    own = [a - b for a, b in zip(_by_round(outside.seconds), _by_round(inside.seconds), strict=True)]
    whole = [b - a for a, b in zip(marks, [*marks[1:], perf_counter()], strict=True)]
    # The first round has the probe and the start of the engine in it.
    return {"round_s": statistics.median(whole[1:]), "own_s": statistics.median(own[1:])}


def _marking(method: Any, marks: list[float]) -> Any:
    def marked(*args: Any, **kwargs: Any) -> Any:
        marks.append(perf_counter())
        return method(*args, **kwargs)

    return marked


def _by_round(seconds: list[float]) -> list[float]:
    per_round = len(seconds) // ROUNDS
    return [sum(seconds[i * per_round : (i + 1) * per_round]) for i in range(ROUNDS)]


def compare(grid: Grid, learners: int, parameters: int) -> dict[str, float]:
    """Measure plain and wrapped rounds on one grid."""
    plain = rounds(grid, learners, parameters, wrapped=False)
    wrapped = rounds(grid, learners, parameters, wrapped=True)
    return {
        "learners": learners,
        "flower_round_ms": 1e3 * plain["round_s"],
        "our_round_ms": 1e3 * wrapped["round_s"],
        "own_ms": 1e3 * wrapped["own_s"],
        "share": wrapped["own_s"] / plain["round_s"],
    }


class InProcessGrid(Grid):
    """Calls the client app where others would send messages.

    Parameters
    ----------
    app : ClientApp
        What the nodes run.
    learners : int
        How many nodes there are.
    """

    def __init__(self, app: ClientApp, learners: int) -> None:
        self.app = app
        self.contexts = {
            k + 1: Context(1, k + 1, {"partition-id": k, "num-partitions": learners}, RecordDict(), {})
            for k in range(learners)
        }
        self.replies: dict[str, Message] = {}

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Any:
        """There is none to describe."""
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Refuse: deprecated in Flower."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self.contexts)

    def get_nodes(self) -> Any:
        """Return nothing: the strategies do not ask."""
        return []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let every node answer at once."""
        sent = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            reply = self.app(message, self.contexts[message.metadata.dst_node_id])
            self.replies[message.metadata.message_id] = reply
            sent.append(message.metadata.message_id)
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the answers."""
        return [self.replies.pop(i) for i in message_ids if i in self.replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send and return the answers."""
        del timeout
        return self.pull_messages(self.push_messages(messages))


def in_process(learners: int) -> dict[str, float]:
    """Measure without an engine."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    return compare(InProcessGrid(no_op_app(), learners), learners, SMALL_MODEL)


def in_ray(learners: int = 20) -> dict[str, float]:
    """Measure in a real simulation."""
    from flwr.simulation import run_simulation

    found: dict[str, float] = {}
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        rounds(grid, learners, SMALL_MODEL, wrapped=False)  # warm up
        found.update(compare(grid, learners, PAPER_MODEL))

    backend: Any = {"client_resources": {"num_cpus": 1}, "init_args": {"include_dashboard": False}}
    run_simulation(server_app, no_op_app(), num_supernodes=learners, backend_config=backend)
    return found


def main() -> dict[str, Any]:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for name, value in {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}.items():
        os.environ.setdefault(name, value)
    rows = [in_ray(), in_process(1_000), in_process(10_000)]
    growth = rows[2]["own_ms"] / rows[1]["own_ms"]
    print(f"{'K':>7} {'where':<12}{'Flower, no-op':>16}{'with us':>12}{'our own part':>15}{'share':>8}")
    for row, where in zip(rows, ("Ray", "in process", "in process"), strict=True):
        times = f"{row['flower_round_ms']:>13.1f} ms{row['our_round_ms']:>9.1f} ms{row['own_ms']:>12.2f} ms"
        print(f"{row['learners']:>7,} {where:<12}{times}{row['share']:>8.1%}")
    print(f"ten times the learners cost {growth:.1f} times as much")
    return {"rows": rows, "growth": growth}


if __name__ == "__main__":
    main()
