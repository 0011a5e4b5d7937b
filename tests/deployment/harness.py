"""Real SuperLinks and SuperNodes on loopback, started by our own commands."""

import hashlib
import json
import os
import signal
import subprocess
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.request import urlopen

from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from flwr_mel._processes import end, tree
from flwr_mel.deployment import serving
from flwr_mel.deployment.bundles import Bundle, DeviceSettings, make_bundle
from flwr_mel.deployment.place import ServerPlace, ServerSettings
from flwr_mel.deployment.running import ourselves
from tests.deployment.tools import (
    BIN,
    CLASSES,
    DATA_SEEDS,
    FEATURES,
    HAS_NGINX,
    blobs,
    environment,
    make_app,
    save_data,
)
from tests.ports import free_port
from tests.tools.commands import run
from tests.waiting import PATIENCE_S, wait_for


class Federation:
    """One SuperLink, its SuperNodes, and runs on them. With nginx, devices come in through it."""

    def __init__(self, root, *, secure=True):
        self.root, self.secure, self.port = root, secure, free_port()
        self.device_port = free_port() if secure and HAS_NGINX else self.port
        self.place = ServerPlace(root / "server")
        self.settings = (
            ServerSettings(
                ("localhost",), "127.0.0.1", self.device_port, self.port, proxy=HAS_NGINX, connection="fleet"
            )
            if secure
            else None
        )
        self.state = self.place.state if secure else root / "state"
        self.superlink = None
        self.nodes = {}
        self.logs = root / "logs"
        self.logs.mkdir(parents=True)
        self.state.mkdir(parents=True)
        self.app = make_app(root / "app")
        self.started = []

    def app_declaring(self, c2, c0):
        """Return the app in which every device declares these costs, so that a plan can be repeated."""
        directory = self.root / f"declared-{c2}-{c0}"
        zeros = "".join(f"mel-{name} = 0.0\n" for name in ("c1", "g2", "g1", "g0"))
        return (
            directory if directory.exists() else make_app(directory, f"mel-c2 = {c2}\nmel-c0 = {c0}\n{zeros}")
        )

    # --- server ------------------------------------------------------------------------------------

    def start_superlink(self):
        env = environment(self.root / "superlink-home")
        if self.secure:
            ports = ["--host", "127.0.0.1", "--port", self.device_port, "--control-port", self.port]
            proxy = [] if HAS_NGINX else ["--without-proxy"]
            words = ourselves(
                "server", "up", self.place.root, "localhost", *ports, *proxy, "--run", "foreground"
            )
        else:
            options = f"--insecure --host 127.0.0.1 --port {self.port}"
            quick = "--disable-runtime-dependency-installation"
            words = [BIN / "flower-superlink", *options.split(), quick]
        self.superlink = self._spawn("superlink", words, env)
        wait_for(self._healthy)
        return self

    def _healthy(self):
        assert self.superlink.poll() is None, self.log("superlink")
        if self.secure:
            return self.place.ca.exists() and serving.is_well(self.place, self.settings)
        with suppress(OSError), urlopen(f"http://localhost:{self.port}/health", timeout=2) as answer:
            return answer.status == 200

    def kill_superlink(self):
        self._kill(self.superlink)

    # --- devices -----------------------------------------------------------------------------------

    def add_nodes(self, paces):
        """Make devices with data and keys, register them all, start them."""
        self.paces = paces
        self.reset_paces()
        for name in paces:
            x, y = blobs(DATA_SEEDS[name])
            save_data(self.root / f"data-{name}", x, y)
            self.nodes[name] = None
        if self.secure:
            self.register(*paces)
        for name in paces:
            self.start_node(name)
        self.wait_for_nodes()
        return self

    def register(self, *names):
        """Make bundles and register their keys, all in one command."""
        run("server", "devices", self.place.root, *names, "--set", f"data-dir={self.root}/data-{{name}}")

    def bundle(self, name):
        return Bundle(self.place.bundles / name)

    def make_stranger(self, name):
        """Make a bundle of which the server knows nothing."""
        make_bundle(self.bundle(name), DeviceSettings(name, self.settings.address), self.place.ca, None)

    def start_node(self, name):
        env = environment(self.root / f"home-{name}", MEL_TEST_PACE=str(self.root / f"pace-{name}"))
        if self.secure:
            words = ourselves("device", "start", self.bundle(name).root, "--run", "foreground")
        else:
            options = f"--insecure --superlink 127.0.0.1:{self.port} --host 127.0.0.1 --port {free_port()}"
            # It knows nothing but its place.
            place = f"partition-id={list(self.paces).index(name)} num-partitions={len(self.paces)}"
            words = [BIN / "flower-supernode", *options.split(), "--node-config", place]
        self.nodes[name] = self._spawn(name, words, env)
        return self.nodes[name]

    def pace(self, name, *seconds, real=False):
        """Set how long a device takes per sample and epoch in its next trainings; the last number stays."""
        (self.root / f"pace-{name}").write_text(json.dumps({"seconds": seconds, "real": real}))

    def release(self, name):
        """Let a device finish a training of negative pace."""
        (self.root / f"pace-{name}.go").touch()

    def works_at(self, name, seconds):
        """Whether a device has begun a training at a pace."""
        path = self.root / f"pace-{name}.now"
        return path.exists() and path.read_text() == repr(seconds)

    def reset_paces(self):
        for name, seconds in self.paces.items():
            self.pace(name, seconds)

    def kill_node(self, name):
        self._kill(self.nodes[name])

    def revive_node(self, name):
        """Start a device again, as systemd does, until the server takes it; return its node id."""
        end_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_at:
            mark = len(self.log(name))
            process = self.start_node(name)
            while process.poll() is None and time.monotonic() < end_at:
                if "SuperNode ID:" in self.log(name)[mark:]:
                    return self.node_id(name)
                time.sleep(0.5)
            time.sleep(2)
        raise AssertionError(f"{name} is not taken back:\n{self.log(name)[-3000:]}")

    def node_id(self, name):
        lines = [line for line in self.log(name).splitlines() if "SuperNode ID:" in line]
        return lines[-1].rsplit(" ", 1)[-1] if lines else None

    def wait_for_nodes(self):
        def taken():
            for name, process in self.nodes.items():
                assert process.poll() is None, self.log(name)[-3000:]
            return all(self.node_id(name) for name in self.nodes)

        wait_for(taken)

    def online(self):
        """Return the node ids that the server takes for present: those that a run sends work to."""
        nodes = self._ask("ListNodes", ListNodesRequest()).nodes_info
        return {str(node.node_id) for node in nodes if node.status == "online"}

    def unregister(self, name):
        """Have the server forget a device at once; one that only ends stays present for up to a minute."""
        for node in self._ask("ListNodes", ListNodesRequest()).nodes_info:
            if node.name == name and node.status != "unregistered":
                self._ask("UnregisterNode", UnregisterNodeRequest(node_id=node.node_id))

    # --- runs ----------------------------------------------------------------------------------------

    #: The reference averages by d_k alone.
    plain: ClassVar = {"max_share": 1.0, "max_norm_ratio": 0.0}

    def _with_defaults(self, config):
        network = {"features": FEATURES, "hidden": 8, "classes": CLASSES}
        return network | {"devices": len(self.nodes), "stragglers": "keep"} | self.plain | config

    def submit(self, app=None, **config):
        """Start a run of the example app; return its id."""
        words = {key.replace("_", "-"): value for key, value in self._with_defaults(config).items()}
        return self.start_run(app or self.app, words)

    def start_run(self, app, words):
        """Start a run as `flwr run` does, without the seconds that a new process takes; return its id."""
        with warnings.catch_warnings():  # of a library that Flower uses
            warnings.simplefilter("ignore", DeprecationWarning)
            bundle = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        request = StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(words))
        return str(self._ask("StartRun", request).run_id)

    def status(self, run_id):
        """Ask over the Control API, as `flwr ls` does, without the seconds that a new process takes."""
        return self._ask("ListRuns", ListRunsRequest(run_id=int(run_id))).run_dict[int(run_id)].status

    def _ask(self, method, request, port=None):
        certificate = self.place.ca.read_bytes() if self.secure else None
        client = ControlHttpClient.from_server_address(
            server_address=f"localhost:{port or self.port}",
            insecure=not self.secure,
            root_certificates=certificate,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )
        try:
            return getattr(client, method)(request)
        finally:
            client.close()

    def stop_run(self, run_id):
        self._ask("StopRun", StopRunRequest(run_id=int(run_id)))

    def finish(self, run_id):
        """Wait for the end of a run; return how it ended and the details."""

        def over():
            status = self.status(run_id)
            return status if status.status == "finished" else None

        status = wait_for(over, pause_s=1.0)
        return status.sub_status, status.details

    def complete(self, app=None, **config):
        status, details = self.finish(self.submit(app, **config))
        assert status == "completed", f"{status}: {details}\n{self.log('superlink')[-4000:]}"

    def serverapp_pids(self):
        """Return the process ids of ServerApps; Flower starts a second one if the first is slow to report."""
        found = []
        for seen in tree(self.superlink.pid):
            with suppress(OSError):
                words = Path(f"/proc/{seen.pid}/cmdline").read_bytes().split(b"\0")
                if any(Path(os.fsdecode(word)).name == "flwr-serverapp" for word in words[:3]):
                    found.append(seen.pid)
        return found

    # --- processes ---------------------------------------------------------------------------------

    def log(self, name):
        path = self.logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _spawn(self, name, command, env):
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                list(map(str, command)),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.state,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def _kill(self, process):
        """End a process and what it started, as a power cut does.

        All are stopped first: nginx would put another in the place of one that is killed before it.
        """
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for seen in tree(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(seen.pid, how)
        process.wait(PATIENCE_S)

    def stop(self):
        for process in reversed(self.started):
            if process.poll() is None:
                end(process)
