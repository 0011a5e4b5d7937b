"""The full MNIST, where the simulation keeps its downloads: tests that need it are skipped without it."""

import pytest
from mel_simulation.scenario.data import cache_dir

FULL_MNIST = cache_dir() / "MNIST" / "raw"

found = any(FULL_MNIST.glob("train-images*"))
needs_mnist = pytest.mark.skipif(not found, reason=f"the full MNIST is not in {FULL_MNIST}")
