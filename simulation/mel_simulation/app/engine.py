"""One run on Flower's simulation engine, in a process of its own, so that its output goes into a log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from mel_simulation.app.run_dir import RunDir
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.data import NOTICE
from mel_simulation.scenario.job import dataset_of

#: Seconds that the engine may take to end, by itself after a run and when it is asked to.
_AFTER_S, _ASKED_S = 60.0, 10.0


@contextmanager
def engine(config: RunConfig, ray_address: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the engine; whatever happens, it does not run any more afterwards.

    Parameters
    ----------
    config : RunConfig
        The run; `learners` is K, `run_dir` an existing directory, which gets ``flower.log``.
    ray_address : str
        An existing Ray cluster to join; empty: Ray on this machine.
    """
    env = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    # Each actor has one CPU: more threads would slow each other down.
    env |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    env |= {"RAY_ADDRESS": ray_address} if ray_address else {}
    if notice := dataset_of(config).notice:  # the actors need not try to download again
        env |= {"FLWR_MEL_OFFLINE": "1", NOTICE: notice}
    command = [sys.executable, "-m", "mel_simulation.app.engine", json.dumps(config.as_dict())]
    with (Path(config.run_dir) / "flower.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
        with suppress(subprocess.TimeoutExpired):
            process.wait(_AFTER_S)
    finally:
        process.terminate()
        try:
            process.wait(_ASKED_S)
        except subprocess.TimeoutExpired:
            process.kill()  # Ray's processes end with it
            process.wait()


def run(config: RunConfig) -> None:
    """Run the app through Flower's `run_simulation`."""
    from flwr.serverapp import ServerApp  # noqa: PLC0415
    from flwr.simulation import run_simulation  # noqa: PLC0415

    from mel_simulation.app.client_app import client_app  # noqa: PLC0415
    from mel_simulation.app.server_app import simulate  # noqa: PLC0415

    server = ServerApp()
    server.main()(partial(simulate, config))
    resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(
        server_app=server,
        client_app=client_app(config),
        num_supernodes=config.learners,
        backend_config={"client_resources": resources},
    )


if __name__ == "__main__":
    _config = RunConfig.parse(json.loads(sys.argv[1]))
    try:
        run(_config)
    except BaseException as error:
        traceback.print_exc()
        while error.__cause__ is not None:  # Flower's own errors do not name the reason
            error = error.__cause__
        RunDir(Path(_config.run_dir)).error.write_text(str(error) or type(error).__name__, encoding="utf-8")
        sys.stderr.flush()
        os._exit(1)  # the thread of Flower's ServerApp would wait for its clients for ever
