"""A device: trains for tau_k epochs on d_k samples, its own or shipped ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flwr_mel import wire
from flwr_mel.clientapp import Assignment, MelMod
from flwr_mel.profiling.reader import PROFILE, ProfileReader
from mel_fleet.data import load
from mel_fleet.model import initial_weights, train

Trainer = Callable[..., tuple[list[Any], float]]
#: Where the device keeps its own measurement for the rest of the run.
_MEASURED = "mel-measured"
_FEW, _MANY = 16, 64
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
            own_x, own_y = load(str(context.node_config.get("data-dir", "")))
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
        held = len(load(str(context.node_config.get("data-dir", "")))[1])
        words[wire.MAX_SAMPLES] = min(held, int(words.get(wire.MAX_SAMPLES, held)))
    return words


def _measured(context: Context, trainer: Trainer) -> Mapping[str, Any]:
    """Time the training once per run; energy is not measured and counts as nothing."""
    if _MEASURED not in context.state.config_records:
        context.state[_MEASURED] = ConfigRecord(dict(measure(context.run_config, trainer)))
    return dict(context.state.config_records[_MEASURED])


def measure(config: Mapping[str, Any], trainer: Trainer) -> dict[str, float]:
    """Time two small trainings on random samples and return the coefficients they give.

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
    x = rng.standard_normal((_MANY, features)).astype(np.float32)
    y = rng.integers(classes, size=_MANY)
    seconds = []
    for n in (_FEW, _FEW, _MANY):  # the first one warms up
        start = perf_counter()
        trainer(weights, x[:n], y[:n], 1, batch=int(config["batch-size"]), rate=0.1, rng=rng)
        seconds.append(perf_counter() - start)
    slower = 1 + float(config["margin"])
    per_sample = max(seconds[2] - seconds[1], 1e-9) / (_MANY - _FEW)
    fixed = max(seconds[1] - per_sample * _FEW, 0.0)
    waiting = float(config["overhead"])
    return {
        **dict.fromkeys(wire.COEFFICIENTS, 0.0),
        _PER_STEP: slower * per_sample,
        _PER_CYCLE: slower * fixed + waiting,
    }


app = make_app()
