"""The scenarios through the classic API."""

import traceback

from flwr.client import NumPyClient
from flwr.client.mod import LocalDpMod, fixedclipping_mod, secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, Server, ServerConfig, SimpleClientManager
from flwr.server import strategy as flower
from flwr.server.compat import start_grid
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp

from flwr_mel.server import MelFedAvg, MelStrategy
from tests.flower import clients, lab
from tests.flower.scenarios import SCENARIOS, Scenario, leave, settings_of, watched

CLASSIC_ONLY = {"workflow": Scenario(), "secagg": Scenario(rounds=1)}


class Learner(NumPyClient):
    def __init__(self, k):
        self.k = k

    def fit(self, parameters, config):
        return clients.work(self.k, config, parameters)


def client_fn(context):
    return Learner(int(context.node_config["partition-id"])).to_client()


client_app = ClientApp(
    client_fn=client_fn,
    mods=[
        clients.MaybeMod(clients.capability),
        clients.only_in("clipping-mod", fixedclipping_mod),
        clients.only_in("local-dp-mod", LocalDpMod(1.0, 1.0, 10.0, 0.1)),
        clients.only_in("secagg", secaggplus_mod),
    ],
)


class SortedFedAvg(flower.FedAvg):
    """Plain FedAvg; the order of its sum does not depend on who answers first."""

    def aggregate_fit(self, server_round, results, failures):
        ordered = sorted(results, key=lambda pair: pair[1].metrics["who"])
        return super().aggregate_fit(server_round, ordered, failures)


class ComeAndGo(flower.FedAvg):
    """Learners come and go: ten in cycle 1, all in cycle 2, the other ten in cycle 3."""

    def configure_fit(self, server_round, parameters, client_manager):
        pairs = super().configure_fit(server_round, parameters, client_manager)
        pairs = sorted(pairs, key=lambda pair: pair[0].cid)
        return pairs[{1: slice(0, 10), 2: slice(0, 20), 3: slice(10, 20)}[server_round]]


def inner_strategy(name, accuracy):
    def evaluate(server_round, arrays, config):
        return (1.0, {"accuracy": accuracy[server_round - 1]}) if server_round else None

    def mean(pairs):
        keys = pairs[0][1]
        total = sum(n for n, _ in pairs)
        return {key: sum(n * metrics[key] for n, metrics in pairs) / total for key in keys}

    common = {
        "fraction_evaluate": 0.0,
        "min_fit_clients": lab.LEARNERS,
        "min_available_clients": lab.LEARNERS,
        "initial_parameters": ndarrays_to_parameters(lab.start_weights()),
        "evaluate_fn": evaluate if accuracy else None,
        "on_fit_config_fn": lambda server_round: {"local-epochs": 3, "server-round": server_round},
        "fit_metrics_aggregation_fn": mean,
    }
    own = {"MelFedAvg": MelFedAvg, "SortedFedAvg": SortedFedAvg, "ComeAndGo": ComeAndGo}
    if name == "dp":
        plain = flower.FedAvg(**common)
        return flower.DifferentialPrivacyServerSideFixedClipping(plain, 0.1, 1.0, lab.LEARNERS)
    if name == "FedProx":
        return flower.FedProx(**common, proximal_mu=0.1)
    return own.get(name, getattr(flower, name, None))(**common)


def outer_strategy(name, strategy):
    if name == "dp":
        return flower.DifferentialPrivacyServerSideFixedClipping(strategy, 0.1, 1.0, lab.LEARNERS)
    if name == "client-dp":
        return flower.DifferentialPrivacyClientSideFixedClipping(strategy, 0.1, 0.01, lab.LEARNERS)
    return strategy


def train(name, case, strategy, grid, context):
    """Run Flower's server, or one of its workflows; return the model."""
    if name in CLASSIC_ONLY:
        manager = SimpleClientManager()
        legacy = LegacyContext(context, ServerConfig(case.rounds), strategy, manager)
        secure = SecAggPlusWorkflow(num_shares=5, reconstruction_threshold=3) if name == "secagg" else None
        DefaultWorkflow(fit_workflow=secure)(grid, legacy)
        return legacy.state.array_records["parameters"].to_numpy_ndarrays()
    server = Server(client_manager=SimpleClientManager(), strategy=strategy)
    server.set_max_workers(lab.LEARNERS)
    start_grid(grid=grid, server=server, config=ServerConfig(case.rounds))
    return parameters_to_ndarrays(server.parameters)


def run(name, case, grid, context):
    """Train once and leave the outcome in files."""
    strategy = mel = inner_strategy(case.inner, case.accuracy)
    if not case.plain:
        mel = MelStrategy(strategy, **settings_of(case))
        strategy = outer_strategy(case.outer, mel)
    error, arrays = None, lab.start_weights()
    try:
        arrays = train(name, case, strategy, grid, context)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
        traceback.print_exc()
    leave(name, mel, arrays, error)


server_app = ServerApp()


@server_app.main()
def main(grid, context):
    with watched(grid) as seen:
        run(lab.scenario(), (SCENARIOS | CLASSIC_ONLY)[lab.scenario()], seen, context)
