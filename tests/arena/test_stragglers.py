"""The setting of Flower's FedProx baseline."""

import numpy as np
import pytest
from mel_simulation.arena.stragglers import EPOCHS, WAYS, Way, learn, plan, power_law, rounds_to, table, train
from mel_simulation.scenario.data import embedded

HELD, ABLE = np.array([40, 7, 300, 25]), np.array([10, 1, 3, 9])


def test_every_learner_has_two_digits_and_samples_are_given_once():
    labels = embedded().train_y.astype(np.int64)
    parts = power_law(labels, 60, np.random.default_rng(0))
    rows = np.concatenate(parts)
    assert len(set(rows)) == len(rows)
    assert {len(set(labels[part])) for part in parts} == {2}
    assert min(map(len, parts)) >= 10
    assert max(map(len, parts)) > 5 * np.median([len(part) for part in parts])


def test_fedavg_drops_stragglers_and_fedprox_takes_what_they_have():
    assert list(plan(Way(drops=True), HELD, ABLE)[0]) == [10, 0, 0, 0]
    assert list(plan(Way(), HELD, ABLE)[0]) == list(ABLE)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_ours_stays_within_the_time_that_learners_have(share):
    epochs, samples = plan(Way(share=share), HELD, ABLE)
    assert (epochs * samples <= HELD * ABLE).all()
    assert (samples <= HELD).all()
    assert epochs.max() <= EPOCHS
    assert samples.sum() == int(share * HELD.sum())


def test_all_samples_leave_no_choice_but_the_epochs_that_fit():
    epochs, samples = plan(Way(share=1.0), HELD, ABLE)
    assert list(epochs) == list(ABLE)
    assert list(samples) == list(HELD)


def test_the_slope_is_that_of_the_loss_and_mu_pulls_back():
    rng = np.random.default_rng(0)
    x, y = rng.random((10, 5)), rng.integers(0, 10, 10)
    start = rng.random((5, 10))

    def loss(w):
        logits = x @ w
        return (np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(10), y]).mean()

    moved = (start - learn(start, x, y, 1, 0.0, rng)) / 0.03
    for i, j in ((0, 0), (3, 7)):
        step = np.zeros_like(start)
        step[i, j] = 1e-6
        assert moved[i, j] == pytest.approx((loss(start + step) - loss(start - step)) / 2e-6, rel=1e-4)
    near = learn(start, x, y, 5, 5.0, np.random.default_rng(1))
    far = learn(start, x, y, 5, 0.0, np.random.default_rng(1))
    assert np.abs(near - start).sum() < np.abs(far - start).sum()


def test_a_training_repeats_itself_and_all_ways_learn():
    curves = {name: [train(embedded(), way, 0, 40, 6)] for name, way in WAYS.items()}
    again = train(embedded(), WAYS["FedProx, mu = 1"], 0, 40, 6)
    assert curves["FedProx, mu = 1"] == [again]
    assert all(max(curve) > 0.2 for (curve,) in curves.values())
    lines = table(curves).splitlines()
    assert len(lines) == 2 + len(WAYS)


def test_rounds_to_counts_from_one():
    assert rounds_to([0.5, 0.9], 0.8) == 2
    assert rounds_to([0.5], 0.8) is None
