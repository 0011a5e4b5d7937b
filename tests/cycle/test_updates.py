"""Which updates are rejected, and how others are scaled."""

import io

import numpy as np
import pytest

from flwr_mel.cycle.updates import (
    Rejected,
    check,
    decode,
    expected_layout,
    layout_of,
    norm,
    not_finite,
    oversized,
    scaled,
)

MODEL = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}


def changed(**arrays):
    return {**MODEL, **arrays}


def verdict(update, model=MODEL, updates=None):
    check(update, expected_layout(model, updates or [update, model]), model)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


WRONG_TYPE = npy(np.zeros(3)).replace(b"<f8", b"<f9")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4", np.complex64])
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
    with pytest.raises(Rejected, match="cannot be averaged"):
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


def test_bfloat16():
    """numpy reads it as two opaque bytes."""
    fine = np.frombuffer(np.array([1.0, -2.5], np.float32).tobytes(), np.uint16)[1::2].copy().view("V2")
    nan = np.array([0x7FC0, 0x3F80], np.uint16).view("V2")
    verdict({"w": fine}, {"w": fine})
    with pytest.raises(Rejected, match="not finite"):
        verdict({"w": nan}, {"w": fine})
    assert scaled({"w": fine}, {"w": fine}, 1.0)["w"] is fine


def test_a_mask_of_infinities_may_stay():
    model = {"mask": np.array([0.0, -np.inf, -np.inf]), "w": np.zeros(2)}
    verdict({"mask": model["mask"].copy(), "w": np.ones(2)}, model)
    with pytest.raises(Rejected, match="mask"):
        verdict({"mask": np.array([np.nan, -np.inf, 0.0]), "w": np.ones(2)}, model)
    moved = scaled({"mask": model["mask"].copy(), "w": np.ones(2)}, model, 0.5)
    assert moved["mask"].tolist() == [0.0, -np.inf, -np.inf]
    assert moved["w"].tolist() == [0.5, 0.5]
    assert norm({"mask": model["mask"], "w": np.ones(2)}, model) == pytest.approx(np.sqrt(2))


def test_adapters_only():
    """Projects that train LoRA adapters may return other arrays than they received."""
    model = {"base": np.zeros(100), "head": np.zeros(3)}
    adapters = [{"lora_a": np.full(2, k), "lora_b": np.ones((2, 2))} for k in range(3)]
    expected = expected_layout(model, adapters)
    assert expected == layout_of(adapters[0])
    for update in adapters:
        check(update, expected, model)
    odd = {"lora_a": np.zeros(9), "lora_b": np.ones((2, 2))}
    assert expected_layout(model, [odd, *adapters]) == expected
    assert scaled(adapters[1], model, 3.0)["lora_a"].tolist() == [1.0, 1.0]
    assert expected_layout(model, []) == layout_of(model)


def test_another_type_of_numbers_is_no_other_shape():
    verdict(changed(w=np.ones((2, 3), np.float64)))
    verdict(changed(w=np.ones((2, 3), np.float16)))


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
        assert norm(new, old) == pytest.approx(np.sqrt(6))


def test_a_factor_of_one_changes_no_bit():
    assert scaled(MODEL, MODEL, 1.0) is MODEL


def test_scaling_keeps_the_type():
    new = {"w": np.full((2, 3), 3, np.float16), "b": np.array([1, 2, 3], np.int8)}
    half = scaled(new, {"w": np.ones((2, 3), np.float16), "b": np.zeros(3, np.int8)}, 0.5)
    assert half["w"].dtype == np.float16
    assert float(half["w"][0, 0]) == 2.0
    assert half["b"].tolist() == [1, 2, 3]


def test_what_is_too_large():
    assert oversized([1.0, 1.0, 50.0], [1, 1, 1], 2.0) == [1.0, 1.0, 0.02]
    assert oversized([1.0, 1.0, 3.0], [1, 1, 4], 2.0) == [1.0, 1.0, 1.0]
    assert oversized([1.0, 50.0], [1, 1], 2.0) == [1.0, 1.0]
    assert oversized([0.0, 0.0, 5.0], [1, 1, 1], 2.0) == [1.0, 1.0, 1.0]


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
