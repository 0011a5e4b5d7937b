"""Calls real ClientApps with the messages that a server would send."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from flwr_mel import wire
from flwr_mel.clientapp import mel_mod

TASK = {wire.CYCLE: 1, wire.EPOCHS: 7, wire.SAMPLES: 20, wire.SEED: 3}
BASELINE = {wire.CYCLE: 1, wire.BASELINE: 1, wire.SEED: 3}


def context(run_config=None, **node_config):
    return Context(1, 1, {"partition-id": 2, **node_config}, RecordDict(), run_config or {})


def task_message(words, **config):
    content = {"arrays": ArrayRecord([np.zeros(2)]), "config": ConfigRecord({**config, **words})}
    return Message(RecordDict(content), 1, "train")


def reply_to(message, examples=12):
    metrics = MetricRecord({"num-examples": examples})
    return Message(RecordDict({"arrays": ArrayRecord([np.ones(2)]), "metrics": metrics}), reply_to=message)


def message_app(work, mod=mel_mod):
    """Return a ClientApp of the Message API whose training is `work(message, context)`."""
    app = ClientApp(mods=[mod])

    @app.train()
    def train(message, ctx):
        work(message, ctx)
        return reply_to(message)

    return app


def call(work, words, ctx=None, config=None, mod=mel_mod):
    """Train once in the Message API; return the report."""
    message = task_message(words, **(config or {}))
    reply = message_app(work, mod)(message, ctx or context())
    return dict(reply.content[wire.RECORD])


class Learner(NumPyClient):
    def __init__(self, work):
        self.work = work

    def fit(self, parameters, config):
        self.work(config)
        return parameters, 12, {"loss": 0.5}


def classic_message(words, **config):
    content = {
        "fitins.parameters": ArrayRecord([np.zeros(2)]),
        "fitins.config": ConfigRecord({**config, **words}),
    }
    return Message(RecordDict(content), 1, "train")


def classic_call(work, words, ctx=None, config=None, mod=mel_mod):
    """Train once in the classic API; return the metrics."""
    app = ClientApp(lambda context: Learner(work).to_client(), mods=[mod])
    reply = app(classic_message(words, **(config or {})), ctx or context())
    return dict(reply.content["fitres.metrics"])


def probe(mod, ctx=None):
    """Send a probe; return the answer."""
    message = Message(RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: 4})}), 1, "train")
    return dict(mod(message, ctx or context(), None).content[wire.RECORD])
