"""What a round costs the server beside plain Flower: ``python -m bench.strategy``.

The strategy talks to clients inside this process, which send the model back: no engine, no network, no
training. Processor time of `configure_*` and `aggregate_*`, plain and wrapped. The difference is ours:
messages, plan, checks, records.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable
from statistics import median
from time import thread_time
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import Code, GetPropertiesRes, Status, ndarrays_to_parameters
from flwr.server import strategy as classic
from flwr.server.client_manager import SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp import strategy as message
from flwr.simulation import run_simulation

from bench.tables import arguments, save, table
from flwr_mel import Device, Workload, server, serverapp
from flwr_mel.clientapp import Assignment, MelMod, describe
from tests.doubles import EchoClient, InProcessGrid

Answer = TypeVar("Answer")

ROUNDS, SIZES, PARAMETERS = 5, (20, 1_000, 10_000), 1_000


def device(k: int) -> Device:
    """Return one of the paper's four processors, with a link and limits of its own."""
    clock = (6e9, 2.4e9, 1.4e9, 0.7e9)[k % 4]
    return Device(clock, 2e7 + 1e3 * (k % 97), 0.2, energy_limit_j=8 + k % 5, max_samples=3000 + k % 13)


def settings(clients: int) -> dict[str, Any]:
    """Return the keywords of MelStrategy: the paper's problem."""
    workload = Workload.mlp((784, 300, 124, 60, 10), ship_data=False)
    return {"cycle_time_s": 10.0, "total_samples": 2000 * clients, "staleness": 2, "workload": workload}


def in_server(work: Callable[[], Answer]) -> Answer:
    """Work inside a ServerApp on Flower's engine: messages can be made nowhere else."""
    app, answers = ServerApp(), list[Answer]()

    @app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        logging.getLogger("flwr").setLevel(logging.ERROR)
        answers.append(work())

    run_simulation(app, ClientApp(), num_supernodes=1)
    return answers[0]


class Client(EchoClient):  # type: ignore[misc]
    """A classic client that declares its device and sends the model back."""

    def get_properties(self, ins: Any, timeout: Any, group_id: Any) -> Any:  # noqa: ARG002
        """Declare the device."""
        return GetPropertiesRes(Status(Code.OK, ""), describe(device(int(self.cid))))


def message_rounds(
    strategy: Any, app: ClientApp, clients: int, arrays: ArrayRecord, rounds: int
) -> list[float]:
    """Return the strategy's processor seconds of each round in the Message API."""
    grid, spent, config = InProcessGrid(app, clients), [], ConfigRecord({"lr": 0.1})
    for number in range(1, rounds + 1):
        start = thread_time()
        messages = list(strategy.configure_train(number, arrays, config, grid))
        between = thread_time()
        replies = grid.send_and_receive(messages)
        del messages
        again = thread_time()
        arrays = strategy.aggregate_train(number, replies)[0] or arrays
        strategy.aggregate_evaluate(number, [])
        spent.append(thread_time() - again + between - start)
        del replies
    return spent


def classic_rounds(
    strategy: Any, clients: Iterable[ClientProxy], parameters: Any, rounds: int
) -> list[float]:
    """Return the strategy's processor seconds of each round in the classic API."""
    manager, spent = SimpleClientManager(), []
    for client in clients:
        manager.register(client)
    parameters = strategy.initialize_parameters(manager) or parameters
    for number in range(1, rounds + 1):
        start = thread_time()
        sent = strategy.configure_fit(number, parameters, manager)
        between = thread_time()
        results = [(client, client.fit(ins, None, number)) for client, ins in sent]
        del sent
        again = thread_time()
        parameters = strategy.aggregate_fit(number, results, [])[0] or parameters
        strategy.configure_evaluate(number, parameters, manager)
        spent.append(thread_time() - again + between - start)
        del results
    return spent


def echo_app() -> ClientApp:
    """Return an app that sends the model back."""
    app = ClientApp(mods=[MelMod(lambda context, _: device(int(context.node_config["partition-id"])))])

    @app.train()
    def train(sent: Message, context: Context) -> Message:  # noqa: ARG001
        Assignment.from_message(sent).choose(3000)
        metrics = MetricRecord({"num-examples": 10, "loss": 0.0})
        return Message(RecordDict({"arrays": sent.content["arrays"], "metrics": metrics}), reply_to=sent)

    return app


def measure(api: str, clients: int) -> dict[str, Any]:
    """Return the medians per round in ms, plain and wrapped, without the first round and its probes."""
    row: dict[str, Any] = {"api": api, "clients": clients}
    model = [np.zeros(PARAMETERS, np.float32)]
    for kind in ("plain", "wrapped"):
        if api == "message":
            inner: Any = message.FedAvg(
                fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
            )
            strategy: Any = serverapp.MelStrategy(inner, **settings(clients)) if kind == "wrapped" else inner
            spent = message_rounds(strategy, echo_app(), clients, ArrayRecord(model), ROUNDS)
        else:
            inner = classic.FedAvg(
                fraction_evaluate=0.0, min_fit_clients=clients, min_available_clients=clients
            )
            strategy = server.MelStrategy(inner, **settings(clients)) if kind == "wrapped" else inner
            proxies = [Client(str(k)) for k in range(clients)]
            spent = classic_rounds(strategy, proxies, ndarrays_to_parameters(model), ROUNDS)
        row[f"{kind}_ms"] = 1e3 * median(spent[1:])
    row["ours_ms"] = row["wrapped_ms"] - row["plain_ms"]
    row["us_per_client"] = 1e3 * row["ours_ms"] / clients
    return row


def section(found: dict[str, Any]) -> str:
    """Return the section of the page."""
    rows: dict[int, list[str]] = {}
    for x in found["rows"]:
        times = [f"{x['plain_ms']:.1f} ms", f"{x['ours_ms']:.1f} ms"]
        rows.setdefault(x["clients"], [f"{x['clients']:,}"]).extend(times)
    head = ["clients", "FedAvg, Message API", "MelStrategy adds", "FedAvg, classic API", "MelStrategy adds"]
    return f"""## Time that the strategy adds to a round

Processor time of the server in one round without training (median of {ROUNDS - 1} rounds, {PARAMETERS:,}
parameters, c = 2): messages, plan, checks and records.

{table(head, rows.values())}
"""


def main() -> None:
    given = arguments(__doc__).parse_args()
    gc.freeze()  # Flower collects garbage after every array
    rows = in_server(lambda: [measure(api, clients) for api in ("message", "classic") for clients in SIZES])
    print(section({"rows": rows}))
    if not given.no_write:
        save("strategy", {"rows": rows})


if __name__ == "__main__":
    main()
