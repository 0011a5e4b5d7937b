"""The wrapped strategy stays what it is: its own loop, evaluation, methods, attributes, files and loggers."""

import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import Server, ServerConfig, SimpleClientManager
from flwr.server import strategy as classic
from flwr.server.history import History
from flwr.serverapp import strategy as message
from flwr.serverapp.strategy import Result

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel import wire
from flwr_mel.orchestrator import Stopping
from tests.attacks import Client, OneRound
from tests.strategies.drive import FIRST, TRIVIAL, words

ROUNDS, LEARNERS = 3, 3
NODES = {"fraction_evaluate": 0.0, "min_train_nodes": LEARNERS, "min_available_nodes": LEARNERS}
CLIENTS = {"fraction_evaluate": 0.0, "min_fit_clients": LEARNERS, "min_available_clients": LEARNERS}


def step(array):
    return array + np.float32(1)


class Nodes(OneRound):
    """Nodes that train when they are told to; `sent` has the config of every training."""

    def __init__(self):
        super().__init__({FIRST + k: words(k) for k in range(LEARNERS)})
        self.sent = []

    def push_messages(self, messages):
        messages = list(messages)
        super().push_messages([asked for asked in messages if "arrays" not in asked.content])
        for asked in messages:
            if "arrays" in asked.content:
                name = asked.metadata.__dict__["_message_id"] = f"task-{len(self.sent)}"
                self.waiting[name] = self.answer(asked)
        return list(self.waiting)

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def answer(self, asked):
        config = dict(asked.content["config"])
        self.sent.append(config)
        arrays = {key: Array(step(a.numpy())) for key, a in asked.content["arrays"].items()}
        metrics = MetricRecord({"num-examples": config.get(wire.SAMPLES, 1)})
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
        return Message(content, reply_to=asked)


class Logging(message.FedAvg):
    """Flower's advanced-pytorch: results.json, the best model on disk, W&B, a falling learning rate."""

    def set_save_path(self, path):
        self.save_path, self.best, self.logged = path, -1.0, []

    def configure_train(self, server_round, arrays, config, grid):
        if server_round > 1:
            config["lr"] *= 0.5
        return super().configure_train(server_round, arrays, config, grid)

    def _update_best(self, server_round, value, arrays):
        if value > self.best:
            self.best = value
            np.save(self.save_path / f"best-{server_round}.npy", arrays["w"].numpy())

    def start(
        self,
        grid,
        initial_arrays,
        num_rounds=3,
        timeout=3600,
        train_config=None,
        evaluate_config=None,
        evaluate_fn=None,
        project="none",
    ):
        self.logged.append(project)
        result, arrays = Result(), initial_arrays
        for current_round in range(1, num_rounds + 1):
            replies = grid.send_and_receive(
                messages=self.configure_train(current_round, arrays, train_config, grid), timeout=timeout
            )
            averaged, metrics = self.aggregate_train(current_round, replies)
            if averaged is not None:
                result.arrays = arrays = averaged
            if metrics is not None:
                self.logged.append(dict(metrics))
            found = evaluate_fn(current_round, arrays)
            result.evaluate_metrics_serverapp[current_round] = found
            self._update_best(current_round, found["accuracy"], arrays)
        (self.save_path / "results.json").write_text(json.dumps({"best": self.best}))
        return result


def evaluate(server_round, arrays):
    return MetricRecord({"accuracy": float(arrays["w"].numpy().mean()) / 10})


def model():
    return ArrayRecord({"w": Array(np.zeros(4, np.float32))})


def started(strategy, tmp_path, **more):
    strategy.set_save_path(tmp_path)  # reached through the wrapper
    grid = Nodes()
    settings = {"train_config": ConfigRecord({"lr": 1.0}), "evaluate_fn": evaluate, **more}
    return grid, strategy.start(grid=grid, initial_arrays=model(), num_rounds=ROUNDS, **settings)


def test_a_loop_of_its_own_runs_and_keeps_its_files(tmp_path):
    inner = Logging(**NODES)
    strategy = flwr_mel.serverapp.MelStrategy(inner, **TRIVIAL)
    grid, result = started(strategy, tmp_path, project="digits")
    assert [config[wire.CYCLE] for config in grid.sent] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert [config["lr"] for config in grid.sent[::3]] == [1.0, 0.5, 0.25]  # it writes into its config
    assert json.loads((tmp_path / "results.json").read_text()) == {"best": 0.3}
    assert sorted(path.name for path in tmp_path.glob("*.npy")) == [f"best-{n}.npy" for n in (1, 2, 3)]
    assert strategy.logged[0] == "digits"
    assert len(inner.logged) == 1 + ROUNDS
    assert strategy.best == inner.best == 0.3
    assert isinstance(result, flwr_mel.serverapp.strategy.MelResult)
    assert result.arrays["w"].numpy().tolist() == [3.0] * 4
    assert [r.metrics["accuracy"] for r in strategy.records] == [0.1, 0.2, 0.3]
    assert [r.cycle for r in result.records] == [1, 2, 3]
    assert "configure_train" not in vars(inner)  # it is itself again


def test_a_loop_of_its_own_sees_the_stop(tmp_path):
    strategy = flwr_mel.serverapp.MelStrategy(Logging(**NODES), **TRIVIAL, stopping=Stopping(target=0.15))
    grid, result = started(strategy, tmp_path)
    assert result.stopped.cycle == 2
    assert [config[wire.CYCLE] for config in grid.sent] == [1, 1, 1, 2, 2, 2]


class Around(message.FedAvg):
    """A loop of its own around Flower's, with arguments and a result of its own."""

    def start(self, grid, initial_arrays, num_rounds, evaluate_fn=None, *, wandb):
        wandb.append("begins")
        result = super().start(grid, initial_arrays, num_rounds, evaluate_fn=evaluate_fn)
        wandb.append(len(result.evaluate_metrics_serverapp))
        self.rounds_done = num_rounds
        return {"model": result.arrays, "rounds": num_rounds}


def test_a_loop_around_flowers_with_arguments_and_a_result_of_its_own():
    strategy = flwr_mel.serverapp.MelStrategy(Around(**NODES), **TRIVIAL)
    grid, said = Nodes(), []
    result = strategy.start(grid, model(), ROUNDS, evaluate_fn=evaluate, wandb=said)
    assert said == ["begins", ROUNDS + 1]
    assert result["rounds"] == strategy.rounds_done == ROUNDS
    assert result["model"]["w"].numpy().tolist() == [3.0] * 4
    assert len(strategy.records) == ROUNDS


def test_a_loop_that_fails_leaves_the_strategy_as_it_was():
    inner = Around(**NODES)
    strategy = flwr_mel.serverapp.MelStrategy(inner, **TRIVIAL)
    before = dict(vars(inner))
    with pytest.raises(TypeError, match="wandb"):
        strategy.start(Nodes(), model(), ROUNDS)
    assert vars(inner) == before


def test_arguments_that_nobody_takes_are_an_error():
    strategy = flwr_mel.serverapp.MelStrategy(message.FedAvg(**NODES), **TRIVIAL)
    with pytest.raises(TypeError, match="wandb"):
        strategy.start(Nodes(), model(), ROUNDS, wandb=[])


@pytest.mark.parametrize("api", [flwr_mel.server, flwr_mel.serverapp])
def test_attributes_are_read_and_set_where_the_strategy_has_them(api):
    class Own(classic.FedAvg if api is flwr_mel.server else message.FedAvg):
        threshold = 0.5

        def keep(self):
            return self.threshold

    inner = Own()
    strategy = api.MelStrategy(inner, cycle_time_s=1)
    assert strategy.fraction_evaluate == 1.0
    strategy.threshold = 0.9
    assert strategy.keep() == inner.threshold == 0.9
    strategy.label = "mine"  # new: the wrapper's own
    assert "label" not in vars(inner)
    assert strategy.label == "mine"
    assert not hasattr(strategy, "nowhere")
    with pytest.raises(AttributeError, match="nowhere"):
        _ = strategy.nowhere


class Saving(classic.FedAvg):
    """Flower's way to keep models in the classic API, with an evaluation and a report of its own."""

    def __init__(self, directory, **settings):
        super().__init__(**settings)
        self.directory, self.seen = directory, []

    def aggregate_fit(self, server_round, results, failures):
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        if parameters is not None:
            np.savez(self.directory / f"round-{server_round}.npz", *parameters_to_ndarrays(parameters))
        return parameters, metrics

    def evaluate(self, server_round, parameters):
        value = float(parameters_to_ndarrays(parameters)[0].mean())
        self.seen.append((server_round, value))
        return -value, {"accuracy": value / 10}

    def report(self):
        return {"rounds": len(self.seen)}


class Patient(Server):
    """A server of its own, which asks its strategy for more than Flower's does."""

    def fit(self, num_rounds, timeout):
        history = History()
        self.parameters = self._get_initial_parameters(server_round=0, timeout=timeout)
        for server_round in range(1, num_rounds + 1):
            fitted = self.fit_round(server_round=server_round, timeout=timeout)
            if fitted and fitted[0] is not None:
                self.parameters = fitted[0]
            loss, metrics = self.strategy.evaluate(server_round, self.parameters)
            history.add_loss_centralized(server_round, loss)
            if metrics["accuracy"] >= 0.2:
                break
        self.report = self.strategy.report()
        return history, 0.0


class Trains(Client):
    def fit(self, ins, timeout, group_id):
        arrays = [step(a) for a in parameters_to_ndarrays(ins.parameters)]
        samples = ins.config[wire.SAMPLES]
        return FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), samples, {})


def test_a_classic_strategy_and_server_of_their_own(tmp_path):
    first = ndarrays_to_parameters([np.zeros(4, np.float32)])
    inner = Saving(tmp_path, initial_parameters=first, **CLIENTS)
    strategy = flwr_mel.server.MelStrategy(inner, **TRIVIAL)
    manager = SimpleClientManager()
    for k in range(LEARNERS):
        manager.register(Trains(FIRST + k, words(k)))
    server = Patient(client_manager=manager, strategy=strategy)
    history, _ = server.fit(ServerConfig(num_rounds=ROUNDS).num_rounds, None)
    strategy.orchestrator.close()
    assert server.report == {"rounds": 2}
    assert inner.seen == [(1, 1.0), (2, 2.0)]
    assert history.losses_centralized == [(1, -1.0), (2, -2.0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-1.npz", "round-2.npz"]
    assert [r.metrics["accuracy"] for r in strategy.records] == [0.1, 0.2]
