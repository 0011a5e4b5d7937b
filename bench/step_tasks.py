"""Federated tasks for `bench.step`: small networks and data, and clients whose local steps run together.

All clients of a round take their n-th local step in one call of torch, so that a round takes milliseconds.
They have unequal work: 1, 2 or 4 batches, as a plan for unequal devices gives them.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from mel_simulation.scenario.data import embedded, load
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

Arrays = dict[str, npt.NDArray[Any]]
Samples = tuple[Tensor, Tensor]

#: State of BatchNorm, in the order of its buffers.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_MOST_BATCHES = 4
_TRAINING, _TEST = 12_000, 1_000


# --- networks --------------------------------------------------------------------------------------------


class BatchNorm(nn.Module):
    """BatchNorm that leaves the update of its statistics to the loop."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        for name, x in zip(
            STATISTICS, (torch.zeros(channels), torch.ones(channels), torch.tensor(0)), strict=True
        ):
            self.register_buffer(name, x)
        self.seen = (self.running_mean, self.running_var)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = self.seen = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        mean, var, weight, bias = (z.view(1, -1, 1, 1) for z in (mean, var, self.weight, self.bias))
        return (x - mean) * torch.rsqrt(var + 1e-5) * weight + bias


class Block(nn.Module):
    """A transformer's block with two heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, mask: Tensor | float = 0.0) -> Tensor:
        """Return the outputs."""
        n, tokens, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(n, tokens, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        attention = (q @ k.transpose(-1, -2) / (width // 2) ** 0.5 + mask).softmax(-1)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(n, tokens, width))
        return x + self.down(F.gelu(self.up(self.between(x))))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Of patches to a class, or (with a vocabulary) of characters to the next one."""

    def __init__(self, tokens: int, inputs: int, classes: int, vocabulary: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 32) if vocabulary else nn.Linear(inputs, 32)
        self.position = nn.Parameter(torch.randn(tokens, 32) * 0.02)
        self.blocks = nn.ModuleList(Block(32) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, classes)
        self.register_buffer(
            "mask", torch.full((tokens, tokens), -1e9).triu(1) if vocabulary else torch.zeros(())
        )
        self.pooled = not vocabulary

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x, self.mask)
        x = self.norm(x)
        return self.head(x.mean(1) if self.pooled else x)  # type: ignore[no-any-return]


class Gru(nn.Module):
    """A GRU written out, over the rows of an image or over characters."""

    def __init__(self, inputs: int, width: int, classes: int, vocabulary: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, inputs) if vocabulary else nn.Identity()
        self.width, self.every = width, bool(vocabulary)

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape).uniform_(-(width**-0.5), width**-0.5))

        self.w_in, self.w_own = uniform(3 * width, inputs), uniform(3 * width, width)
        self.b_in, self.b_own = uniform(3 * width), uniform(3 * width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        given = F.linear(self.embed(x), self.w_in, self.b_in)
        h, outputs = given.new_zeros(len(x), self.width), []
        for t in range(given.shape[1]):
            r_in, z_in, n_in = given[:, t].chunk(3, -1)
            r_own, z_own, n_own = F.linear(h, self.w_own, self.b_own).chunk(3, -1)
            z = torch.sigmoid(z_in + z_own)
            h = (1 - z) * torch.tanh(n_in + torch.sigmoid(r_in + r_own) * n_own) + z * h
            outputs.append(h)
        return self.head(torch.stack(outputs, 1) if self.every else h)  # type: ignore[no-any-return]


class Adapted(nn.Module):
    """A frozen linear layer with a trainable change of rank 4 (LoRA)."""

    w: Tensor
    b: Tensor

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.register_buffer("w", base.weight.data.clone())
        self.register_buffer("b", base.bias.data.clone())
        self.down = nn.Parameter(torch.randn(4, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        return F.linear(x, self.w, self.b) + 2 * F.linear(F.linear(x, self.down), self.up)


def convolutional(channels: int, size: int, norm: Callable[[int], nn.Module]) -> nn.Module:
    """Two convolutions, pooling, one linear layer."""

    def layer(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), norm(after), nn.ReLU(), nn.MaxPool2d(2)]

    head = nn.Linear(16 * (size // 4) ** 2, 10)
    return nn.Sequential(*layer(channels, 8), *layer(8, 16), nn.Flatten(1), head)


def perceptron(*widths: int, norm: bool = False) -> nn.Module:
    """Linear layers with ReLU, or with LayerNorm and GELU, between them."""
    layers: list[nn.Module] = [nn.Flatten(1)]
    for i, (before, after) in enumerate(pairwise(widths)):
        if i:
            layers += [nn.LayerNorm(before), nn.GELU()] if norm else [nn.ReLU()]
        layers.append(nn.Linear(before, after))
    return nn.Sequential(*layers)


def adapted(tokens: int, inputs: int, pretraining: Samples) -> nn.Module:
    """A transformer that was trained on other data; its adapters and its head are trainable."""
    net = Transformer(tokens, inputs, 10)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(400):
        rows = torch.randint(len(pretraining[1]), (64,))
        loss = F.cross_entropy(net(pretraining[0][rows]), pretraining[1][rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    trainable = {id(x) for x in net.head.parameters()}
    for block in net.blocks:
        for name in ("qkv", "out", "up", "down"):
            layer = Adapted(getattr(block, name))
            setattr(block, name, layer)
            trainable |= {id(x) for x in layer.parameters()}
    for module in net.modules():
        frozen = {k: x for k, x in module.named_parameters(recurse=False) if id(x) not in trainable}
        for name, x in frozen.items():
            delattr(module, name)
            module.register_buffer(name, x.data)
    return net


# --- data ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Training and test samples, and the natural group of each training sample if there is one."""

    train: Samples
    test: Samples
    groups: npt.NDArray[Any] | None = None
    classes: int = 10

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Data:
        """Return the data with changed inputs."""
        (x, y), (test_x, test_y) = self.train, self.test
        return Data((change(x), y), (change(test_x), test_y), self.groups, self.classes)


def _images(x: npt.NDArray[Any], mean: float, deviation: float) -> Tensor:
    """Return standardised images of half the height and width."""
    return F.avg_pool2d((torch.tensor(x).float() / 255 - mean) / deviation, 2)


@cache
def data(name: str, directory: Path) -> Data:
    """Read one data set: "digits" (development), "mnist" (in part), "fashion", "cifar" or "text"."""
    if name == "digits":
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]

        x, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        images = torch.tensor((x[order] - 4.9) / 6, dtype=torch.float32).view(-1, 1, 8, 8)
        labels = torch.tensor(y[order])
        return Data((images[:1297], labels[:1297]), (images[1297:], labels[1297:]))
    if name == "text":
        return _text(directory / "tinyshakespeare.txt.gz")
    if name == "cifar":
        with np.load(directory / "cifar10.npz") as found:
            raw = [found[key] for key in ("x", "y", "test_x", "test_y")]
        raw = [np.moveaxis(z, 3, 1) if z.ndim == 4 else z for z in raw]
        mean, deviation = 0.47, 0.25
    else:
        found = embedded() if name == "mnist" else load("fashion-mnist", directory)
        raw = [found.train_x, found.train_y, found.test_x, found.test_y]
        raw = [z.reshape(-1, 1, 28, 28) if z.ndim == 2 else z for z in raw]
        mean, deviation = (0.13, 0.31) if name == "mnist" else (0.286, 0.353)
    x, y, test_x, test_y = (z[:n] for z, n in zip(raw, (_TRAINING,) * 2 + (_TEST,) * 2, strict=True))
    train = _images(x, mean, deviation), torch.tensor(y).long()
    return Data(train, (_images(test_x, mean, deviation), torch.tensor(test_y).long()))


def _text(path: Path, length: int = 24) -> Data:
    """Windows of Shakespeare's speeches; the speakers are the groups."""
    parts = re.split(
        r"^([A-Z][A-Za-z' ]{1,40}):$", gzip.decompress(path.read_bytes()).decode(), flags=re.MULTILINE
    )
    speeches: dict[str, str] = {}
    for speaker, speech in zip(parts[1::2], parts[2::2], strict=True):
        speeches[speaker] = speeches.get(speaker, "") + speech
    codes = {c: i for i, c in enumerate(sorted(set("".join(speeches.values()))))}
    windows, speakers = [], []
    for number, speech in enumerate(sorted(speeches.values(), key=len, reverse=True)):
        for begin in range(0, len(speech) - length, length):
            windows.append([codes[c] for c in speech[begin : begin + length + 1]])
            speakers.append(number)
    coded, kept = torch.tensor(windows), np.arange(len(windows)) % 10 != 9
    test = coded[~kept][np.random.default_rng(0).permutation(int((~kept).sum()))[:300]]
    train = coded[kept]
    groups = np.array(speakers)[kept]
    return Data((train[:, :-1], train[:, 1:]), (test[:, :-1], test[:, 1:]), groups, len(codes))


def _dirichlet(
    y: npt.NDArray[Any], clients: int, alpha: float, rng: np.random.Generator
) -> list[npt.NDArray[Any]]:
    """Split samples by a Dirichlet distribution for each class; a client has at least 32."""
    own: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        cuts = (np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(rows)).astype(int)
        for rows_k, part in zip(own, np.split(rows, cuts), strict=True):
            rows_k.extend(part.tolist())
    return [np.array(x + rng.integers(len(y), size=max(32 - len(x), 0)).tolist()) for x in own]


# --- the loop ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replies:
    """What the clients of a round did: their work in samples, and the models that they returned."""

    clients: list[str]
    samples: npt.NDArray[np.int64]
    models: list[Arrays]


class World:
    """One federated task.

    Parameters
    ----------
    case : str
        ``network@data``, then any of ``adam`` (the clients' optimizer), ``lr0.25`` (times the learning
        rate), ``10of50`` (clients per round, all clients), ``a0.1`` (Dirichlet's alpha), ``flat16`` (inputs
        divided).
    seed : int
        The same seed gives the same result.
    directory : Path
        Of the data sets.
    """

    def __init__(self, case: str, seed: int, directory: Path) -> None:
        torch.manual_seed(1000 + seed)
        rng = np.random.default_rng([5, seed])
        head, *options = case.split("/")
        network, _, name = head.partition("@")
        self.seed, self.adam, factor = seed, "adam" in options, 1.0
        self.per_round, self.total, alpha, flat = 12, 12, 0.5, 1.0
        for option in options:
            if "of" in option:
                self.per_round, self.total = map(int, option.split("of"))
            elif option.startswith("lr"):
                factor = float(option[2:])
            elif option.startswith("flat"):
                flat = float(option[4:])
            elif option.startswith("a0"):
                alpha = float(option[1:])
        found = data(name, directory)
        if found.groups is None:
            self.own = _dirichlet(found.train[1].numpy(), self.total, alpha, rng)
        else:
            self.own = [np.flatnonzero(found.groups % self.total == k) for k in range(self.total)]
        self.net, self.data, rate = _network(network, name, found, directory)
        if flat != 1:
            self.data = self.data.mapped(lambda x: x / flat)
        self.batch = 8 if name == "text" else 16
        self.rate = factor * ((0.003 if network == "lora" else 0.002) if self.adam else rate)
        named = dict(self.net.named_parameters())
        self.shapes = {name: x.shape for name, x in named.items()}
        self.norms = [(n, m) for n, m in self.net.named_modules() if isinstance(m, BatchNorm)]
        self.fixed = {n: x for n, x in self.net.named_buffers() if not n.endswith(STATISTICS)}
        self.batches = 2 ** rng.integers(0, _MOST_BATCHES.bit_length(), self.total)
        self.gradients = vmap(grad(self._loss, has_aux=True))

    def first(self) -> Arrays:
        """Return the model to begin with."""
        state = self.net.state_dict()
        names = [*self.shapes, *(f"{norm}.{kind}" for norm, _ in self.norms for kind in STATISTICS)]
        return {name: state[name].numpy().copy() for name in names}

    def _loss(self, flat: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], ...]]:
        out = functional_call(self.net, {**self._named(flat), **self.fixed}, (x,))
        loss = F.cross_entropy(out.flatten(0, -2), y.flatten())
        return loss, tuple(norm.seen for _, norm in self.norms)

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()], -1)
        return {n: x.view(shape) for (n, shape), x in zip(self.shapes.items(), parts, strict=True)}

    def _flat(self, model: Arrays) -> Tensor:
        return torch.cat([torch.tensor(np.asarray(model[n], np.float32)).flatten() for n in self.shapes])

    def round(self, model: Arrays, number: int) -> Replies:
        """Let the clients of a round train on fresh samples of theirs."""
        rng = np.random.default_rng([11, self.seed, number])
        clients = rng.choice(self.total, self.per_round, replace=False)
        clients = clients[np.argsort(-self.batches[clients], kind="stable")]
        work = self.batches[clients]
        rows = [self._rows(k, n * self.batch, rng) for k, n in zip(clients, work, strict=True)]
        weights = self._flat(model).expand(len(clients), -1).clone()
        m, v = torch.zeros_like(weights), torch.zeros_like(weights)
        kept = [
            [np.repeat(model[f"{norm}.{kind}"][None], len(clients), 0) for kind in STATISTICS]
            for norm, _ in self.norms
        ]
        self.net.train()
        for j in range(work[0]):
            n = int((work > j).sum())  # these have a batch left
            part = torch.tensor(np.stack([x[j * self.batch : (j + 1) * self.batch] for x in rows[:n]]))
            slopes, seen = self.gradients(weights[:n], self.data.train[0][part], self.data.train[1][part])
            if self.adam:
                m[:n] = 0.9 * m[:n] + 0.1 * slopes
                v[:n] = 0.999 * v[:n] + 0.001 * slopes**2
                slopes = m[:n] / (1 - 0.9 ** (j + 1)) / ((v[:n] / (1 - 0.999 ** (j + 1))).sqrt() + 1e-8)
            weights[:n] -= self.rate * slopes
            for (mean, var, count), new in zip(kept, seen, strict=True):
                mean[:n] += 0.1 * (new[0].numpy() - mean[:n])
                var[:n] += 0.1 * (new[1].numpy() * self.batch / (self.batch - 1) - var[:n])
                count[:n] += 1
        models: list[Arrays] = []
        for k in range(len(clients)):
            models.append({n: x.numpy() for n, x in self._named(weights[k]).items()})
            for (norm, _), state in zip(self.norms, kept, strict=True):
                models[-1] |= {f"{norm}.{kind}": x[k] for kind, x in zip(STATISTICS, state, strict=True)}
        return Replies([str(k) for k in clients], work * self.batch, models)

    def _rows(self, client: int, count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        own = self.own[client]
        return rng.choice(own, count, replace=len(own) < count)

    @torch.no_grad()
    def accuracy(self, model: Arrays) -> float:
        """Return the share of the test samples that the model predicts."""
        self.net.eval()
        state = {n: torch.tensor(x) for n, x in model.items() if n not in self.shapes}
        x, y = self.data.test
        out = functional_call(self.net, {**self._named(self._flat(model)), **self.fixed, **state}, (x,))
        return float((out.argmax(-1) == y).float().mean())


def _network(network: str, name: str, found: Data, directory: Path) -> tuple[nn.Module, Data, float]:
    """Return a network with the data as it takes them, and its clients' learning rate for SGD."""
    if name == "text":
        if network == "gru":
            return Gru(16, 48, found.classes, found.classes), found, 1.0
        return Transformer(24, 0, found.classes, found.classes), found, 0.3
    _, channels, size, _ = found.train[0].shape
    inputs = channels * size * size
    if network in ("vit", "lora"):
        side = {8: 4, 14: 7, 16: 4}[size]

        def patches(x: Tensor) -> Tensor:
            x = x.reshape(-1, channels, size // side, side, size // side, side).permute(0, 2, 4, 1, 3, 5)
            return x.reshape(len(x), (size // side) ** 2, -1)

        tokens, values = (size // side) ** 2, channels * side * side
        if network == "vit":
            return Transformer(tokens, values, 10), found.mapped(patches), 0.1
        if name == "fashion":  # pretrained on other images, otherwise on the first five classes
            other = data("mnist", directory).train
        else:
            few = found.train[1] < 5
            other = found.train[0][few][:3000], found.train[1][few][:3000]
        return adapted(tokens, values, (patches(other[0]), other[1])), found.mapped(patches), 0.1
    if network == "gru":
        rows = found.mapped(lambda x: x.transpose(1, 2).flatten(2))
        return Gru(rows.train[0].shape[2], 32, 10), rows, 0.2
    nets: dict[str, Callable[[], nn.Module]] = {
        "logistic": lambda: perceptron(inputs, 10),
        "mlp": lambda: perceptron(inputs, 64, 10),
        "wide": lambda: perceptron(inputs, 512, 10),
        "deep": lambda: perceptron(inputs, 64, 64, 64, 10, norm=True),
        "cnn": lambda: convolutional(channels, size, lambda _: nn.Identity()),
        "cnn-bn": lambda: convolutional(channels, size, BatchNorm),
        "cnn-gn": lambda: convolutional(channels, size, lambda width: nn.GroupNorm(2, width)),
    }
    return nets[network](), found, 0.05 if network == "logistic" else 0.1
