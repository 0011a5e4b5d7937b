"""The data: every place they come from, damage, and the split among learners."""

import gzip
import hashlib
import http.server
import struct
import sys
import threading
from functools import partial

import numpy as np
import pytest
from mel_simulation.scenario.data import FILES, NOTICE, DataError, embedded, load
from mel_simulation.scenario.partition import partition

from tests.mnist import FULL_MNIST, needs_mnist


def contents():
    """Four small files of real digits."""
    d = embedded()
    images = [x.reshape(-1, 28, 28) for x in (d.train_x[:50], d.test_x[:20])]
    arrays = (images[0], d.train_y[:50], images[1], d.test_y[:20])
    heads = [struct.pack(f">{1 + a.ndim}I", 0x0800 + a.ndim, *a.shape) for a in arrays]
    return {name: head + a.tobytes() for name, head, a in zip(FILES, heads, arrays, strict=True)}


def write(directory, files, gz=False):
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = directory / (f"{name}.gz" if gz else name)
        path.write_bytes(gzip.compress(content, 1) if gz else content)
    return directory


def assert_small(d):
    full = embedded()
    for name, n in (("train_x", 50), ("train_y", 50), ("test_x", 20), ("test_y", 20)):
        np.testing.assert_array_equal(getattr(d, name), getattr(full, name)[:n])
    assert not d.embedded


def test_the_embedded_subset_announces_itself():
    d = load("mnist")
    assert d.embedded
    assert d.notice.startswith("EMBEDDED SUBSET: 4000 training and 1000 test digits, not the full MNIST.")
    assert "FLWR_MEL_OFFLINE=1 is set" in d.notice
    assert np.bincount(d.train_y).tolist() == [400] * 10
    assert np.bincount(d.test_y).tolist() == [100] * 10
    digest = hashlib.sha256(b"".join(a.tobytes() for a in (d.train_x, d.train_y, d.test_x, d.test_y)))
    assert digest.hexdigest() == "8a7adbe9b5c3bf456972a9db198d6c8526b57b03b4d3d1190db7a3eb54556f54"


def test_where_the_subset_will_not_do_the_remedy_is_named():
    with pytest.raises(DataError, match=r"FLWR_MEL_OFFLINE=1.*data directory"):
        load("mnist", offline_ok=False)
    with pytest.raises(DataError, match=r"fashion-mnist is not available.*train-images-idx3-ubyte"):
        load("fashion-mnist")


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("below", ["", "MNIST/raw"])
def test_data_directory(tmp_path, gz, below):
    write(tmp_path / "d" / below, contents(), gz)
    d = load("mnist", tmp_path / "d")
    assert_small(d)
    assert d.notice == ""


def test_the_cache_is_used_when_complete(tmp_path):
    raw = write(tmp_path / "cache" / "MNIST" / "raw", contents())
    assert_small(load("mnist"))
    (raw / FILES[3]).unlink()
    assert load("mnist").embedded


SMALLER = struct.pack(">4I", 0x803, 20, 14, 28)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (0, lambda c: c[:-100], "cannot be read"),
        (0, lambda c: c[:7], "cannot be read"),
        (1, lambda c: c[:-1] + b"\x0a", "with labels 0 to 9"),
        (1, lambda c: struct.pack(">2I", 0x801, 49) + c[9:], "does not hold 28x28 images"),
        (2, lambda c: SMALLER + c[16 : 16 + 20 * 14 * 28], "does not hold 28x28"),
    ],
)
def test_damaged_files(tmp_path, name, change, message):
    files = contents()
    files[FILES[name]] = change(files[FILES[name]])
    with pytest.raises(DataError, match=message):
        load("mnist", write(tmp_path / "d", files))


def test_missing_files_and_damaged_archives(tmp_path):
    with pytest.raises(DataError, match="has neither train-images-idx3-ubyte nor"):
        load("mnist", tmp_path)
    (tmp_path / f"{FILES[0]}.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz cannot be read.*Fetch it again"):
        load("mnist", tmp_path)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A web server with small files, and torchvision's class pointed at it."""
    from torchvision.datasets import FashionMNIST

    directory = write(tmp_path / "mirror", contents(), gz=True)
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    resources = [(p.name, hashlib.md5(p.read_bytes()).hexdigest()) for p in sorted(directory.iterdir())]
    monkeypatch.setattr(FashionMNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
    monkeypatch.setattr(FashionMNIST, "resources", resources)
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "0")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield directory
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_download_is_checked_and_kept(mirror, monkeypatch):
    page = (mirror / f"{FILES[3]}.gz").read_bytes()
    (mirror / f"{FILES[3]}.gz").write_bytes(b"an error page")
    with pytest.raises(DataError, match="fashion-mnist is not available"):
        load("fashion-mnist")
    (mirror / f"{FILES[3]}.gz").write_bytes(page)
    assert_small(load("fashion-mnist"))
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "1")
    assert_small(load("fashion-mnist"))


def test_what_is_wrong_with_torchvision_is_told(monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("torchvision"):
                raise RuntimeError("operator torchvision::nms does not exist")

    for name in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "0")
    with pytest.raises(DataError, match=r"operator torchvision::nms does not exist"):
        load("fashion-mnist")
    assert "nms does not exist" in load("mnist").notice
    monkeypatch.setenv(NOTICE, "the command's own reason")
    assert load("mnist").notice == "the command's own reason"


@needs_mnist
def test_full_mnist():
    d = load("mnist", FULL_MNIST)
    assert d.train_x.shape == (60_000, 784)
    rows = {row.tobytes() for row in np.concatenate((d.train_x, d.test_x))}
    assert {row.tobytes() for row in embedded().test_x} <= rows


LABELS = np.random.default_rng(1).integers(0, 10, 4000).astype(np.uint8)


@pytest.mark.parametrize("alpha", [None, 0.1])
@pytest.mark.parametrize("parts", [1, 20])
def test_a_partition_covers_everything_once(alpha, parts):
    found = partition(LABELS, parts, alpha, seed=3)
    assert len(found) == parts
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(len(LABELS)))
    again, other = (partition(LABELS, parts, alpha, seed=seed) for seed in (3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(found, other, strict=True))


def skew(parts):
    """Mean distance of the parts' label shares from the even share."""
    shares = [np.bincount(LABELS[p], minlength=10) / len(p) for p in parts]
    return np.mean([np.abs(s - 0.1).sum() for s in shares])


def test_labels_are_the_more_uneven_the_smaller_alpha_is():
    levels = [skew(partition(LABELS, 20, alpha, seed=0)) for alpha in (None, 10.0, 1.0, 0.1)]
    assert levels == sorted(levels)
    assert levels[-1] > 3 * levels[0]
    assert min(len(p) for p in partition(LABELS, 20, 0.1, seed=0)) >= 10


def test_a_partition_that_cannot_be_says_so():
    with pytest.raises(ValueError, match=r"alpha must be large enough.*Raise alpha"):
        partition(LABELS, 400, 0.01, seed=0)
    with pytest.raises(ValueError, match=r"parts must be at most the number of samples \(4000\)"):
        partition(LABELS, 4001, None, seed=0)
