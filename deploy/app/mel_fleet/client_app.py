"""A device: trains for tau_k epochs on d_k samples, its own or shipped ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flwr_mel import wire
from flwr_mel.clientapp import Assignment, MelMod
from flwr_mel.profile_file import PROFILE, ProfileReader
from mel_fleet.data import load_own
from mel_fleet.model import initial_weights, train

Trainer = Callable[..., tuple[list[Any], float]]
#: Where the device keeps its own measurement for the rest of the run.
_MEASURED = "mel-measured"
#: Sizes of the trainings that a device times itself with, and how often.
_SIZES, _REPEATS = (16, 64, 256), 5
_PER_STEP, _, _PER_CYCLE = wire.COEFFICIENTS[:3]


def make_app(trainer: Trainer = train) -> ClientApp:
    """Build the app around a training function.

    Parameters
    ----------
    trainer : callable
        As `mel_fleet.model.train`.
    """

    def capability(context: Context, cycle: int) -> dict[str, Any] | None:  # noqa: ARG001
        return describe_self(context, trainer)

    app = ClientApp(mods=[MelMod(capability)])

    @app.train()
    def work(message: Message, context: Context) -> Message:
        task, config = Assignment.from_message(message), context.run_config
        if task.shard is not None:
            x, y = task.shard
        else:
            own_x, own_y = load_own(context.node_config, config)
            rows = task.choose(len(own_y))
            x, y = own_x[rows], own_y[rows]
        arrays = message.content.array_records["arrays"]
        new, loss = trainer(
            arrays.to_numpy_ndarrays(),
            x,
            y,
            task.epochs,
            batch=int(config["batch-size"]),
            rate=float(config["learning-rate"]),
            rng=task.rng(),
        )
        metrics = MetricRecord({"num-examples": len(y), "loss": loss})
        return Message(RecordDict({"arrays": ArrayRecord(new), "metrics": metrics}), reply_to=message)

    return app


def describe_self(context: Context, trainer: Trainer) -> dict[str, Any]:
    """Say what this device can do, by the operator's words, else by its own measurement."""
    profile: dict[str, Any] = {}
    if PROFILE in context.node_config:
        profile |= ProfileReader().words(context.node_config[PROFILE])
    if _PER_CYCLE in profile:  # a profile knows the device, not Flower
        profile[_PER_CYCLE] += float(context.run_config["overhead"])
    settings = {**context.run_config, **profile, **context.node_config}
    words: dict[str, Any] = {key: settings[key] for key in wire.CAPABILITY_KEYS if key in settings}
    if wire.CPU_HZ not in words and _PER_STEP not in words:
        words |= _measured(context, trainer)
    if context.run_config["mode"] == "federated":
        held = len(load_own(context.node_config, context.run_config)[1])
        words[wire.MAX_SAMPLES] = min(held, int(words.get(wire.MAX_SAMPLES, held)))
    return words


def _measured(context: Context, trainer: Trainer) -> Mapping[str, Any]:
    """Time the training once per run; energy is not measured and counts as nothing."""
    if _MEASURED not in context.state.config_records:
        context.state[_MEASURED] = ConfigRecord(dict(measure(context.run_config, trainer)))
    return dict(context.state.config_records[_MEASURED])


def measure(config: Mapping[str, Any], trainer: Trainer) -> dict[str, float]:
    """Time small trainings of several sizes on random samples and return the coefficients they give.

    Medians, in turn: a burst of other work then hits all sizes alike, or few of the repeats.

    Parameters
    ----------
    config : mapping
        The run configuration.
    trainer : callable
        What is timed.
    """
    rng = np.random.default_rng(0)
    features, classes = int(config["features"]), int(config["classes"])
    weights = initial_weights(features, int(config["hidden"]), classes, rng)
    x = rng.standard_normal((_SIZES[-1], features)).astype(np.float32)
    y = rng.integers(classes, size=_SIZES[-1])
    seconds: dict[int, list[float]] = {n: [] for n in _SIZES}
    for n in (_SIZES[0], *_SIZES * _REPEATS):  # the first one warms up
        start = perf_counter()
        trainer(weights, x[:n], y[:n], 1, batch=int(config["batch-size"]), rate=0.1, rng=rng)
        seconds[n].append(perf_counter() - start)
    seconds[_SIZES[0]].pop(0)
    middle = [median(seconds[n]) for n in _SIZES]
    slower = 1 + float(config["margin"])
    slopes = [(b - a) / (m - n) for (n, a), (m, b) in combinations(zip(_SIZES, middle, strict=True), 2)]
    per_sample = max(median(slopes), 1e-9)
    fixed = max(middle[0] - per_sample * _SIZES[0], 0.0)
    waiting = float(config["overhead"])
    return {
        **dict.fromkeys(wire.COEFFICIENTS, 0.0),
        _PER_STEP: slower * per_sample,
        _PER_CYCLE: slower * fixed + waiting,
    }


app = make_app()
