"""Run projects of this directory with `flwr run`: ``python -m examples.run [NAME ...] [--plain]``.

The runner copies a project, applies its `mel.diff`, and makes the devices of the copy slow with
`slow_devices.py`. Everything else is the project's own. The log goes to the terminal.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent
#: How many times slower than the fastest device the four devices are.
UNEQUAL, EQUAL = (1.0, 2.0, 5.0, 10.0), (4.0, 4.0, 4.0, 4.0)
#: Seconds per sample and epoch on the fastest device: more than the real training takes here.
GALLERY = {
    "quickstart_pytorch": 5e-4,
    "sklearn_logreg": 1e-3,
    "huggingface_lora": 2e-3,
    "advanced_pytorch": 5e-4,
    "classic_numpyclient": 1e-3,
    "opacus_dp": 1e-3,
}
_ACCURACY = re.compile(r"round (\d+): accuracy ([\d.]+)")
_PATIENCE_S = 60.0


def copy(name: str, directory: Path, *, wrapped: bool, speeds: tuple[float, ...] | None = UNEQUAL) -> Path:
    """Copy a project, with its diff if it is to be wrapped, and make its devices slow.

    Parameters
    ----------
    name : str
        Of the project.
    directory : Path
        Where to; it must not exist.
    wrapped : bool
        Whether to apply `mel.diff`.
    speeds : tuple of float, optional
        How many times slower than the fastest each device is. None: the devices are not slowed.
    """
    shutil.copytree(ROOT / name, directory, ignore=shutil.ignore_patterns("__pycache__", "outputs"))
    if wrapped:
        # The ceiling keeps git from looking for a repository around the copy.
        env = os.environ | {"GIT_CEILING_DIRECTORIES": str(directory.parent)}
        subprocess.run(["git", "apply", "mel.diff"], cwd=directory, env=env, check=True)
    if speeds is None:
        return directory
    package = _package(directory)
    seconds = tuple(GALLERY[name] * speed for speed in speeds)
    text = (ROOT / "slow_devices.py").read_text()
    (package / "slow_devices.py").write_text(text.replace("SECONDS = (0.0,)", f"SECONDS = {seconds}"))
    client = package / "client_app.py"
    client.write_text(slowed(client.read_text(), package.name))
    return directory


def _package(app: Path) -> Path:
    """Return the package of a project."""
    settings = tomllib.loads((app / "pyproject.toml").read_text())
    component: str = settings["tool"]["flwr"]["app"]["components"]["clientapp"]
    return app / component.partition(".")[0]


def slowed(text: str, package: str) -> str:
    """Return a client_app.py whose ClientApp has `slow_mod` as its innermost mod.

    Parameters
    ----------
    text : str
        The file.
    package : str
        Of the project.
    """
    line = next(line for line in text.splitlines() if line.startswith("app = ClientApp("))
    if line.endswith("])"):
        changed = f"{line[:-2]}, slow_mod])"
    else:
        changed = f"{line[:-1]}{'' if line.endswith('()') else ', '}mods=[slow_mod])"
    return text.replace(line, f"from {package}.slow_devices import slow_mod  # noqa: E402\n\n{changed}")


@dataclass(frozen=True)
class Run:
    """The log of a run.

    Parameters
    ----------
    lines : list of (float, str)
        Seconds since the command started, and the text.
    """

    lines: list[tuple[float, str]]

    @property
    def accuracies(self) -> dict[int, tuple[float, float]]:
        """When each round was evaluated, and the accuracy, from round 1 on."""
        hits = [(seconds, _ACCURACY.search(text)) for seconds, text in self.lines]
        found = {int(hit[1]): (seconds, float(hit[2])) for seconds, hit in hits if hit}
        return {number: value for number, value in found.items() if number}

    @property
    def began_s(self) -> float:
        """When the first device began to train: Ray and the app were loaded before."""
        return next(seconds for seconds, text in self.lines if "the first task of this process" in text)


@contextmanager
def superlink() -> Iterator[dict[str, str]]:
    """Start a SuperLink for simulations. Yield the environment in which `flwr run` finds it."""
    with tempfile.TemporaryDirectory(prefix="mel") as scratch, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        config = f'[superlink]\ndefault = "gallery"\n[superlink.gallery]\naddress = "127.0.0.1:{port}"\n'
        Path(scratch, "config.toml").write_text(f"{config}insecure = true\n")
        binaries = str(Path(sys.executable).parent)
        env = os.environ | {
            "PATH": os.pathsep.join([binaries, os.environ.get("PATH", "")]),
            "FLWR_HOME": scratch,
            "RAY_TMPDIR": scratch,  # short: it is part of the names of sockets
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPYCACHEPREFIX": str(ROOT.parent / "build" / "pycache"),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        env = {
            key: value for key, value in env.items() if key not in ("RAY_ADDRESS", "PYTHONDONTWRITEBYTECODE")
        }
        command = [
            "flower-superlink",
            "--insecure",
            "--simulation",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        command.append("--disable-runtime-dependency-installation")
        with Path(scratch, "log").open("wb") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            _await(f"http://127.0.0.1:{port}/health", process)
            yield env
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def _await(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the SuperLink answers."""
    end = monotonic() + _PATIENCE_S
    while process.poll() is None and monotonic() < end:
        with suppress(OSError), urlopen(address, timeout=2) as answer:
            if answer.status == 200:
                return
        sleep(0.2)
    raise RuntimeError("the SuperLink does not start")


def run(
    app: Path, env: dict[str, str], *, nodes: int = 4, rounds: int | None = None, show: bool = False
) -> Run:
    """Run a project with `flwr run`; raise RuntimeError with its log if it fails.

    Parameters
    ----------
    app : Path
        The project.
    env : dict
        From `superlink`.
    nodes : int
        How many devices there are. All work at once: the slow ones mostly sleep.
    rounds : int, optional
        Instead of the project's own number.
    show : bool
        Whether to print the log.
    """
    federation = f"num-supernodes={nodes} client-resources-num-cpus=1 init-args-num-cpus={nodes}"
    command = ["flwr", "run", str(app), "gallery", "--stream", "--federation-config", federation]
    command += [] if rounds is None else ["--run-config", f"num-server-rounds={rounds}"]
    start, lines = monotonic(), []
    with subprocess.Popen(
        command, env=env, cwd=app, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        for line in process.stdout or ():
            lines.append((monotonic() - start, line.rstrip()))
            if show:
                print(line, end="", flush=True)
    text = "\n".join(line for _, line in lines)
    # `flwr run` returns 0 even if the run failed.
    number = re.search(r"started run (\d+)", text)
    status = ["flwr", "ls", "gallery", "--format", "json", "--run-id", number[1] if number else "0"]
    listed = subprocess.run(status, env=env, cwd=app, capture_output=True, text=True, check=False)
    if "finished:completed" not in listed.stdout:
        raise RuntimeError(f"{app.name} failed: {listed.stdout}\n{text[-6000:]}")
    return Run(lines)


def main() -> None:
    """Run projects one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GALLERY)}; default: all")
    parser.add_argument("--plain", action="store_true", help="without mel.diff")
    parser.add_argument(
        "--equal", action="store_true", help="four equal devices instead of 1, 2, 5, 10 times slower"
    )
    parser.add_argument("--rounds", type=int, help="instead of the project's own number")
    given = parser.parse_args()
    with superlink() as env, tempfile.TemporaryDirectory() as scratch:
        for name in given.names or GALLERY:
            speeds = EQUAL if given.equal else UNEQUAL
            app = copy(name, Path(scratch, name), wrapped=not given.plain, speeds=speeds)
            run(app, env, rounds=given.rounds, show=True)


if __name__ == "__main__":
    main()
