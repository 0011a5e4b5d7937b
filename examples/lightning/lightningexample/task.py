"""A Lightning module on handwritten digits."""

import logging
from functools import cache

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class LitNet(pl.LightningModule):
    """A perceptron that trains itself."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        """Return logits."""
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        """Return the loss of a batch."""
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.005)


@cache
def digits():
    """Return 1,797 digits of 8 by 8 pixels."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(data.data / 16.0, dtype=torch.float32)
    return x[order], torch.tensor(data.target)[order]


def load_data(partition_id, num_partitions):
    """Return this node's training data."""
    x, y = (part[:1400][partition_id::num_partitions] for part in digits())
    return DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)


def load_testset():
    """Return the server's test data."""
    x, y = (part[1400:] for part in digits())
    return x, y


def make_trainer(max_epochs):
    """Return a quiet trainer."""
    return pl.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
