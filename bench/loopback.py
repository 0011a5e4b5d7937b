"""A SuperLink and SuperNodes on loopback, without TLS: for benchmarks and tests that need nothing else."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from flwr_mel._processes import end, tree

BIN = Path(sys.executable).parent
#: Far above what anything takes: it tells what hangs from what is slow.
PATIENCE_S = 900.0


def free_port() -> int:
    """Return a port that is free, from below those that systems give to outgoing connections."""
    draw = random.SystemRandom()
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port := draw.randrange(10_000, 32_000)))
            except OSError:
                continue
            return port


def wait_for(what: Callable[[], Any], pause_s: float = 0.2) -> Any:
    """Call until it returns something true, and return that.

    Parameters
    ----------
    what : callable
        Asked again and again.
    pause_s : float
        In between.
    """
    end_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_at:
        if found := what():
            return found
        time.sleep(pause_s)
    raise RuntimeError(f"{getattr(what, '__name__', what)} did not come true in {PATIENCE_S} s")


def _cpu_s(pid: int) -> float:
    """Return the processor seconds of a process and of what it started, those that have ended included."""
    ticks = 0
    for seen in tree(pid):
        with suppress(OSError):
            stat = Path(f"/proc/{seen.pid}/stat").read_text(encoding="utf-8", errors="replace")
            # The name in parentheses may hold anything; user and system time, its own and its children's.
            ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Loopback:
    """One SuperLink, its SuperNodes, and runs on them.

    Parameters
    ----------
    root : Path
        For homes and logs.
    **environment
        More variables for all processes.
    """

    #: Where the SuperLink listens.
    host = "127.0.0.1"

    def __init__(self, root: Path, **environment: str) -> None:
        self.root, self.port = root, free_port()
        self.logs = root / "logs"
        self.logs.mkdir(parents=True)
        self._environment = environment
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._superlink: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        quick = "--disable-runtime-dependency-installation"
        command = [BIN / "flower-superlink", "--insecure", "--host", self.host, "--port", self.port, quick]
        self._superlink = self.spawn("superlink", command)
        try:
            wait_for(self._healthy)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in (*self._nodes.values(), self._superlink):
            if process is not None and process.poll() is None:
                end(process)

    def _healthy(self) -> bool:
        assert self._superlink is not None
        if self._superlink.poll() is not None:
            raise RuntimeError(self.log("superlink"))
        with suppress(OSError), urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
        return False

    def spawn(self, name: str, command: list[Any], **more: str) -> subprocess.Popen[bytes]:
        """Start a process with a log and a home of its own.

        Parameters
        ----------
        name : str
            Of the log.
        command : list
            Its words.
        **more
            Variables.
        """
        environment = os.environ | {
            "FLWR_HOME": str(self.root / f"home-{name}"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **self._environment,
            **more,
        }
        with (self.logs / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                list(map(str, command)),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
                start_new_session=True,
            )

    def start_node(self, name: str, config: str, *, ours: bool = False) -> None:
        """Start a SuperNode.

        Parameters
        ----------
        name : str
            Of its log.
        config : str
            Its node config.
        ours : bool
            Whether it is started as `flwr-mel device start` does.
        """
        options = f"--insecure --superlink 127.0.0.1:{self.port} --host 127.0.0.1 --port {free_port()}"
        program = (
            [sys.executable, "-m", "flwr_mel.deployment.supernode"] if ours else [BIN / "flower-supernode"]
        )
        self.add(name, [*program, *options.split(), "--node-config", config])

    def add(self, name: str, command: list[Any], **more: str) -> None:
        """Start a node of any kind; an earlier one of this name must be over.

        Parameters
        ----------
        name : str
            Of its log.
        command : list
            Its words.
        **more
            Variables.
        """
        if name in self._nodes:
            self._nodes[name].wait(PATIENCE_S)
        self._nodes[name] = self.spawn(name, command, **more)

    def wait_for_nodes(self) -> None:
        """Wait until every SuperNode has an id."""
        wait_for(lambda: all("SuperNode ID:" in self.log(name) for name in self._nodes))

    def ended(self) -> list[str]:
        """Return whose processes are over."""
        return [name for name, process in self._nodes.items() if process.poll() is not None]

    def cpu_s(self) -> tuple[float, float]:
        """Return the processor seconds of the SuperNodes and of the SuperLink so far, with what they started.

        Unlike time on a clock they hardly depend on what else the machine does.
        """
        assert self._superlink is not None
        return sum(_cpu_s(node.pid) for node in self._nodes.values()), _cpu_s(self._superlink.pid)

    def log(self, name: str) -> str:
        """Return what a process has written."""
        path = self.logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _ask(self, method: str, request: Any) -> Any:
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        client = ControlHttpClient.from_server_address(
            server_address=f"127.0.0.1:{self.port}",
            insecure=True,
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )
        try:
            return getattr(client, method)(request)
        finally:
            client.close()

    def run(self, app: Path, config: Mapping[str, Any]) -> None:
        """Run an app to its end, as `flwr run` does.

        Parameters
        ----------
        app : Path
            Its project.
        config : mapping
            In place of its own configuration.
        """
        self.finish(self.submit(app, config))

    def submit(self, app: Path, config: Mapping[str, Any]) -> int:
        """Start a run and return its id.

        Parameters
        ----------
        app : Path
            Its project.
        config : mapping
            In place of its own configuration.
        """
        from flwr.cli.build import build_fab_from_disk
        from flwr.common.serde import fab_to_proto, user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        with warnings.catch_warnings():  # of a library that Flower uses
            warnings.simplefilter("ignore", DeprecationWarning)
            bundle = build_fab_from_disk(app)
        fab = fab_to_proto(Fab(hashlib.sha256(bundle).hexdigest(), bundle, {}))
        request = StartRunRequest(fab=fab, override_config=user_config_to_proto(dict(config)))
        return int(self._ask("StartRun", request).run_id)

    def finish(self, run_id: int) -> None:
        """Wait for the end of a run, which must be a good one.

        Parameters
        ----------
        run_id : int
            From `submit`.
        """

        def over() -> Any:
            status = self.status(run_id)
            return status if status.status == "finished" else None

        status = wait_for(over, pause_s=0.5)
        if status.sub_status != "completed":
            raise RuntimeError(f"{status.sub_status}: {status.details}\n{self.log('superlink')[-4000:]}")

    def status(self, run_id: int) -> Any:
        """Return how a run is doing.

        Parameters
        ----------
        run_id : int
            From `submit`.
        """
        from flwr.proto.control_pb2 import ListRunsRequest

        return self._ask("ListRuns", ListRunsRequest(run_id=run_id)).run_dict[run_id].status


def write_app(directory: Path, name: str, files: Mapping[str, str], config: str) -> Path:
    """Write a Flower project with `server_app.py` and `client_app.py`; return its directory.

    Parameters
    ----------
    directory : Path
        Where.
    name : str
        Of its package.
    files : mapping of name to text
        Of the package.
    config : str
        The table of its configuration.
    """
    (directory / name).mkdir(parents=True)
    (directory / "pyproject.toml").write_text(
        f"""[project]
name = "{name}"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "nobody"
[tool.flwr.app.components]
serverapp = "{name}.server_app:app"
clientapp = "{name}.client_app:app"
[tool.flwr.app.config]
{config}""",
        encoding="utf-8",
    )
    for file, text in {"__init__.py": "", **files}.items():
        (directory / name / file).write_text(text, encoding="utf-8")
    return directory
