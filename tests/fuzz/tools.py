"""What the fuzz tests share: how many inputs there are, and whole cycles beside two honest learners.

The generator is seeded, so a failure repeats; `tests/attacks.py` makes the inputs.
"""

import os

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_manager import SimpleClientManager

import flwr_mel.server
import flwr_mel.serverapp
from tests import attacks
from tests.attacks import MODEL, Client, OneRound, honest_words

#: Inputs per target under `make test-slow`. Whole cycles are slow, so most inputs go to the parsers that the
#: cycles call.
PLANNED = {
    "bytes": 70_000,
    "words": 14_000,
    "replies": 5_000,
    "tasks": 12_000,
    "metrics": 3_000,
    "plans": 400,
    "message": 1_000,
    "classic": 1_000,
    "evaluations": 300,
    "hypothesis": 600,
}
#: The part of them that `make test` tries: the first ones, since the generator is seeded.
PART = 1 if os.environ.get("FLWR_MEL_SLOW") == "1" else 8
NODES = (11, 12, 13)  # the last one is the attacker
OPTIONS = {"cycle_time_s": 2.0, "total_samples": 60, "seed": 3}


def check_words(error, longest):
    """Reasons go to logs and records: one line, and not a long one."""
    assert len(str(error)) <= longest
    assert str(error).isprintable()


def tried(target):
    return PLANNED[target] // PART


def inputs(target):
    rng = np.random.default_rng([2022, list(PLANNED).index(target)])
    for _ in range(tried(target)):
        yield rng


def message_cycle(attack, inner=None):
    """Run a cycle with two honest learners and what `attack` makes of the third one's task."""
    inner = inner or flwr_mel.serverapp.MelFedAvg(fraction_evaluate=0.0, min_train_nodes=3)
    strategy = flwr_mel.serverapp.MelStrategy(inner, **OPTIONS)
    arrays = ArrayRecord({key: Array(value) for key, value in MODEL.items()})
    grid = OneRound({node: honest_words(i + 1) for i, node in enumerate(NODES)})
    replies = []
    for message in strategy.configure_train(1, arrays, ConfigRecord(), grid):
        node = message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = f"task-{node}"
        if node == NODES[-1]:
            replies[:0] = attack(message)  # who is malicious is also quick
        else:
            replies.append(Message(attacks.honest_content(float(node)), reply_to=message))
    average, metrics = strategy.aggregate_train(1, replies)
    record = strategy.orchestrator.record
    strategy.orchestrator.close()
    return record, {key: array.numpy() for key, array in average.items()}, dict(metrics)


def fail(message):
    return [Message(Error(0, "broken"), reply_to=message)]


def join(metrics):
    total = sum(n for n, _ in metrics)
    return {"loss": sum(n * m["loss"] for n, m in metrics) / total, "tag": metrics[0][1]["tag"]}


def classic_cycle(result):
    inner = flwr_mel.server.MelFedAvg(min_fit_clients=3, fit_metrics_aggregation_fn=join)
    strategy = flwr_mel.server.MelStrategy(inner, **OPTIONS)
    manager = SimpleClientManager()
    for i, node in enumerate(NODES):
        manager.register(Client(node, honest_words(i + 1)))
    results = []
    for proxy, _ in strategy.configure_fit(1, ndarrays_to_parameters(list(MODEL.values())), manager):
        if proxy.cid != str(NODES[-1]):
            results.append((proxy, attacks.honest_result(float(proxy.cid))))
        elif result is not None:
            results.append((proxy, result))
    parameters, metrics = strategy.aggregate_fit(1, results, [])
    record = strategy.orchestrator.record
    strategy.orchestrator.close()
    return record, dict(zip(MODEL, parameters_to_ndarrays(parameters), strict=True)), metrics
