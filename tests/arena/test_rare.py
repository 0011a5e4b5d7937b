"""Labels that only slow learners hold are learnt, soon and with little energy."""

from dataclasses import replace

import numpy as np
import pytest
from mel_simulation.arena import rare
from mel_simulation.arena.rare import METHODS, SETTING, measure
from mel_simulation.arena.setting import Setting

from tests.mnist import FULL_MNIST, needs_mnist

DIGITS = replace(SETTING, task="digits")


def test_the_slowest_quarter_alone_holds_the_last_labels():
    setting = Setting("a", "A", "digits", fleet="spread", split="rare")
    speeds = [device.cpu_hz for device in setting.devices(3)]
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[0] / speeds[-1] == pytest.approx(40)
    parts, labels = setting.parts(3), setting.job.labels
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    assert all(set(labels[part]) == set(range(8)) for part in parts[:15])
    assert all(set(labels[part]) == {8, 9} for part in parts[15:])
    far = replace(setting, fleet="spread-far").devices(3)
    slower = [a.rate_bps / b.rate_bps for a, b in zip(setting.devices(3), far, strict=True)]
    assert slower == pytest.approx([1.0] * 15 + [10.0] * 5)


def test_the_recipe_learns_rare_labels_where_fedavg_does_not_on_digits():
    ours, fedavg = (measure(DIGITS, METHODS[name], 0) for name in ("rate", "FedAvg"))
    assert ours["rare"] > 0.8
    assert ours["accuracy"] > 0.85
    assert ours["rare"] > fedavg["rare"] + 0.2


@needs_mnist
def test_the_recipe_on_the_full_mnist():
    found = measure(replace(SETTING, data_dir=str(FULL_MNIST)), METHODS["rate, f = 0.25"], 2)
    assert found["accuracy"] >= 0.95
    assert found["rare"] >= 0.9
    time_s, energy_j = found["reached"][0]
    assert time_s <= 12
    assert energy_j <= 30


def test_a_goal_that_one_seed_misses_is_not_reported(tmp_path):
    path = tmp_path / "rare.jsonl"
    row = (
        '{"fleet": "spread", "method": "rate", "accuracy": 0.9, "rare": 0.5, "energy_j": 10.0, "reached": %s}'
    )
    path.write_text("\n".join(["{}", row % "[[1.0, 2.0], null]", row % "[[3.0, 4.0], [9.0, 9.0]]"]) + "\n")
    assert "| the paper's | rate | 90.0 | 50.0 | 2 s, 3 J | - | 10 |" in rare.table(path)
