"""A LoRA adapter on a tiny transformer, which reads a digit as a sentence of 64 words (grey values)."""

from functools import cache

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from sklearn.datasets import load_digits
from transformers import BertConfig, BertForSequenceClassification


def get_model(r):
    """Return the base model, the same on every node, with a new adapter."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=17,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=10,
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    base = BertForSequenceClassification(config)
    adapter = LoraConfig(
        task_type="SEQ_CLS",
        r=r,
        lora_alpha=2 * r,
        target_modules=["query", "key", "value", "dense"],
        modules_to_save=["classifier"],
    )
    return get_peft_model(base, adapter)


@cache
def load_sentences():
    """Return all digits as sentences, in the same order on every node."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    words = data.data[order].astype(np.int64)
    return Dataset.from_dict({"input_ids": words, "labels": data.target[order]}).with_format("torch")


def load_data(partition_id, num_partitions):
    """Return this node's training data."""
    return load_sentences().select(range(partition_id, 1400, num_partitions))


def train(model, dataset, epochs, lr):
    """Train the adapter; return the mean loss of every epoch."""
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=lr)
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, shuffle=True)
    model.train()
    losses = []
    for _ in range(int(epochs)):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(loader))
    return losses


def test(model):
    """Return the accuracy on the server's test data."""
    data = load_sentences().select(range(1400, 1797))[:]
    model.eval()
    with torch.no_grad():
        guesses = model(input_ids=data["input_ids"]).logits.argmax(1)
    return float((guesses == data["labels"]).float().mean())
