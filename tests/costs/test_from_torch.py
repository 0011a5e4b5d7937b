"""`Workload.from_torch` against formulas: a perceptron, a convolution, an LSTM, attention, an adapter."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from flwr_mel import Workload


def perceptron(sizes):
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    return nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())])


def test_a_perceptron_has_six_operations_per_weight_and_four_in_its_first_layer():
    sizes = (784, 300, 124, 60, 10)
    counted = Workload.from_torch(perceptron(sizes), torch.zeros(1, 784))
    paper = Workload.mlp(sizes)
    weights, first, biases = 280_440, 784 * 300, 494
    assert paper.model_parameters == weights
    assert counted.operations_per_sample == 6 * weights - 2 * first
    assert paper.operations_per_sample == 4 * (weights + biases)
    assert counted.model_parameters == weights + biases
    assert (counted.features, counted.bits_per_feature, counted.bits_per_parameter) == (784, 32, 32)


def test_the_batch_does_not_matter():
    model = perceptron((20, 30, 5))
    one, many = (Workload.from_torch(model, torch.zeros(n, 20)) for n in (1, 16))
    assert one == many


def test_a_convolution():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, bias=False), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 28 * 28, 10)
    )
    counted = Workload.from_torch(model, torch.zeros(2, 3, 32, 32, dtype=torch.float32))
    conv, linear = 28 * 28 * 8 * 3 * 25, 8 * 28 * 28 * 10
    assert counted.operations_per_sample == 4 * conv + 6 * linear
    entries = 3 * 8 * 25 + 4 * 8 + 1 + linear + 10  # weights, the four of BatchNorm, its counter, linear
    assert counted.model_parameters == entries
    assert counted.bits_per_parameter == pytest.approx((32 * (entries - 1) + 64) / entries)
    assert counted.features == 3 * 32 * 32


def test_an_lstm_is_seen_in_spite_of_its_fused_kernel():
    steps, inputs, hidden = 5, 8, 16
    counted = Workload.from_torch(nn.LSTM(inputs, hidden, batch_first=True), torch.zeros(3, steps, inputs))
    forward = 2 * steps * 4 * hidden * (inputs + hidden)
    assert 2 * forward <= counted.operations_per_sample <= 3 * forward
    assert counted.model_parameters == 4 * hidden * (inputs + hidden + 2)


def test_attention_is_seen():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    counted = Workload.from_torch(layer, torch.zeros(1, 10, 16))
    products = 2 * 10 * (4 * 16 * 16 + 2 * 16 * 32)
    scores = 2 * 2 * 10 * 10 * 16
    assert counted.operations_per_sample == 3 * (products + scores) - 2 * 10 * 3 * 16 * 16


def test_only_what_is_trained_counts_and_what_is_exchanged_is_told():
    model = perceptron((20, 30, 5))
    whole = Workload.from_torch(model, torch.zeros(1, 20))
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    head = Workload.from_torch(model, torch.zeros(1, 20), exchanged=model[2].state_dict(), ship_data=False)
    assert head.operations_per_sample == 2 * 600 + 4 * 150 < whole.operations_per_sample
    assert head.model_parameters == 155
    assert head.sample_bits == 0


def test_types_and_several_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(10, 4), nn.Linear(6, 1)

        def forward(self, words, extra):
            return {"logits": self.out(torch.cat([self.embed(words).mean(1), extra], 1))}

    words, extra = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 2)
    by_name = Workload.from_torch(Two(), {"words": words, "extra": extra})
    assert by_name == Workload.from_torch(Two(), (words, extra))
    assert by_name.features == 5
    assert by_name.sample_bits == 3 * 64 + 2 * 32
    half = Workload.from_torch(perceptron((8, 4)).to(torch.bfloat16), torch.zeros(1, 8, dtype=torch.bfloat16))
    assert half.bits_per_parameter == half.bits_per_feature == 16


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    model.train()
    model[1].eval()
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    mkldnn = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
    Workload.from_torch(model, torch.ones(1, 4))
    assert [m.training for m in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert torch._C._get_mkldnn_enabled() == mkldnn


@pytest.mark.parametrize(
    ("model", "sample", "text"),
    [
        (perceptron((4, 2)), torch.tensor(1.0), "sample must be a batch"),
        (perceptron((4, 2)), torch.zeros(0, 4), "sample must be a batch"),
        (perceptron((4, 2)), "x", "sample must be a batch"),
        (nn.ReLU(), torch.zeros(1, 4), "model must be a module with parameters to train"),
        (nn.BatchNorm1d(4), torch.zeros(2, 4), "torch's counter knows"),
    ],
)
def test_what_cannot_be_counted_is_said(model, sample, text):
    with pytest.raises(ValueError, match=text):
        Workload.from_torch(model, sample)
