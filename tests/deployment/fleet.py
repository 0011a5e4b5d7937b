"""docs/DEPLOY.md on one machine: its blocks run in a shell, and this module stands in for ssh and systemd.

`/srv/mel` and the like become directories below one root, the ports become free ones, and services run as
their units say, `Restart=always` included.
"""

import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil

from tests.ports import free_port
from tests.processes import alive, tree
from tests.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).resolve().parents[2]
DEPLOY, PAGE = ROOT / "deploy", ROOT / "docs" / "DEPLOY.md"
BIN = Path(sys.executable).parent
#: Where the distribution puts it. Without it, devices connect to the SuperLink directly.
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
DEVICES = ("pi-1", "pi-2", "pi-3")

_SHIMS = {
    "ssh": 'MACHINE=$1; export MACHINE; shift; exec "$@"',
    "scp": """[ "$1" != -r ] || shift
to=$ROOT/${2%%:*}${2#*:}
mkdir -p "${to%/*}"
exec cp -r "$1" "$to\"""",
    "chown": "",
    "systemctl": 'for unit; do :; done; echo "$MACHINE $unit" >> "$ROOT/systemctl"',
}
_NGINX = """daemon off; pid {0}/pid; error_log stderr; events {{}}
http {{
    access_log off; client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/fastcgi;
    uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi; include {1};
}}"""


def blocks(kind):
    """Return the page's blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Service:
    """A program that is started again some seconds after it ends, as `Restart=always` does, until stopped."""

    def __init__(self, words, env, cwd, log, pause_s):
        self.words, self.env, self.cwd, self.log, self.pause_s = words, env, cwd, log, pause_s
        self._over = threading.Event()
        self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.words, env=self.env, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _keep(self):
        while not self._over.is_set():
            if self.process.poll() is not None and not self._over.wait(self.pause_s):
                self._start()
            self._over.wait(0.1)

    def tree(self):
        """Return the process and what it started."""
        return tree(self.process.pid)

    def signal(self, number):
        """Send a signal to all of them: SIGKILL as a power cut does, SIGTERM as `systemctl restart` does."""
        family = self.tree()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return family

    def stop(self):
        """Ask it and what it started to end, as systemd does; return the processes to wait for."""
        self._over.set()
        self._keeper.join()
        return self.signal(signal.SIGTERM)

    def text(self):
        return self.log.read_text(errors="replace")


class Fleet:
    """A server and three devices, set up by the page's own commands."""

    def __init__(self, root):
        self.root, self.server = root, root / "server"
        self.port = free_port()
        self.door = free_port() if NGINX else self.port
        self.services, self._seen = {}, 0
        for name in ("bin", "etc", "faults", "logs", "data"):
            (root / name).mkdir()
        for name, script in _SHIMS.items():
            path = root / "bin" / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        self.env = os.environ | {
            "HOME": str(root / "home"),
            "ROOT": str(root),
            "MACHINE": "server",
            "PATH": os.pathsep.join([str(root / "bin"), str(BIN), os.environ["PATH"]]),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "MEL_TEST_FAULTS": str(root / "faults"),
            "OPENBLAS_NUM_THREADS": "1",
            "COLUMNS": "200",  # of Flower's tables
        }
        self.env.pop("FLWR_HOME", None)

    def here(self, text):
        """Return commands or files of the server with the paths, ports and hosts of this machine."""
        changes = {
            "/srv/mel(?!-device)": str(self.server),
            "/srv/data": str(self.root / "data"),
            "(?<!name:)/etc/(?:systemd/system|nginx/conf[.]d)/": f"{self.root}/etc/",
            "/opt/mel/bin": str(BIN),
            "listen 8000": f"listen 127.0.0.1:{self.door}",
            r"\b8000\b": str(self.door),
            r"\b8001\b": str(self.port),
            r"mel[.]example[.]org": "localhost",
        }
        for old, new in changes.items():
            text = re.sub(old, new, text)
        return text

    # --- commands -----------------------------------------------------------------------------------

    def shell(self, block, code=0):
        """Run a block of the page, then what it gave to systemd."""
        done = subprocess.run(
            ["sh", "-eu", "-c", self.here(block)],
            cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{block}\n{done.stdout}{done.stderr}"
        self._start_services()
        return done.stdout + done.stderr

    def flwr(self, *words, code=0):
        return self.shell(shlex.join(["flwr", *map(str, words)]), code)

    # --- services -------------------------------------------------------------------------------------

    def _start_services(self):
        log = self.root / "systemctl"
        asked = log.read_text().splitlines() if log.exists() else []
        for line in asked[self._seen :]:
            machine, unit = line.split()
            {"superlink": self._superlink, "nginx": self._nginx, "supernode": self._supernode}[unit](machine)
        self._seen = len(asked)

    def _superlink(self, machine):
        assert machine == "server"
        self._run("superlink", *self._unit(self.root / "etc" / "superlink.service"))
        wait_for(lambda: self.status(self.port, "/health") == 200)

    def _nginx(self, machine):
        assert machine == "server"
        if NGINX is None:
            return
        installed, place = self.root / "etc" / "mel.conf", self.root / "proxy"
        installed.write_text(self.here(installed.read_text()))
        place.mkdir()
        (place / "nginx.conf").write_text(_NGINX.format(place, installed))
        self._run("nginx", [NGINX, "-e", "stderr", "-p", place, "-c", place / "nginx.conf"], {})
        wait_for(lambda: self.status(self.door, "/") == 403)

    def _supernode(self, machine):
        own = self.root / machine
        self._run(machine, *self._unit(own / "etc/systemd/system/supernode.service", own))
        wait_for(lambda: self.node_id(machine))

    def _unit(self, path, own=None):
        """Return the command line and environment of a unit, and the seconds until it is started again."""
        text = path.read_text().replace("\\\n", " ")
        if own is not None:
            text = text.replace("/srv/mel-device", f"{own}/srv/mel-device").replace("9094", str(free_port()))
        text = self.here(text)
        assert "\nRestart=always\n" in text
        env = dict(line.split("=", 1) for line in re.findall("^Environment=(.*)$", text, re.MULTILINE))
        for file in re.findall("^EnvironmentFile=(.*)$", text, re.MULTILINE):
            env |= dict(word.split("=", 1) for word in shlex.split(Path(file).read_text()))
        (command,) = re.findall("^ExecStart=(.*)$", text, re.MULTILINE)
        words = [re.sub(r"\$\{(\w+)\}", lambda found: env[found[1]], word) for word in command.split()]
        return words, env, float(re.search("^RestartSec=(.*)$", text, re.MULTILINE)[1])

    def _run(self, name, words, env, pause_s=1.0):
        """Start a service; what Python compiles is shared by all, so that it is compiled once."""
        env = self.env | env | {k: os.environ[k] for k in ("PYTHONPYCACHEPREFIX",) if k in os.environ}
        env["PATH"] = f"{env['PATH']}{os.pathsep}{os.environ['PATH']}"
        log = self.root / "logs" / f"{name}.log"
        self.services[name] = Service(list(map(str, words)), env, self.server, log, pause_s)

    def node_id(self, name):
        """Return the node id of a device, once the server has accepted it."""
        found = re.findall(r"SuperNode ID: (\d+)", self.services[name].text())
        return found[-1] if found else None

    def status(self, port, path, data=None):
        """Return the status of an HTTPS request; None if nothing answers."""
        context = ssl.create_default_context(cafile=self.server / "ca.pem")
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # as newer Pythons do
        try:
            with urlopen(Request(f"https://localhost:{port}{path}", data), context=context) as answer:
                return answer.status
        except HTTPError as error:
            return error.code
        except OSError:
            return None

    def stop(self):
        """End everything that was started, devices first: they take their leave of the server."""
        devices = [name for name in self.services if name in DEVICES]
        for names in (devices, [name for name in self.services if name not in DEVICES]):
            family = [process for name in names for process in self.services[name].stop()]
            end_at = time.monotonic() + 10
            while any(map(alive, family)) and time.monotonic() < end_at:
                time.sleep(0.1)
            for process in filter(alive, family):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            for name in names:
                self.services[name].process.wait()

    # --- runs -------------------------------------------------------------------------------------------

    def fault(self, name, **fault):
        """Set what a device does from its next training on."""
        for old in ("holds", "go"):
            (self.root / "faults" / f"{name}.{old}").unlink(missing_ok=True)
        (self.root / "faults" / f"{name}.json").write_text(json.dumps(fault))

    def holds(self, name):
        return (self.root / "faults" / f"{name}.holds").exists()

    def release(self, name):
        (self.root / "faults" / f"{name}.go").touch()

    def app(self):
        """Return a copy of the example app whose devices can have faults."""
        app = self.root / "app"
        if not app.exists():
            shutil.copytree(DEPLOY / "app", app, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(Path(__file__).with_name("odd_client.py"), app / "mel_fleet")
            project = app / "pyproject.toml"
            text = project.read_text()
            assert "mel_fleet.client_app:app" in text
            project.write_text(text.replace("mel_fleet.client_app:app", "mel_fleet.odd_client:app"))
        return app

    def begin(self, name, **config):
        """Start a run of the app with faults; return its id."""
        words = {"devices": len(DEVICES), "features": 16, "hidden": 8, "classes": 4, "data-dir": "synthetic"}
        words |= {"run-dir": str(self.root / name)} | {k.replace("_", "-"): v for k, v in config.items()}
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in words.items())
        said = self.flwr("run", self.app(), "fleet", "--run-config", pairs)
        return re.search(r"started run (\d+)", said)[1]

    def ending(self, run):
        """Return how a run has ended; None while it goes on."""
        told = self.flwr("ls", "fleet", "--run-id", run, "--format", "json")
        (found,) = json.loads(told[told.index("{") : told.rindex("}") + 1])["runs"]
        return found["status"] if found["status"].startswith("finished") else None

    def during(self, run, what):
        """Wait until something is true; it is an error if the run ends before."""

        def came():
            for _ in range(100):
                if what():
                    return True
                time.sleep(0.2)
            assert not self.ending(run), self.flwr("log", run, "fleet", "--show")
            return False

        wait_for(came)

    def finish(self, run):
        """Wait for the end of a run, which must have succeeded."""
        # Asked seldom: each question is a process of Flower's.
        status = wait_for(lambda: self.ending(run), pause_s=3.0)
        assert status == "finished:completed", self.flwr("log", run, "fleet", "--show")
