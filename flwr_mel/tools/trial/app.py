"""A Flower app as its pyproject.toml describes it, and its runs in processes of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

from flwr_mel._validate import Phrase, complain
from flwr_mel.clientapp.virtual import FLEET
from flwr_mel.tools.trial.engine import Job

#: Environment of a run: what MelStrategy does, and the file of its records.
TRY, RECORDED = "FLWR_MEL_TRY", "FLWR_MEL_RECORDS"
_ROUNDS = "num-server-rounds"
_PAIR = r"""[\w.-]+=(?:"[^"]*"|'[^']*'|[^\s"']+)"""
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class App:
    """A Flower app.

    Parameters
    ----------
    directory : Path
        With its pyproject.toml.
    name, serverapp, clientapp : str
        From there.
    config : mapping
        The run config, flat.
    """

    directory: Path
    name: str
    serverapp: str
    clientapp: str
    config: Mapping[str, Any]

    @contextmanager
    def started(
        self,
        folder: Path,
        kind: str,
        fleet: Path,
        *,
        clients: int,
        rounds: int,
        seed: int,
        times: Path | None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a run; whatever happens, it does not run any more afterwards.

        Parameters
        ----------
        folder : Path
            Working directory of the run, with its records, ``flower.log`` and ``error.txt``.
        kind : str
            What MelStrategy does.
        fleet, times : Path
            Of the virtual devices, and for what tasks take here.
        clients, rounds, seed : int
            Of the run.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("records.jsonl", "error.txt"):
            (folder / name).unlink(missing_ok=True)
        job: Job = {
            "serverapp": self.serverapp,
            "clientapp": self.clientapp,
            "config": {**self.config, _ROUNDS: rounds},
            "clients": clients,
            "seed": seed,
            "times": str(times or ""),
            "error": str(folder / "error.txt"),
        }
        path = os.pathsep.join(filter(None, [str(self.directory), os.environ.get("PYTHONPATH", "")]))
        env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        env |= {FLEET: str(fleet), TRY: kind, RECORDED: str(folder / "records.jsonl")}
        # Each client has one CPU: more threads would slow each other down, and add in another order.
        env |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        env |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        command = [sys.executable, "-m", "flwr_mel.tools.trial.engine", json.dumps(job)]
        with (folder / "flower.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            yield process
        finally:
            for sign in (SIGTERM, SIGKILL):  # Ray's processes end with it
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_S)


def read_app(directory: Path, run_config: str = "") -> App:
    """Read an app's pyproject.toml.

    Parameters
    ----------
    directory : Path
        Of the app.
    run_config : str
        Settings in place of the app's own, as for ``flwr run --run-config``.

    Raises
    ------
    InputError
        Names the file and what is wrong with it, or the setting.
    """
    file = directory / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))
        flower = project["tool"]["flwr"]["app"]
        parts = {key: str(flower["components"][key]) for key in ("serverapp", "clientapp")}
        own = dict(_flat(flower.get("config", {})))
        name = str(project.get("project", {}).get("name", directory.resolve().name))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        got = Phrase(f"{file}: {getattr(error, 'strerror', None) or error}")
        rule = "a Flower app, whose pyproject.toml has [tool.flwr.app.components]"
        raise complain("APP", rule, got) from error
    if _ROUNDS not in own:
        hint = f"Read the number of rounds from the run config as {_ROUNDS}, as Flower's own examples do."
        raise complain("APP", f"an app with {_ROUNDS} in [tool.flwr.app.config]", Phrase(str(file)), hint)
    return App(directory.resolve(), name, config=own | dict(_given(run_config, own)), **parts)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of nested tables as Flower names them."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _given(text: str, own: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Read settings: pairs, separated by spaces, with keys of the app's own."""
    whole = re.fullmatch(rf"\s*(?:{_PAIR}\s*)*", text)
    try:
        given = dict(_flat(tomllib.loads("\n".join(re.findall(_PAIR, text)) if whole else "not pairs")))
    except ValueError:
        raise complain("run_config", "pairs such as 'lr=0.1 name=\"x\"'", text) from None
    for key in given:
        if key not in own or key == _ROUNDS:
            known = ", ".join(sorted(set(own) - {_ROUNDS}))
            raise complain("run_config", f"made of keys of the app ({known})", key)
    yield from given.items()
