"""What the tests of real processes share: an app whose devices can be slowed down, data."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
FEATURES, CLASSES = 16, 4
#: Where the distribution puts it; without it servers start without their proxy.
HAS_NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin") is not None


def environment(home, **more):
    return os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **more,
    }


DATA_SEEDS = {f"device-{k}": k for k in range(3)}


def blobs(seed, n=400):
    """Draw labelled points around one centre per class; the centres are the same for everybody."""
    centres = np.random.default_rng(99).standard_normal((CLASSES, FEATURES)) * 1.5
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=n)
    return (centres[y] + rng.standard_normal((n, FEATURES))).astype(np.float32), y


def save_data(directory, x, y, prefix=""):
    directory.mkdir(exist_ok=True)
    np.save(directory / f"{prefix}x.npy", x)
    np.save(directory / f"{prefix}y.npy", y)


def make_app(directory, more_config=""):
    """Copy the example app, with devices that can be slowed down."""
    shutil.copytree(DEPLOY / "app", directory, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).with_name("slow_client.py"), directory / "mel_fleet")
    project = directory / "pyproject.toml"
    text = project.read_text()
    assert "mel_fleet.client_app:app" in text
    project.write_text(text.replace("mel_fleet.client_app:app", "mel_fleet.slow_client:app") + more_config)
    return directory
