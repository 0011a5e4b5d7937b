"""Models as Flower projects send them, with training that takes a millisecond."""

import numpy as np
import torch
from torch import nn

K = 7


def state_of(module, names=None):
    return {
        key: value.detach().numpy().copy()
        for key, value in module.state_dict().items()
        if names is None or key.startswith(names)
    }


class Torch:
    """A torch module, trained for one step of SGD, as `load_state_dict` and `state_dict` carry it."""

    def __init__(self, build, batch, names=None):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.build, self.batch, self.names = build, batch, names
        self.module = build()
        self.start = state_of(self.module)
        self.model = state_of(self.module, names)

    def client(self, k, cycle, arrays):
        generator = torch.Generator().manual_seed(100 * cycle + k)
        # As careful projects do: the server's averages of infinities are not used.
        state = {**self.start, **arrays} | {key: a for key, a in self.start.items() if key == "mask"}
        self.module.load_state_dict({key: torch.tensor(np.asarray(a)) for key, a in state.items()})
        self.module.train()
        x, y = self.batch(generator)
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        loss = nn.functional.cross_entropy(self.module(x), y)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad():
            for p, g in zip(parameters, gradients, strict=True):
                if g is not None:
                    p.sub_(0.1 * g)
        return state_of(self.module, self.names), {"train_loss": float(loss.detach())}


def images(generator):
    return torch.randn(6, 1, 8, 8, generator=generator), torch.randint(3, (6,), generator=generator)


def sequences(generator):
    return torch.randn(6, 4, 8, generator=generator), torch.randint(3, (6,), generator=generator)


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3 * 36, 3),
        nn.BatchNorm1d(3),
    )


class Transformer(nn.Module):
    """An encoder with a causal mask of -inf, and adapters beside frozen weights."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder.requires_grad_(requires_grad=False)
        self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))
        self.adapter_down = nn.Linear(8, 2)
        self.adapter_up = nn.Linear(2, 8)
        self.adapter_norm = nn.LayerNorm(8)
        self.adapter_head = nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.encoder(x, src_mask=self.mask)
        hidden = self.adapter_norm(hidden + self.adapter_up(torch.relu(self.adapter_down(hidden))))
        return self.adapter_head(hidden.mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Logistic:
    """The arrays of a linear model of scikit-learn: doubles, and the classes as whole numbers."""

    def __init__(self):
        self.model = {"coef": np.zeros((3, 4)), "intercept": np.zeros(3), "classes": np.arange(3)}

    def client(self, k, cycle, arrays):
        rng = np.random.default_rng([k, cycle])
        step = {key: arrays[key] + 0.1 * rng.normal(size=arrays[key].shape) for key in ("coef", "intercept")}
        return {**step, "classes": np.arange(3)}, {"train_loss": float(rng.random())}


class Arithmetic:
    """Arrays of any type, moved a little."""

    def __init__(self, **model):
        self.model = model

    def client(self, k, cycle, arrays):
        rng = np.random.default_rng([k, cycle])
        new = {}
        for key, mine in self.model.items():
            if mine.dtype.kind == "b":
                new[key] = rng.random(mine.shape) < 0.5
            elif mine.dtype.kind == "f":
                step = 0.01 * rng.normal(size=mine.shape)
                new[key] = np.asarray(arrays[key] + step).astype(mine.dtype)
            else:
                new[key] = np.asarray(mine + rng.integers(0, 3, mine.shape)).astype(mine.dtype)
        return new, {"train_loss": float(rng.random())}


QUANTISED = {
    "weight": np.arange(-6, 6, dtype=np.int8).reshape(3, 4),
    "codes": np.arange(5, dtype=np.uint8),
    "scale": np.float32(0.05) * np.ones(3, np.float32),
    "half": np.linspace(-1, 1, 4, dtype=np.float16),
    "zero_point": np.array(3, np.int32),
    "temperature": np.array(0.5),
    "none": np.zeros((0, 4), np.float32),
}
ZOO = {
    "BatchNorm CNN": Torch(cnn, images),
    "transformer": Torch(Transformer, sequences),
    "adapters": Torch(Transformer, sequences, "adapter"),
    "LSTM": Torch(Recurrent, sequences),
    "scikit-learn": Logistic(),
    "quantised": Arithmetic(**QUANTISED),
    "pruned": Arithmetic(weight=np.linspace(-1, 1, 6, dtype=np.float32), mask=np.arange(6) % 2 == 0),
}
