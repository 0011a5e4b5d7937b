"""Which updates are rejected, and how others are scaled."""

import io
from contextlib import suppress

import numpy as np
import pytest

from flwr_mel.cycle.updates import (
    Rejected,
    agree,
    conform,
    decode,
    limited,
    norms,
    not_finite,
    scaled,
)

MODEL = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}


def changed(**arrays):
    return {**MODEL, **arrays}


def verdict(update, model=MODEL, others=4):
    """Return an update as it is averaged, among others that are like the model."""
    return conform(update, agree(model, [update, *[model] * others], others + 1, None).update, model)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


WRONG_TYPE = npy(np.zeros(3)).replace(b"<f8", b"<f9")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4"])
def test_values_that_are_not_finite(bad, kind):
    weights = np.zeros((2, 3), kind)
    weights[1, 2] = bad
    with pytest.raises(Rejected, match="array w has values that are not finite"):
        verdict(changed(w=weights))


@pytest.mark.parametrize("at", [0, 1 << 17, (1 << 17) + 5, 300_000])
def test_one_value_anywhere_in_a_large_array(at):
    array = np.zeros(300_001, np.float32)
    array[at] = np.nan
    assert not_finite({"w": array}, {}) == "w"
    assert not_finite({"w": array.reshape(-1, 1)[::-1]}, {}) == "w"
    array[at] = 0
    assert not not_finite({"w": array.reshape(-1, 1)[::-1]}, {})


def test_misshapen_updates():
    with pytest.raises(Rejected, match=r"shape \(3, 2\) instead of \(2, 3\)"):
        verdict(changed(w=np.zeros((3, 2), np.float32)))
    with pytest.raises(Rejected, match="3 arrays instead of 2"):
        verdict(changed(more=np.zeros(1)))
    with pytest.raises(Rejected, match="1 arrays instead of 2"):
        verdict({"w": MODEL["w"]})
    with pytest.raises(Rejected, match="type <U1, which cannot become float32"):
        verdict(changed(w=np.full((2, 3), "x")))


def test_arrays_without_dimensions_or_elements():
    model = {"t": np.array(0.5), "n": np.array(3, np.int64), "none": np.zeros((0, 4), np.float32)}
    verdict(dict(model), model)
    with pytest.raises(Rejected):
        verdict({**model, "t": np.array(np.nan)}, model)
    twice = scaled({**model, "t": np.array(1.0)}, model, 2.0)
    assert twice["t"] == 1.5
    assert twice["t"].shape == ()
    assert twice["n"] == 3


def bfloat16(*values):
    return np.array(values, np.float32).view(np.uint16)[1::2].copy().view("V2")


def test_a_model_of_bfloat16():
    """numpy reads it as two opaque bytes."""
    fine = bfloat16(1.0, -2.5)
    nan = np.array([0x7FC0, 0x3F80], np.uint16).view("V2")
    model = {"w": bfloat16(0.0, 0.5)}
    assert verdict({"w": fine}, model)["w"] is fine
    with pytest.raises(Rejected, match="not finite"):
        verdict({"w": nan}, model)
    with pytest.raises(Rejected, match="type float32, which cannot become bfloat16"):
        verdict({"w": np.ones(2, np.float32)}, model)
    assert scaled({"w": fine}, model, 1.0)["w"] is fine
    assert norms({"w": fine}, model)[0] == pytest.approx(np.sqrt(10))
    assert scaled({"w": fine}, model, 0.5)["w"].tobytes() == bfloat16(0.5, -1.0).tobytes()


def test_a_mask_of_infinities_may_stay():
    model = {"mask": np.array([0.0, -np.inf, -np.inf]), "w": np.zeros(2)}
    verdict({"mask": model["mask"].copy(), "w": np.ones(2)}, model)
    for wrong in ([np.nan, -np.inf, 0.0], [0.0, np.nan, -np.inf], [0.0, np.inf, -np.inf]):
        with pytest.raises(Rejected, match="mask"):
            verdict({"mask": np.array(wrong), "w": np.ones(2)}, model)
    opened = verdict({"mask": np.array([0.0, 0.0, -np.inf]), "w": np.ones(2)}, model)
    moved = scaled(opened, model, 0.5)
    assert moved["mask"].tolist() == [0.0, 0.0, -np.inf]
    assert moved["w"].tolist() == [0.5, 0.5]
    assert norms(opened, model)[0] == pytest.approx(np.sqrt(2))


FULL = {"base": np.zeros(100), "head": np.zeros(3)}
ADAPTERS = [{"lora_a": np.full(2, float(k)), "lora_b": np.ones((2, 2))} for k in range(9)]


class TestLayouts:
    def settled(self, updates, asked, before=None, model=None):
        agreed = agree(model or FULL, updates, asked, before)
        used = []
        for update in updates:
            with suppress(Rejected):
                used.append(conform(update, agreed.update, model or FULL))
        return agreed, used

    def test_adapters_only(self):
        """Projects that train LoRA adapters may return other arrays than they received."""
        agreed, used = self.settled([*ADAPTERS, FULL], 10)
        assert used == ADAPTERS
        assert scaled(used[1], FULL, 3.0)["lora_a"].tolist() == [1.0, 1.0]
        # Later a full model is odd there, even alone.
        assert self.settled([FULL], 10, agreed)[1] == []
        assert self.settled([ADAPTERS[0]], 10, agreed)[1] == ADAPTERS[:1]
        # One client in all: nothing was trained before.
        assert self.settled(ADAPTERS[:1], 1)[1] == ADAPTERS[:1]

    def test_most_replies_of_the_first_round_decide(self):
        """Many clients of a first round may fail."""
        assert self.settled(ADAPTERS[:3], 8)[1] == ADAPTERS[:3]
        assert self.settled([*ADAPTERS[:2], FULL, FULL], 8)[1] == [FULL, FULL]
        assert self.settled(ADAPTERS[:1], 2)[1] == []

    def test_the_only_reply_of_a_round_replaces_nothing(self):
        odd = {"w": np.full(2, 7.0)}
        assert self.settled([odd], 6)[1] == []
        before, _ = self.settled([FULL] * 6, 6)
        for asked in (6, 1):
            assert self.settled([odd], asked, before)[1] == []
        assert self.settled([odd] * 3, 6, before)[1] == []
        assert self.settled([odd] * 5 + [FULL], 6, before)[1] == [FULL]

    def test_a_project_may_change_its_layout(self):
        before, _ = self.settled([FULL] * 6, 6)
        assert self.settled(ADAPTERS[:4], 6, before)[1] == ADAPTERS[:4]
        # The server itself sends another model.
        grown = {"base": np.zeros(100), "head": np.zeros(5)}
        assert self.settled([grown], 6, before, grown)[1] == [grown]

    def test_an_average_by_position_sees_one_order(self):
        turned = dict(reversed(MODEL.items()))
        assert list(verdict(turned)) == list(MODEL)
        assert all(list(verdict(turned, others=n)) == ["b", "w"] for n in (0,))


class TestTypes:
    """One array of another type is cast if that keeps its values; floating-point numbers may be rounded."""

    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            (np.float64, [0.1, 1e-300, 3.0]),
            (np.float16, [0.1, 2.0, 3.0]),
            (">f4", [0.1, 2.0, 3.0]),
            (np.longdouble, [0.1, 2.0, 3.0]),
            (np.int64, [1, -2, 2**24]),
            (np.uint8, [1, 2, 3]),
            (bool, [True, False, True]),
        ],
    )
    def test_types_that_become_the_models(self, kind, values):
        array = np.array(values, kind)
        found = verdict(changed(b=array))["b"]
        assert found.dtype == np.float32
        assert found.tolist() == array.astype(np.float32).tolist()

    @pytest.mark.parametrize(
        ("array", "reason"),
        [
            (np.full(3, 10**15 + 1), "type int64, which cannot become float32"),
            (np.ones(3, np.complex64), "type complex64, which cannot become float32"),
            (bfloat16(1.0, 2.0, 3.0), "type bfloat16, which cannot become float32"),
            (np.full(3, np.longdouble("1e4000")), "not finite"),
            (np.full(3, 1e300), "not finite"),
            (np.array(["2020-01-01"] * 3, "M8[D]"), "cannot become float32"),
        ],
    )
    def test_types_that_do_not(self, array, reason):
        with pytest.raises(Rejected, match=f"array b has .*{reason}"):
            verdict(changed(b=array))

    @pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, bool])
    def test_a_model_of_whole_numbers(self, kind):
        model = {"w": np.array([0, 1, 1], kind)}
        assert verdict({"w": np.array([1.0, 0.0, 1.0])}, model)["w"].dtype == kind
        for odd in ([0.5, 0, 0], [1e30, 0, 0], [np.nan, 0, 0]):
            with pytest.raises(Rejected, match="type float64, which cannot become"):
                verdict({"w": np.array(odd)}, model)

    @pytest.mark.parametrize("kind", [np.float64, np.float16, np.complex64, np.int64])
    def test_what_most_clients_send_stays_as_it_is(self, kind):
        """A project that begins with a placeholder, or FedAdam, whose model is float64."""
        update = {name: x.astype(kind) for name, x in MODEL.items()}
        agreed = agree(MODEL, [update] * 4, 6, None)
        assert conform(update, agreed.update, MODEL) is update
        # From then on it is the type of the project.
        sent = {name: x.astype(np.float64) for name, x in MODEL.items()}
        assert conform(MODEL, agree(sent, [MODEL], 6, agreed).update, sent)["w"].dtype == kind
        # Half of the clients do not decide, and one never does.
        assert agree(MODEL, [update] * 3 + [MODEL] * 3, 9, None).update["w"][1] == np.float32
        assert agree(MODEL, [update] * 4, 9, agree(MODEL, [MODEL], 9, None)).update["w"][1] == np.float32
        before = agree(MODEL, [MODEL], 1, None)
        assert agree(MODEL, [update], 1, before).update["w"][1] == np.float32

    def test_types_that_no_average_takes(self):
        for kind in ("V2", np.longdouble):
            update = {name: np.zeros(x.shape, kind) for name, x in MODEL.items()}
            assert agree(MODEL, [update] * 4, 4, None).update["w"][1] == np.float32


def norm_layers(step):
    return {
        "conv.weight": np.full((2, 2), 1.0 + step),
        "bn.running_mean": np.full(2, 5.0 + step),
        "bn.running_var": np.full(2, 7.0 + step),
        "bn.num_batches_tracked": np.array(10 + step, np.int64),
        "fc.bias": np.full(2, 1.0 + step),
    }


def test_running_statistics_are_not_scaled():
    """Also in the classic API, where arrays have no names."""
    for names in (None, "0"):
        old, new = norm_layers(0), norm_layers(1)
        if names:
            old, new = ({str(i): x for i, x in enumerate(m.values())} for m in (old, new))
        half = list(scaled(new, old, 0.5).values())
        assert half[0].tolist() == [[1.5, 1.5], [1.5, 1.5]]
        assert [half[1][0], half[2][0], half[3]] == [6.0, 8.0, 11]
        assert half[4].tolist() == [1.5, 1.5]
        assert norms(new, old) == pytest.approx((np.sqrt(6), 2.0, 1.0))


def test_normalisation_is_found_by_its_name():
    """An integer after a layer norm is no batch normalisation; Keras' statistics are no weights."""
    old = {"ln.weight": np.ones(3), "ln.bias": np.zeros(3), "step": np.array(1)}
    new = {"ln.weight": np.full(3, 2.0), "ln.bias": np.ones(3), "step": np.array(2)}
    assert scaled(new, old, 0.5)["ln.weight"].tolist() == [1.5] * 3
    old = {"bn/gamma": np.ones(2), "bn/moving_variance": np.ones(2)}
    assert scaled(old | {"bn/moving_variance": np.zeros(2)}, old, 4.0)["bn/moving_variance"].tolist() == [
        0,
        0,
    ]


def test_a_factor_of_one_changes_no_bit():
    assert scaled(MODEL, MODEL, 1.0) is MODEL


def test_scaling_keeps_the_type():
    new = {"w": np.full((2, 3), 3, np.float16), "b": np.array([1, 2, 3], np.int8)}
    half = scaled(new, {"w": np.ones((2, 3), np.float16), "b": np.zeros(3, np.int8)}, 0.5)
    assert half["w"].dtype == np.float16
    assert float(half["w"][0, 0]) == 2.0
    assert half["b"].tolist() == [1, 2, 3]


def shrunk(sizes, works=None, ratio=2.0, past=(), factors=None):
    """Return what becomes of the sizes of weights."""
    works, factors = works or [1] * len(sizes), factors or [1.0] * len(sizes)
    found, usual = limited([(x, 0.0, 0.0) for x in sizes], factors, works, ratio, [(x, 0, 0) for x in past])
    return [x * y[0] * f for x, y, f in zip(sizes, found, factors, strict=True)], usual[0]


class TestNorms:
    def test_a_limit_without_a_jump(self):
        for size, left in ((1.9, 1.9), (1.999, 1.999), (2.001, 2.0), (50.0, 2.0), (np.inf, np.nan)):
            assert shrunk([1.0, 1.0, size])[0] == pytest.approx([1.0, 1.0, left], nan_ok=True)
        assert shrunk([0.0, 0.0, 5.0])[0] == [0.0, 0.0, 0.0]

    def test_half_of_the_clients_cannot_raise_it(self):
        assert shrunk([1.0, 1.0, 1e14, 1e14])[0] == [1.0, 1.0, 2.0, 2.0]

    def test_more_planned_work_allows_more(self):
        """As many times as there are more steps; work that the server did not plan is no reason."""
        assert shrunk([1.0, 1.0, 50.0, 1.0], [1, 1, 30, 1])[0] == [1.0, 1.0, 50.0, 1.0]
        assert shrunk([1.0, 1.0, 70.0, 1.0], [1, 1, 30, 1])[0] == [1.0, 1.0, 60.0, 1.0]
        assert shrunk([1.0, 1.0, 50.0, 1.0], [1, 1, 0, 1])[0] == [1.0, 1.0, 2.0, 1.0]
        # FedNova's changes are per step already: a false count of steps gains nothing.
        assert shrunk([1.0] * 3, [9, 9, 9], factors=[1.0, 1.0, 1e9])[0] == pytest.approx([1.0, 1.0, 2.0])

    def test_fewer_than_three(self):
        assert shrunk([1.0, 1e14]) == ([1.0, 2.0], 1.0)
        assert shrunk([1e14], past=[1.0, 1.2]) == ([pytest.approx(2.4)], pytest.approx(2.4))
        assert shrunk([1e14], past=[1.0])[0] == [2.0]
        assert shrunk([5.0])[0] == [5.0]  # nothing to compare with
        assert shrunk([]) == ([], 0.0)

    def test_an_attacker_among_two_clients_gains_nothing_over_time(self):
        past = []
        for _ in range(50):
            left, usual = shrunk([1.0, 1e14], past=past)
            past = [*past, usual][-2:]
            assert left == [1.0, 2.0]

    def test_larger_updates_of_two_clients_are_believed(self):
        assert shrunk([5.0, 6.0], past=[1.0, 1.0])[0] == [5.0, 6.0]

    def test_every_part_of_a_model_is_bounded(self):
        """Whole numbers, and running statistics, which a client could ruin alone."""
        old = {"w": np.zeros(4), "n": np.zeros(4, np.int32), "bn.running_var": np.ones(2)}

        def update(step):
            return {
                "w": old["w"] + step,
                "n": old["n"] + step,
                "bn.running_var": old["bn.running_var"] + step,
            }

        updates = [update(1), update(1), update(10**6)]
        found, _ = limited([norms(x, old) for x in updates], [1.0] * 3, [1] * 3, 2.0)
        left = scaled(updates[2], old, 1.0, found[2])
        assert left["w"] == pytest.approx(2.0)
        assert left["n"].tolist() == [2] * 4
        assert left["bn.running_var"] == pytest.approx(3.0)
        assert left["n"].dtype == np.int32
        assert found[:2] == [(1.0, 1.0, 1.0)] * 2


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\x03\x04", npy(np.zeros(3))[:-1], npy(np.zeros(3)) + b"x", WRONG_TYPE, "text", None],
)
def test_bytes_that_are_no_array(data):
    with pytest.raises(Rejected, match="cannot be decoded"):
        decode("w", data)


def test_a_pickle_is_never_loaded():
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(Rejected):
        decode("w", buffer.getvalue())
