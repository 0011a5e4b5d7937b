"""The server's step: a length that follows from slopes."""

import dataclasses

import numpy as np
import pytest

from flwr_mel.checkpoint.files import pack, read, unpack, write
from flwr_mel.cycle.step import Slope, step, undo

#: Curvature of the loss sum(H x^2) / 2, in two arrays.
H = {"a": np.linspace(0.5, 1.5, 12).reshape(3, 4), "b": np.linspace(0.8, 1.2, 10).reshape(5, 2)}
START = {"a": np.full((3, 4), 2.0), "b": np.full((5, 2), -1.0)}


def loss(x, scale=1.0):
    return 0.5 * sum(float((H[n] * (x[n] / scale) ** 2).sum()) for n in H)


def slope(x, scale=1.0):
    """Return the direction of descent."""
    return {n: -H[n] * x[n] / scale**2 for n in H}


def averaged(x, scale=1.0, rate=0.01):
    return {n: x[n] + rate * u for n, u in slope(x, scale).items()}


def trained(rounds, scale=1.0, start=START):
    """Train with exact slopes; return the losses, the last state and the facts."""
    state, x, losses, facts = Slope(), {n: a * scale for n, a in start.items()}, [], []
    for _ in range(rounds):
        state, x, fact = step(state, x, averaged(x, scale))
        losses.append(loss(x, scale))
        facts.append(fact)
    return losses, state, facts


def dot(a, b):
    return sum(float(np.vdot(a[n], b[n])) for n in a)


def test_on_a_parabola_the_ratio_is_one_minus_step_over_best_step():
    state, x, facts = step(Slope(), START, averaged(START))
    assert facts.ratio is None
    d = state.step
    best = dot(slope(START), d) / dot(d, {n: H[n] * d[n] for n in H})
    _, _, facts = step(state, x, averaged(x))
    assert facts.ratio == pytest.approx(1 - 1 / best, rel=1e-9)


def test_the_size_of_the_clients_steps_does_not_matter():
    """Neither their learning rate nor the number of samples changes a step: there is no unit."""
    small, large = (Slope(), START), (Slope(), START)
    for _ in range(5):
        state, x, few = step(*small, averaged(small[1], rate=1e-9), 10.0)
        small = state, x
        state, x, many = step(*large, averaged(large[1], rate=1e-3), 50.0)
        large = state, x
    assert many.ratio == pytest.approx(few.ratio, rel=1e-5)
    for n in H:
        np.testing.assert_allclose(small[1][n], large[1][n], rtol=1e-5)


def test_without_any_change_the_model_stays():
    state, x, _ = step(Slope(), START, START)
    assert all(np.array_equal(x[n], START[n]) for n in H)
    _, x, _ = step(state, x, averaged(x))
    assert not np.array_equal(x["a"], START["a"])


@pytest.mark.parametrize("scale", [0.03, 0.3, 1.0, 3.0, 30.0])
def test_it_descends_whatever_the_unit_of_the_weights(scale):
    """A unit ten times as large is a start ten times too short."""
    losses, _, facts = trained(60, scale)
    assert losses[-1] < 1e-2 * loss(START)
    assert facts[-1].length < 100 * scale


def test_a_start_that_is_far_too_long_is_undone():
    """A secant brings the model back to where the slope is zero."""
    losses, _, facts = trained(4, scale=0.01)
    assert facts[1].undone
    assert facts[1].ratio < -1
    assert losses[1] < losses[0]


def network(rng):
    return {
        "conv.weight": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "conv.bias": np.zeros(4, np.float32),
        "bn.running_mean": np.zeros(4, np.float32),
        "bn.running_var": np.ones(4, np.float32),
        "bn.num_batches_tracked": np.array(0),
        "codes": np.zeros((2, 2), np.int8),
        "mask": np.array([[0.0, -np.inf]], np.float32),
        "half": rng.normal(size=(2, 2)).astype(np.float16),
    }


def test_only_weights_are_stepped():
    """Counters may become floats in the average, and still are counters."""
    rng = np.random.default_rng(0)
    state, model = Slope(), network(rng)
    for count in (1.0, 2.5, 40.0):
        average = {
            n: np.asarray(count) if x.ndim == 0 else (x + rng.normal(0, 0.01, x.shape)).astype(x.dtype)
            for n, x in model.items()
        }
        state, new, _ = step(state, model, average, 64.0)
        assert state.stepped == ("conv.weight", "half")
        assert list(new) == list(average)
        for name, x in new.items():
            if name not in state.stepped:
                assert x is average[name]
            else:
                assert (x.dtype, x.shape) == (model[name].dtype, model[name].shape)
                assert not np.array_equal(x, average[name])
        model = new


def test_an_array_that_no_client_trains_stays():
    model = {"frozen": np.ones((50, 50), np.float32), "adapter": np.ones((2, 3), np.float32)}
    state, new, facts = step(Slope(), model, {**model, "adapter": model["adapter"] + np.float32(0.1)})
    assert np.array_equal(new["frozen"], model["frozen"])
    _, _, alone = step(
        Slope(), {"adapter": model["adapter"]}, {"adapter": model["adapter"] + np.float32(0.1)}
    )
    assert facts.length == alone.length
    assert state.length > 0


def exploded(x, by=1000.0):
    return {n: x[n] + by * a for n, a in slope(x).items()}


def test_an_explosion_is_undone_and_forgotten():
    state, x = Slope(), START
    for _ in range(5):
        before, last = x, state
        state, x, _ = step(state, x, averaged(x))
    after, back, facts = step(state, x, exploded(x))
    assert facts.undone
    assert after.length == state.length / 2
    assert after.v is state.v
    assert all(np.allclose(back[n], before[n]) for n in x)
    assert last.turn == 4
    # There is no last step any more: the next round goes on, without a ratio.
    _, _, facts = step(after, back, averaged(back))
    assert facts.ratio is None
    assert not facts.undone


def test_an_early_explosion_counts_at_most_three_times_as_much():
    state, x, _ = step(Slope(), START, averaged(START))
    some, _, _ = step(state, x, exploded(x, by=10.0))
    more, _, _ = step(state, x, exploded(x, by=10_000.0))
    for n in H:
        np.testing.assert_allclose(some.v[n], more.v[n])


@pytest.mark.parametrize("where", ["stepped", "averaged"])
def test_without_a_finite_average_the_last_step_is_undone_once(where):
    model = {**START, "bias": np.zeros(3)}
    state, x, _ = step(Slope(), model, {**averaged(START), "bias": np.ones(3)})
    name = "a" if where == "stepped" else "bias"
    wrong = {**averaged(x), "bias": x["bias"], name: np.full(x[name].shape, np.nan)}
    once, back, facts = step(state, x, wrong)
    assert facts.undone
    assert all(np.allclose(back[n], START[n]) for n in START)
    assert np.array_equal(back["bias"], x["bias"])
    twice, again, _ = step(once, back, {**wrong, **{n: back[n] for n in START}, name: wrong[name]})
    assert all(np.array_equal(again[n], back[n]) for n in back)
    assert (once.length, twice.length) == (state.length / 2, state.length / 4)
    assert undo(Slope(), model)[1] == model  # there is nothing to undo


# --- clients ------------------------------------------------------------------------------------------------


def clients_of(x, rng, noise, names="ABCDEF"):
    """Return each client's weight and model, noise around the slope."""
    return {
        k: (10.0 + i, {n: x[n] + 0.01 * (u + noise * rng.normal(size=u.shape)) for n, u in slope(x).items()})
        for i, k in enumerate(names)
    }


def mean(clients):
    total = sum(w for w, _ in clients.values())
    return {n: sum(w * x[n] for w, x in clients.values()) / total for n in H}


def two_rounds(noise, names=("ABCDEF", "ABCDEF"), average=mean):
    rng = np.random.default_rng(3)
    state, x = Slope(), START
    for who in names:
        clients = clients_of(x, rng, noise, who)
        state, x, facts = step(state, x, average(clients), 1.0, clients)
    return state, facts


def test_clients_give_the_ratio_a_standard_error():
    _, sure = two_rounds(0.01)
    _, unsure = two_rounds(1.0)
    _, exact = two_rounds(0.0)
    assert exact.error == pytest.approx(0, abs=1e-9)
    assert 0 < sure.error < 0.1 * unsure.error
    assert abs(sure.ratio - exact.ratio) < 4 * sure.error


def test_only_clients_of_both_rounds_are_compared():
    """Another client's slope is another slope: without it, the ratio of the others stays."""
    rng = np.random.default_rng(3)
    first = clients_of(START, rng, 0.1, "ABCD")
    state, x, _ = step(Slope(), START, mean(first), 1.0, first)
    second = clients_of(x, rng, 0.1, "ABCD")
    _, _, same = step(state, x, mean(second), 1.0, second)
    second["E"] = (12.0, {n: x[n] - 0.05 * u for n, u in slope(x).items()})
    _, _, more = step(state, x, mean(second), 1.0, second)
    assert more.ratio == pytest.approx(same.ratio)
    assert step(state, x, mean(second))[2].ratio < more.ratio - 0.1


def test_with_other_clients_both_rounds_averages_are_compared():
    state, facts = two_rounds(0.01, ("ABC", "DEF"))
    assert facts.error > 0
    alone, _ = two_rounds(0.01, ("ABC",))
    assert facts.ratio == pytest.approx(dot(state.mean, alone.step) / dot(alone.mean, alone.step))


def test_an_uncertain_ratio_changes_the_length_less():
    rng = np.random.default_rng(0)
    clients = clients_of(START, rng, 0.0)
    state, x, _ = step(Slope(), START, mean(clients), 1.0, clients)
    steady = clients_of(x, rng, 0.0)
    noise = {n: 0.02 * rng.normal(size=a.shape) for n, a in x.items()}
    weights = [w for w, _ in steady.values()]
    # The noise of two clients cancels in the mean.
    torn = dict(steady)
    for name, sign, weight in (("A", 1, weights[1]), ("B", -1, weights[0])):
        w, arrays = torn[name]
        torn[name] = w, {n: a + sign * weight * noise[n] for n, a in arrays.items()}
    sure, _, one = step(state, x, mean(steady), 1.0, steady)
    unsure, _, other = step(state, x, mean(torn), 1.0, torn)
    assert one.ratio == pytest.approx(other.ratio)
    assert one.ratio > 0.3
    assert other.error > 0.3
    assert state.length < unsure.length < 0.9 * sure.length


def test_noise_alone_does_not_move_the_length():
    rng = np.random.default_rng(4)
    state, x, first = Slope(), {"w": np.zeros((40, 40))}, None
    for _ in range(100):
        noise = {k: (1.0, {"w": x["w"] + rng.normal(size=(40, 40))}) for k in "ABCDEF"}
        average = {"w": np.mean([y["w"] for _, y in noise.values()], axis=0)}
        state, x, facts = step(state, x, average, 1.0, noise)
        first = first or facts.length
    assert 0.5 * first < facts.length < 2 * first


def landed(rng, spread):
    """Return a first round, and a second one from a place whose slope has little to do with the first."""
    first = clients_of(START, rng, 0.01)
    state, x, _ = step(Slope(), START, mean(first), 1.0, first)
    back = {n: -0.05 * u for n, u in state.mean.items()}
    second = {
        k: (w, {n: x[n] + back[n] + spread * rng.normal(size=a.shape) for n, a in x.items()})
        for k, (w, _) in first.items()
    }
    return state, step(state, x, mean(second), 1.0, second)


def test_a_first_step_that_certainly_ends_uphill_is_taken_again():
    """Far beyond the parabola r is hardly below zero, whatever the length."""
    state, (after, new, facts) = landed(np.random.default_rng(0), 1e-5)
    assert -0.1 < facts.ratio < -2 * facts.error
    assert facts.undone
    assert facts.length == state.length / 4
    for n, d in state.step.items():
        assert np.all((new[n] - START[n]) / d > 0.2)
        assert np.all((new[n] - START[n]) / d < 0.3)
    assert after.ratio is None
    assert after.slopes == {}  # the clients were asked elsewhere


def test_a_first_step_that_may_end_uphill_is_kept():
    state, (_, _, facts) = landed(np.random.default_rng(2), 1e-2)
    assert -2 * facts.error < facts.ratio < 0
    assert not facts.undone
    assert facts.length == pytest.approx(state.length, rel=0.03)


def test_clients_that_do_not_make_the_average_are_not_asked():
    """A median ignores a client that sends anything: so does the length."""

    def median(clients):
        return {n: np.median([x[n] for _, x in clients.values()], axis=0) for n in H}

    def attacked(by):
        rng = np.random.default_rng(1)
        state, x = Slope(), START
        for i in range(3):
            clients = clients_of(x, rng, 0.1)
            clients["A"] = (1e6, {n: a + by * (-1) ** i for n, a in clients["A"][1].items()})
            state, x, facts = step(state, x, median(clients), 1.0, clients)
        return facts, x

    (some, x), (more, y) = attacked(1e3), attacked(1e9)
    assert some == more
    assert all(np.array_equal(x[n], y[n]) for n in x)


def test_one_huge_update_moves_no_weight_far():
    """Adam bounds each weight's change by about twice the length."""
    rng = np.random.default_rng(1)
    state, x = Slope(), START
    for i in range(8):
        before, clients = x, clients_of(x, rng, 0.1)
        if i == 5:
            clients["A"] = (clients["A"][0], {n: a + 1e9 for n, a in clients["A"][1].items()})
        state, x, facts = step(state, x, mean(clients), 1.0, clients)
        assert all(np.abs(x[n] - before[n]).max() < 3 * facts.length for n in x) or facts.undone
    assert loss(x) < loss(START)


# --- the state ----------------------------------------------------------------------------------------------


def test_the_state_survives_a_checkpoint(tmp_path):
    state, _ = two_rounds(0.1)
    write(tmp_path / "state.npz", {"state": state, "first": Slope()})
    found = read(tmp_path / "state.npz")
    np.testing.assert_equal(dataclasses.asdict(found["state"]), dataclasses.asdict(state))
    assert found["first"] == Slope()
    arrays = []
    assert unpack(pack(Slope(), arrays), arrays) == Slope()


def test_its_arguments_stay_as_they_are():
    state, x, _ = step(Slope(), START, averaged(START))
    kept = {n: a.copy() for n, a in x.items()}, {n: a.copy() for n, a in state.m.items()}
    for _ in range(2):
        step(state, x, averaged(x))
    for n in H:
        assert np.array_equal(kept[0][n], x[n])
        assert np.array_equal(kept[1][n], state.m[n])


def test_single_precision_stays_single():
    model = {"w": np.ones((3, 4), np.float32)}
    state, new, _ = step(Slope(), model, {"w": model["w"].astype(np.float64) + 0.1}, 64.0)
    kept = (state.m, state.v, state.mean, state.step, new)
    assert {x["w"].dtype for x in kept} == {np.dtype(np.float32)}
