"""Settings, profiles and the tasks that are learnt."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from mel_simulation.arena import setting
from mel_simulation.arena.setting import Setting, read_profile
from mel_simulation.arena.tasks import cifar, task_of
from mel_simulation.scenario.data import DataError

from flwr_mel._validate import InputError

PROFILES = Path(setting.__file__).parent / "profiles"


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_profiles_that_come_along_can_be_read(path):
    profile = read_profile(path)
    assert len({setting.name for setting in profile.settings}) == len(profile.settings)
    assert profile.tuning_seed not in profile.seeds


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("task = 'iris'", "task must be one of"),
        ("task = 'digits'\nfleet = 'mars'", "fleet must be one of"),
        ("task = 'digits'\nsplit = 'often'", "often"),
        ("task = 'digits'\nspeed = 3", "'speed'"),
        ("", "'task'"),
        ("task =", "Invalid value"),
    ],
)
def test_unknown_keys_and_names_in_a_profile_are_named(tmp_path, line, words):
    path = tmp_path / "bad.toml"
    path.write_text(f"seeds = [0]\n[[setting]]\nname = 'a'\ntitle = 'A'\n{line}")
    with pytest.raises(InputError, match=f"^profile must be made of known keys and names .*{words}"):
        read_profile(path)


TEXT = "".join(
    f"{name}:\n{'To be, or not to be, that is the question. ' * 12}\n\n"
    for name in ("HAMLET", "First Lord", "LEAR")
)


def test_shakespeare_is_cut_by_speakers(tmp_path):
    (tmp_path / "tinyshakespeare.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    task = task_of("shakespeare", str(tmp_path), 0)
    setting = Setting("a", "A", "shakespeare", split="speakers", learners=3, data_dir=str(tmp_path))
    parts = setting.parts(0)
    assert [len(set(task.labels[part])) for part in parts] == [1, 1, 1]
    start = task.initial(0)
    new, loss = task.train(start, np.arange(len(task.labels)), 3, np.random.default_rng(0), 0.0)
    later = task.train(new, np.arange(len(task.labels)), 1, np.random.default_rng(0), 0.0)[1]
    assert later < loss
    assert 0 <= task.accuracy(new) <= 1


def test_missing_data_are_named_with_the_remedy(tmp_path):
    with pytest.raises(DataError, match=r"shakespeare is not available: .*Put tinyshakespeare\.txt"):
        task_of("shakespeare", str(tmp_path), 0)
    with pytest.raises(DataError, match=r"cifar10 is not available: .*Put cifar-10-batches-py"):
        task_of("cifar10", str(tmp_path), 0)


@pytest.fixture
def pictures(monkeypatch):
    """A hundred images in place of CIFAR-10 whose label can be seen: the place of a bright stripe."""
    labels = np.arange(100) % 10
    images = np.random.default_rng(0).integers(0, 100, (100, 32, 32, 3), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[3 * label : 3 * label + 3] += 150
    monkeypatch.setattr(cifar, "_read", lambda *_, **__: (images, labels))
    task_of.cache_clear()
    yield images
    task_of.cache_clear()


def test_cifar_is_cut_into_squares_of_four_patches():
    images = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    images[0, 8:12, 20:24] = 255  # third row of patches, sixth column: square (1, 2), its upper right one
    lit = cifar._patches(images)[0] > 0
    assert lit.any(-1).nonzero().tolist() == [[6, 1]]
    assert lit[6, 1].all()


def test_the_network_is_the_convolutional_one_that_torch_would_build():
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    ours = cifar.network()
    with torch.no_grad():
        for p in ours.parameters():  # norms begin with ones and zeros, which could be in any order
            p.copy_(torch.from_numpy(rng.normal(0, 0.2, p.shape)))
    first, norm, _, _, second, later, *_, hidden, _, last = ours
    torchs = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 4, 4),
        torch.nn.GroupNorm(1, 32),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 2, 2),
        torch.nn.GroupNorm(1, 64),
        torch.nn.ReLU(),
    )
    kernels = first.weight.reshape(32, 4, 4, 3).permute(0, 3, 1, 2)
    pairs = second.weight.reshape(64, 2, 2, 32).permute(0, 3, 1, 2)
    same = (kernels, first.bias, norm.weight, norm.bias, pairs, second.bias, later.weight, later.bias)
    torch.nn.utils.vector_to_parameters(torch.cat([w.flatten() for w in same]), torchs.parameters())
    pixels = (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.47) / 0.25
    flat = torchs(pixels).permute(0, 2, 3, 1).flatten(1)
    wanted = last(torch.relu(hidden(flat))).detach().numpy()
    assert ours(cifar._patches(images)).detach().numpy() == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("proximal", [0.0, 0.5])
def test_training_is_plain_sgd_with_a_smaller_step_for_a_short_batch(pictures, proximal):
    task, rows = task_of("cifar10", "", 0), np.arange(40)
    found, loss = task.train(task.initial(0), rows, 2, np.random.default_rng(1), proximal)
    model, rng, losses = task.build(), np.random.default_rng(1), []
    start = [torch.from_numpy(w) for w in task.initial(0)]
    torch.nn.utils.vector_to_parameters(torch.cat([w.flatten() for w in start]), model.parameters())
    for _ in range(2):
        for part in torch.split(torch.from_numpy(rows[rng.permutation(40)]), task.batch):
            step = task.lr * len(part) / task.batch
            x, y = (each[part] for each in task.training)
            some = torch.nn.functional.cross_entropy(model(x), y)
            model.zero_grad()
            some.backward()
            torch.optim.SGD(model.parameters(), step).step()
            with torch.no_grad():
                for p, w in zip(model.parameters(), start, strict=True):
                    p.copy_((p + step * proximal * w) / (1 + step * proximal))
            losses.append(some.item() * len(part))
    for p, w in zip(model.parameters(), found, strict=True):
        assert p.detach().numpy() == pytest.approx(w, abs=1e-5)
    assert loss == pytest.approx(sum(losses[2:]) / 40, rel=1e-4)


def test_the_costs_of_cifar_are_counted(pictures):
    task = task_of("cifar10", "", 50)
    assert len(task.labels) == 50
    assert task.workload.model_parameters == sum(w.size for w in task.initial(0))
