"""Run one project on Flower's Ray engine: ``python -m examples.common.engine APP OUT``.

The project is used as it is. Around it: its run config, slow devices, a witness, and the records of the
cycles if it is wrapped.
"""

import argparse
import importlib
import json
import logging
import sys
import tomllib
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from flwr.clientapp import ClientApp

from examples.common.witness import Lines, Witness, note
from flwr_mel import wire


def flat(config: dict, prefix: str = "") -> dict:
    """Flatten a run config as Flower does: tables become dotted keys."""
    found: dict = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def around(config: dict, out: Path, message, context, call_next):
    """Be the outermost mod: give the run config, which `run_simulation` has not, and note reports."""
    before, context.run_config = context.run_config, dict(config)
    try:
        reply = call_next(message, context)
        if context.run_config != config:
            raise RuntimeError(f"the run config was not put back: {context.run_config}")
        for record in reply.content.config_records.values() if reply.has_content() else ():
            if wire.TRAIN_SECONDS in record:
                note(
                    out / "reports.jsonl", partition=int(context.node_config["partition-id"]), **dict(record)
                )
        return reply
    finally:
        context.run_config = before  # Flower wants to find it as it was


def watched_client(component: str, config: dict, witness: Witness):
    """Import the client app; every ClientApp made meanwhile gets the witness as its innermost mod."""
    plain = ClientApp.__init__

    def init(self, client_fn=None, mods=None):
        plain(self, client_fn, [partial(around, config, witness.path.parent), *(mods or []), witness])

    ClientApp.__init__ = init
    try:
        return load(component)
    finally:
        ClientApp.__init__ = plain


@contextmanager
def watched_server(out: Path):
    """Note what the server logs, and let every MelStrategy that is made meanwhile write its cycles down."""
    apis = ("flwr_mel.server", "flwr_mel.serverapp")  # of which the project has loaded what it uses
    strategies = [sys.modules[api].MelStrategy for api in apis if api in sys.modules]
    before = [strategy.__init__ for strategy in strategies]
    log, logger = Lines(out / "server.jsonl"), logging.getLogger("flwr")
    for strategy in strategies:

        def init(self, *args, plain=strategy.__init__, callbacks=(), **kwargs):
            from flwr_mel.records import JsonlWriter  # noqa: PLC0415

            # Ray may take minutes to start on a busy machine.
            patient = {"probe_timeout_s": 600.0, **kwargs}
            plain(self, *args, callbacks=[*callbacks, JsonlWriter(out / "cycles.jsonl")], **patient)

        strategy.__init__ = init
    logger.addHandler(log)
    try:
        yield
    finally:
        logger.removeHandler(log)
        for strategy, plain in zip(strategies, before, strict=True):
            strategy.__init__ = plain


class ConfiguredServer:
    """A ServerApp with its run config, watched."""

    def __init__(self, app, config: dict, out: Path) -> None:
        self.app, self.config, self.out = app, config, out

    def __call__(self, grid, context):
        """Run it."""
        context.run_config = dict(self.config)
        note(self.out / "server.jsonl", level="START", text="")
        with watched_server(self.out):
            done = self.app(grid, context)
        note(self.out / "server.jsonl", level="END", text="")
        return done


def load(component: str):
    """Import ``package.module:attribute``."""
    module, _, attribute = component.partition(":")
    return getattr(importlib.import_module(module), attribute)


def prepared(app: Path, out: Path, paces: tuple[float, ...], *, seed: int = 0, changes: dict | None = None):
    """Return the server app and the client app of a project, with its run config, watched.

    Parameters
    ----------
    app, out : Path
        The project, and where the notes go.
    paces : tuple of float
        Seconds per sample and epoch, by partition.
    seed : int
        Of what clients draw at random.
    changes : dict, optional
        To the run config.
    """
    sys.path.insert(0, str(app))
    settings = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    config, parts = flat(settings["config"]) | (changes or {}), settings["components"]
    client = watched_client(parts["clientapp"], config, Witness(out / "clients.jsonl", paces, seed))
    return ConfiguredServer(load(parts["serverapp"]), config, out), client


def main() -> None:
    """Run."""
    from flwr.simulation import run_simulation  # noqa: PLC0415 (brings Ray, which `local` does without)

    parser = argparse.ArgumentParser()
    parser.add_argument("app", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--paces", default="0", help="seconds per sample and epoch, by partition: 1e-4,1e-3")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of what clients draw at random")
    parser.add_argument("--config", default="{}", help="changes to the run config, as JSON")
    arguments = parser.parse_args()
    paces = tuple(float(pace) for pace in arguments.paces.split(","))
    changes = json.loads(arguments.config)
    run_simulation(
        *prepared(arguments.app, arguments.out, paces, seed=arguments.seed, changes=changes),
        num_supernodes=arguments.nodes,
        # All devices at once: the slow ones mostly sleep.
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"num_cpus": arguments.nodes, "include_dashboard": False, "log_to_driver": False},
        },
    )


if __name__ == "__main__":
    main()
