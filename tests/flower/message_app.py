"""The scenarios through the Message API."""

import traceback

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp import ServerApp
from flwr.serverapp import strategy as flower

from flwr_mel.serverapp import MelFedAvg, MelStrategy
from tests.flower import clients, lab
from tests.flower.scenarios import SCENARIOS, leave, settings_of, watched

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
    start = ArrayRecord(lab.start_weights())
    strategy = mel = inner_strategy(case.inner)
    evaluate = None
    if case.accuracy:

        def evaluate(server_round, arrays):
            return MetricRecord({"accuracy": case.accuracy[server_round - 1]}) if server_round else None

    if not case.plain:
        mel = MelStrategy(strategy, **settings_of(case))
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
    leave(name, mel, arrays.to_numpy_ndarrays(), error)


server_app = ServerApp()


@server_app.main()
def main(grid, context):
    with watched(grid) as seen:
        run(lab.scenario(), SCENARIOS[lab.scenario()], seen)
