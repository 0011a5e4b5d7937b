"""All scenarios through the Message API, in one simulation: python -m tests.flower.message_app."""

import json
import sys
import traceback

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp import ServerApp
from flwr.serverapp import strategy as flower
from flwr.simulation import run_simulation

from flwr_mel.serverapp import MelFedAvg, MelStrategy
from tests.flower import clients, lab
from tests.flower.harness import BACKEND
from tests.flower.scenarios import FEDERATED, LAST, SCENARIOS

ALL = {"fraction_evaluate": 0.0, "min_train_nodes": lab.LEARNERS, "min_available_nodes": lab.LEARNERS}

client_app = ClientApp(
    mods=[
        clients.MaybeMod(clients.capability),
        clients.only_in("clipping-mod", fixedclipping_mod),
        clients.only_in("local-dp-mod", LocalDpMod(1.0, 1.0, 10.0, 0.1)),
    ]
)


@client_app.train()
def train(message, context):
    k = int(context.node_config["partition-id"])
    model = message.content["arrays"]
    arrays, samples, metrics = clients.work(k, message.content["config"], model.to_numpy_ndarrays())
    names = [*model, "more"]
    update = ArrayRecord({name: Array(a) for name, a in zip(names, arrays, strict=False)})
    content = RecordDict({"arrays": update, "metrics": MetricRecord({"num-examples": samples, **metrics})})
    return Message(content, reply_to=message)


class SortedFedAvg(flower.FedAvg):
    """Plain FedAvg; the order of its sum does not depend on who answers first."""

    def aggregate_train(self, server_round, replies):
        ordered = sorted(replies, key=lambda reply: reply.content["metrics"]["who"])
        return super().aggregate_train(server_round, ordered)


class ComeAndGo(flower.FedAvg):
    """Learners come and go: ten in cycle 1, all in cycle 2, the other ten in cycle 3."""

    def configure_train(self, server_round, arrays, config, grid):
        messages = super().configure_train(server_round, arrays, config, grid)
        messages = sorted(messages, key=lambda message: message.metadata.dst_node_id)
        return messages[{1: slice(0, 10), 2: slice(0, 20), 3: slice(10, 20)}[server_round]]


def inner_strategy(name):
    own = {"MelFedAvg": MelFedAvg, "SortedFedAvg": SortedFedAvg, "ComeAndGo": ComeAndGo}
    if name == "dp":
        plain = flower.FedAvg(**ALL)
        return flower.DifferentialPrivacyServerSideFixedClipping(plain, 0.1, 1.0, lab.LEARNERS)
    if name == "FedProx":
        return flower.FedProx(**ALL, proximal_mu=0.1)
    return own.get(name, getattr(flower, name, None))(**ALL)


def outer_strategy(name, strategy):
    if name == "dp":
        return flower.DifferentialPrivacyServerSideFixedClipping(strategy, 0.1, 1.0, lab.LEARNERS)
    if name == "client-dp":
        return flower.DifferentialPrivacyClientSideFixedClipping(strategy, 0.1, 0.01, lab.LEARNERS)
    return strategy


def run(name, case, grid):
    """Train once and leave the outcome in files."""
    (lab.out() / "scenario").write_text(name)
    start = ArrayRecord(lab.initial_weights())
    strategy = mel = inner_strategy(case.inner)
    evaluate = None
    if case.accuracy:

        def evaluate(server_round, arrays):
            return MetricRecord({"accuracy": case.accuracy[server_round - 1]}) if server_round else None

    if not case.plain:
        settings = FEDERATED | {"workload": lab.workload(ship_data=case.parallelized)}
        if case.parallelized:
            x, y = lab.digits()
            settings |= {"mode": "parallelized", "dataset": (x, y, np.arange(len(x), dtype=np.uint32))}
        mel = MelStrategy(strategy, **(settings | case.settings))
        strategy = outer_strategy(case.outer, mel)
        if case.outer:
            evaluate = mel.watch(evaluate)
    error, arrays = None, start
    try:
        config = ConfigRecord({"local-epochs": 3})
        result = strategy.start(grid, start, case.rounds, train_config=config, evaluate_fn=evaluate)
        arrays = result.arrays
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
        traceback.print_exc()
    summary = {"error": error, "records": [], "stopped": None}
    if not case.plain:
        summary["records"] = [record.as_dict() for record in mel.records]
        summary["stopped"] = mel.stopped and [mel.stopped.cycle, mel.stopped.reason]
    np.savez(lab.out() / f"{name}.npz", *arrays.to_numpy_ndarrays())
    (lab.out() / f"{name}.json").write_text(json.dumps(summary))


server_app = ServerApp()


@server_app.main()
def main(grid, context):
    chosen = sys.argv[1:]
    for name, case in (SCENARIOS | LAST).items():
        if not chosen or name in chosen:
            run(name, case, grid)


if __name__ == "__main__":
    run_simulation(server_app, client_app, num_supernodes=lab.LEARNERS, backend_config=BACKEND)
