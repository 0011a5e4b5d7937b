"""Models as Flower projects send them, with training that takes a moment."""

import numpy as np
import torch
from torch import nn


def state_of(module, names=""):
    return {k: v.detach().numpy().copy() for k, v in module.state_dict().items() if k.startswith(names)}


class Torch:
    """A torch module, trained for one step of SGD, as `load_state_dict` and `state_dict` carry it."""

    def __init__(self, build, names=""):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.names, self.module = names, build()
        self.start = state_of(self.module)
        self.model = state_of(self.module, names)

    def moves(self, k, cycle, arrays):
        generator = torch.Generator().manual_seed(100 * cycle + k)
        state = {**self.start, **arrays} | {key: a for key, a in self.start.items() if key == "mask"}
        self.module.load_state_dict({key: torch.tensor(np.asarray(a)) for key, a in state.items()})
        self.module.train()
        x = torch.randn(6, 1, 8, 8, generator=generator)
        y = torch.randint(3, (6,), generator=generator)
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        loss = nn.functional.cross_entropy(self.module(x), y)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad():
            for p, g in zip(parameters, gradients, strict=True):
                if g is not None:
                    p.sub_(0.1 * g)
        return state_of(self.module, self.names)


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 3), nn.BatchNorm1d(3)
    )


class Masked(nn.Module):
    """A mask of -inf among the buffers, and adapters beside frozen weights."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(64, 3)
        self.base.requires_grad_(False)
        self.adapter_a, self.adapter_b = nn.Linear(64, 2, bias=False), nn.Linear(2, 3, bias=False)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, -torch.inf]))

    def forward(self, x):
        x = x.flatten(1)
        y = self.base(x) + self.adapter_b(self.adapter_a(x))
        return y + torch.nan_to_num(self.mask, neginf=0.0)


class Arithmetic:
    """Arrays of any type, moved a little."""

    def __init__(self, **model):
        self.model = model

    def moves(self, k, cycle, arrays):
        rng = np.random.default_rng([k, cycle])
        new = {}
        for key, mine in self.model.items():
            if mine.dtype.kind == "b":
                new[key] = rng.random(mine.shape) < 0.5
            elif mine.dtype.kind == "f":
                new[key] = np.asarray(arrays[key] + 0.01 * rng.normal(size=mine.shape)).astype(mine.dtype)
            else:
                new[key] = np.asarray(mine + rng.integers(0, 3, mine.shape)).astype(mine.dtype)
        return new


ZOO = {
    "BatchNorm CNN": Torch(cnn),
    "mask of -inf": Torch(Masked),
    "adapters": Torch(Masked, "adapter"),
    "scikit-learn": Arithmetic(coef=np.zeros((3, 4)), intercept=np.zeros(3), classes=np.arange(3)),
    "quantised": Arithmetic(
        weight=np.arange(-6, 6, dtype=np.int8).reshape(3, 4),
        codes=np.arange(5, dtype=np.uint8),
        half=np.linspace(-1, 1, 4, dtype=np.float16),
        zero_point=np.array(3, np.int32),
        temperature=np.array(0.5),
        none=np.zeros((0, 4), np.float32),
    ),
    "pruned": Arithmetic(weight=np.linspace(-1, 1, 6, dtype=np.float32), mask=np.arange(6) % 2 == 0),
}
