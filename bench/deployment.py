"""From nothing to the first trained cycle: ``python -m bench.deployment [--devices 4]``.

Walks the commands of docs/DEPLOY.md on the loopback, all machines being this one: the server, bundles,
devices (all at once, as different machines would), `flwr run`. Writes a section of docs/BENCHMARKS.md and
bench/results/deployment.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.tables import PAGE, table, write_section
from flwr_mel.deployment.bundles import Bundle
from flwr_mel.deployment.place import ServerPlace
from flwr_mel.deployment.running import free_port, stop_holder

RESULTS = Path(__file__).parent / "results" / "deployment.json"
APP = Path(__file__).parent.parent / "deploy" / "app"
FEATURES, CLASSES, SAMPLES = 784, 10, 1000
_LOOK_S = 0.2
_TOOLS = ("flwr", "flwr-mel", "flower-superlink", "flower-supernode", "flwr-serverapp", "flwr-clientapp")
#: Seconds after which nobody expects a cycle any more.
_PATIENCE_S = 1800.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="b-") as scratch:
        found = walk(Path(scratch), args.devices)
    found |= {"devices": args.devices, "cores": os.cpu_count() or 1, "load_before": load}
    print(report(found))
    if not args.no_write:
        write_section(PAGE, "deployment", report(found))
        RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def walk(root: Path, devices: int) -> dict[str, Any]:
    """Return how long each kind of command took, and when the first cycle was trained."""
    rng, data = np.random.default_rng(0), root / "data"
    data.mkdir()
    np.save(data / "x.npy", rng.random((SAMPLES, FEATURES), np.float32))
    np.save(data / "y.npy", rng.integers(CLASSES, size=SAMPLES))
    place, run_dir = ServerPlace(root / "server"), root / "run"
    # Installed as on the page, that is by pip, which compiles.
    for tool in _TOOLS:
        subprocess.run([_tool(tool), "--help"], env=env(root), check=True, capture_output=True)
    begin = time.monotonic()
    with living(place):
        ports = ["--host", "127.0.0.1", "--port", str(free_port()), "--control-port", str(free_port())]
        up = timed(root, "server", "up", str(place.root), "localhost", *ports, "--run", "background")
        made = timed(root, "server", "devices", str(place.root), str(devices), "--set", f"data-dir={data}")
        names = sorted(path.name for path in place.bundles.iterdir())
        start = [("device", "start", str(place.bundles / name), "--run", "background") for name in names]
        began = time.monotonic()
        processes = [spawn(root, *words) for words in start]
        findings = [finish(process)["findings"] for process in processes]
        started = time.monotonic() - began
        memory = sum(resident(place, name) for name in names) / devices
        config = f'devices={devices} cycles=1 cycle-time=60.0 max-epochs=5 run-dir="{run_dir}"'
        began = time.monotonic()
        words = ["run", str(APP), "fleet", "--run-config", config]
        subprocess.run([_tool("flwr"), *words], env=env(root), check=True, capture_output=True)
        client = wait_for_record(run_dir / "records.jsonl", place, names)
        trained, total = time.monotonic() - began, time.monotonic() - begin
    ready = [
        float(one["detail"].split()[-2]) for some in findings for one in some if one["what"] == "start-up"
    ]
    return {
        "server_up_s": up,
        "bundles_s": made,
        "devices_start_s": started,
        "run_to_first_cycle_s": trained,
        "total_s": total,
        "client_start_s": float(np.median(ready)),
        "device_mb": memory,
        "client_mb": client,
    }


def wait_for_record(path: Path, place: ServerPlace, names: list[str]) -> float:
    """Wait for the first cycle; return what a client process took of memory at most, in MB."""
    most, give_up = 0.0, time.monotonic() + _PATIENCE_S
    idle = {name: {child.pid for child in family(place, name)} for name in names}
    while not path.exists() or not path.read_text(encoding="utf-8").endswith("\n"):
        if time.monotonic() > give_up:
            raise RuntimeError(f"no cycle: {place.log.read_text(encoding='utf-8')[-3000:]}")
        for name in names:
            new = [each for each in family(place, name) if each.pid not in idle[name]]
            most = max([most, *map(megabytes, new)])
        time.sleep(_LOOK_S)
    return most


def family(place: ServerPlace, name: str) -> list[psutil.Process]:
    """Return a device's processes."""
    try:
        head = psutil.Process(int(Bundle(place.bundles / name).lock.read_text(encoding="ascii")))
        return [head, *head.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def resident(place: ServerPlace, name: str) -> float:
    """Return what a device without work takes of memory, in MB."""
    return sum(map(megabytes, family(place, name)))


def megabytes(process: psutil.Process) -> float:
    """Return a process's memory; what it shares with others counts once each."""
    try:
        return float(process.memory_info().rss) / 1e6
    except psutil.NoSuchProcess:
        return 0.0


@contextmanager
def living(place: ServerPlace) -> Iterator[None]:
    """End everything afterwards."""
    try:
        yield
    finally:
        for path in place.bundles.glob("*"):
            stop_holder(Bundle(path).lock)
        stop_holder(place.lock)


def env(root: Path) -> dict[str, str]:
    """Return the environment of an operator."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    own = {"PATH": path, "FLWR_HOME": str(root / "home"), "PYTHONPYCACHEPREFIX": str(root / "pycache")}
    others = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**others, **quiet, **own}


def _tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def spawn(root: Path, *words: str) -> subprocess.Popen[str]:
    """Start one of our commands."""
    own = {key: value for key, value in env(root).items() if key != "FLWR_HOME" or words[0] == "server"}
    command = [_tool("flwr-mel"), *words, "--json"]
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> Any:
    """Wait for a command and return what it says."""
    out, err = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args!r}: {out}{err}")
    return json.loads(out)


def timed(root: Path, *words: str) -> float:
    """Run one of our commands; return the seconds."""
    start = time.monotonic()
    finish(spawn(root, *words))
    return time.monotonic() - start


def report(found: dict[str, Any]) -> str:
    """Return the section."""
    busy = found["load_before"] > found["cores"] / 2
    state = f"load {found['load_before']:.1f} on {found['cores']} cores before it began" + (
        ": **the machine was busy**, so this is not what an idle one takes" if busy else ": idle"
    )
    rows = [
        ["`flwr-mel server up`: certificates, SuperLink, proxy, both well", found["server_up_s"]],
        [f"`flwr-mel server devices {found['devices']}`: bundles, keys registered", found["bundles_s"]],
        [
            f"`flwr-mel device start`, {found['devices']} at once: looked at and taken",
            found["devices_start_s"],
        ],
        ["`flwr run` until the first cycle is trained and on record", found["run_to_first_cycle_s"]],
        ["**from nothing to the first trained cycle**", found["total_s"]],
    ]
    return (
        "## From nothing to the first trained cycle\n\n"
        f"The walk of [DEPLOY.md](DEPLOY.md) on the loopback, {found['devices']} devices on one machine; "
        f"{state}. Part of the last step is the cycle's own work.\n"
        "Generated by `python -m bench.deployment`.\n\n"
        + table(["command", "seconds"], [[name, f"{seconds:.0f}"] for name, seconds in rows])
        + f"\n\nA client process was ready after {found['client_start_s']:.1f} s (median; Flower refuses one "
        f"that takes more than 30 s).\nA device without work took {found['device_mb']:.0f} MB of memory "
        "(SuperNode, helper, and the process that forks), a client process of the example app "
        f"{found['client_mb']:.0f} MB more."
    )


if __name__ == "__main__":
    main()
