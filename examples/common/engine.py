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


def keep_records(path: Path) -> None:
    """Let every MelStrategy that is made write its cycles down."""
    for api in ("server", "serverapp"):
        strategy = importlib.import_module(f"flwr_mel.{api}").MelStrategy

        def init(self, *args, plain=strategy.__init__, callbacks=(), **kwargs):
            from flwr_mel.records import JsonlWriter  # noqa: PLC0415

            # Ray may take minutes to start on a busy machine.
            patient = {"probe_timeout_s": 600.0, **kwargs}
            plain(self, *args, callbacks=[*callbacks, JsonlWriter(path)], **patient)

        strategy.__init__ = init


class ConfiguredServer:
    """A ServerApp with its run config."""

    def __init__(self, app, config: dict, out: Path) -> None:
        self.app, self.config, self.out = app, config, out

    def __call__(self, grid, context):
        """Run it."""
        context.run_config = dict(self.config)
        note(self.out / "server.jsonl", level="START", text="")
        done = self.app(grid, context)
        note(self.out / "server.jsonl", level="END", text="")
        return done


def load(component: str):
    """Import ``package.module:attribute``."""
    module, _, attribute = component.partition(":")
    return getattr(importlib.import_module(module), attribute)


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
    sys.path.insert(0, str(arguments.app))
    settings = tomllib.loads((arguments.app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    config = flat(settings["config"]) | json.loads(arguments.config)
    logging.getLogger("flwr").addHandler(Lines(arguments.out / "server.jsonl"))
    keep_records(arguments.out / "cycles.jsonl")
    paces = tuple(float(pace) for pace in arguments.paces.split(","))
    witness = Witness(arguments.out / "clients.jsonl", paces, arguments.seed)
    run_simulation(
        ConfiguredServer(load(settings["components"]["serverapp"]), config, arguments.out),
        watched_client(settings["components"]["clientapp"], config, witness),
        num_supernodes=arguments.nodes,
        # All devices at once: the slow ones mostly sleep.
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"num_cpus": arguments.nodes, "include_dashboard": False, "log_to_driver": False},
        },
    )


if __name__ == "__main__":
    main()
