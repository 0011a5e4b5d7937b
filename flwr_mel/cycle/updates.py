"""Checking and scaling updates. Arrays are views of what came over the network; checks copy nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from flwr_mel._npy import BFLOAT16, narrow, read_npy, wide
from flwr_mel._text import printable

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Layout = Mapping[str, tuple[int, ...]]
Form = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
#: Of the weights, the running statistics and the whole numbers of a model.
Sizes = tuple[float, float, float]
V = TypeVar("V")

#: Numbers that are looked at together, so that they stay in the processor's cache.
_CHUNK = 1 << 17
#: Entries along each axis that are compared first.
_HEAD = 8
# All ones in a bfloat16 that is not finite.
_EXPONENT = np.uint16(0x7F80)
# Names of the running statistics of normalisation layers in torch and Keras.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked", "moving_mean", "moving_variance")


class Rejected(ValueError):
    """An update that cannot be averaged, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason, 300))


def decode(name: str, data: object) -> Array:
    """Return a view of one array of an update, or reject it.

    Parameters
    ----------
    name : str
        For the reason.
    data : bytes
        In numpy's .npy format.
    """
    try:
        return read_npy(data)
    except ValueError as error:
        raise Rejected(f"array {name[:60]} cannot be decoded: {error}") from None


def layout_of(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shapes by name."""
    return {name: array.shape for name, array in arrays.items()}


@dataclass(frozen=True, slots=True)
class Agreement:
    """Which arrays clients return for which model.

    Parameters
    ----------
    model : mapping of name to shape
        Sent to the clients.
    update : mapping of name to shape and type
        Returned by them.
    """

    model: Layout
    update: Form


def agree(model: Arrays, updates: Sequence[Arrays], asked: int, before: Agreement | None) -> Agreement:
    """Return which arrays updates must have: as before, or as most clients of the round have them.

    Clients that train adapters, or begin with a placeholder, return other arrays than they received, and
    numpy makes float64 of float32: most replies of the first round show it. Later, a change needs most of the
    clients that had a task, and none may have the old arrays. One reply of several never suffices.

    Parameters
    ----------
    model : mapping of name to array
        Sent to the clients.
    updates : sequence of such mappings
        Received from them.
    asked : int
        Clients that had a task.
    before : Agreement, optional
        Of the last round with a used update; None: there was none.
    """
    sent, old = layout_of(model), _form(model)
    if before is not None and before.model == sent:
        old = dict(before.update)
    most = max(len(updates) // 2 + 1, min(asked, 2)) if before is None else max(asked // 2 + 1, 2)
    forms = votes([_form(update) for update in updates])
    layouts = votes([_shapes(form) for form, votes in forms for _ in range(votes)])
    layout = _shapes(old)
    if layouts and layouts[0][1] >= most and (before is None or layout not in [x for x, _ in layouts]):
        layout = layouts[0][0]
    fitting = [(x, n) for x, n in forms if _shapes(x) == layout and _plain(x, old)]
    if layout == _shapes(old):
        fitting = [(x, n) for x, n in fitting if n >= most]
    return Agreement(sent, fitting[0][0] if fitting else old)


def _form(arrays: Arrays) -> Form:
    """Return shapes and types by name."""
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def _shapes(form: Form) -> Layout:
    """Return the shapes of a form."""
    return {name: shape for name, (shape, _) in form.items()}


def _plain(form: Form, old: Form) -> bool:
    """Whether all types are numbers that every average can compute with, or were there before."""
    return all(
        (kind.kind in "biufc" and kind.itemsize <= (16 if kind.kind == "c" else 8))
        or old.get(name, ((), None))[1] == kind
        for name, (_, kind) in form.items()
    )


def votes(found: Iterable[V]) -> list[tuple[V, int]]:
    """Return the different values and how often each was found, the most common first."""
    counted: list[tuple[V, int]] = []
    for value in found:
        at = next((i for i, (known, _) in enumerate(counted) if known == value), None)
        if at is None:
            counted.append((value, 1))
        else:
            counted[at] = (value, counted[at][1] + 1)
    return sorted(counted, key=lambda pair: -pair[1])


def conform(update: Arrays, expected: Form, model: Arrays) -> Arrays:
    """Return an update with the expected arrays in their order and types; reject it if that is impossible.

    Between floating-point types a cast may round. Every other cast must keep the values.

    Parameters
    ----------
    update : mapping of name to array
        Received from a client.
    expected : mapping of name to shape and type
        From `agree`.
    model : mapping of name to array
        Sent to the clients: what is not finite there, such as a mask of -inf, may stay so.
    """
    if update.keys() != expected.keys():
        odd = ", ".join(sorted(update.keys() ^ expected.keys())[:3])
        raise Rejected(f"it has {len(update)} arrays instead of {len(expected)} (different: {odd[:120]})")
    for name, (shape, _) in expected.items():
        if update[name].shape != shape:
            raise Rejected(f"array {name[:60]} has shape {update[name].shape} instead of {shape}")
    new = {name: _cast(name, update[name], kind) for name, (_, kind) in expected.items()}
    wrong = not_finite(new, model, received=True)
    if wrong:
        raise Rejected(f"array {wrong[:60]} has values that are not finite")
    kept = list(new) == list(update) and all(new[name] is x for name, x in update.items())
    return update if kept else new


def _cast(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array in a type, or reject it."""
    given, wanted = array.dtype, dtype
    if given == wanted:
        return array
    if given.kind in "biufc" and wanted.kind in "biufc" and (given.kind != "c" or wanted.kind == "c"):
        with np.errstate(all="ignore"):
            new = array.astype(wanted)
            if (given.kind in "fc" and wanted.kind in "fc") or np.array_equal(new.astype(given), array):
                return new
    raise Rejected(f"array {name[:60]} has type {_named(given)}, which cannot become {_named(wanted)}")


def _named(dtype: np.dtype[Any]) -> str:
    """Return the name of a type."""
    return "bfloat16" if dtype == BFLOAT16 else str(dtype)


def not_finite(arrays: Arrays, model: Arrays, *, received: bool = False) -> str:
    """Return the first array with values that are not finite where the model's are; or "".

    In what was `received` from a client, an infinity of the model may only stay as it is: a NaN there would
    reach the new model.
    """
    for name, array in arrays.items():
        if not _finite(array):
            old = model.get(name)
            if old is None or old.shape != array.shape or old.dtype.kind not in "fc":
                return name
            may = np.isnan(old) | (array == old) if received else ~np.isfinite(old)
            if not bool(np.all(np.isfinite(array) | may)):
                return name
    return ""


def same(update: Arrays, model: Arrays) -> bool:
    """Whether an update is the model itself, to the bit.

    Parameters
    ----------
    update, model : mapping of name to array
        Received and sent.
    """
    if not update or update.keys() != model.keys():
        return False
    # The last layers first: projects that freeze some train these.
    return all(_equal(array, model[name]) for name, array in reversed(list(update.items())))


def _equal(new: Array, old: Array) -> bool:
    """Whether two arrays are equal; trained ones mostly differ in the first numbers."""
    if new.shape != old.shape or new.dtype != old.dtype:
        return False
    head = (slice(_HEAD),) * new.ndim
    return np.array_equal(new[head], old[head]) and np.array_equal(new, old)


def _finite(array: Array) -> bool:
    """Whether all values are finite numbers."""
    if not array.size or array.dtype.kind in "biu":
        return True
    if array.dtype == BFLOAT16:
        bits = array.view(np.uint16)
        return not any(((part & _EXPONENT) == _EXPONENT).any() for part in _chunks(bits))
    if array.dtype.kind == "c":
        return _finite(array.real) and _finite(array.imag)
    if array.dtype.kind != "f":
        raise Rejected(f"it has an array of type {array.dtype}, which cannot be averaged")
    if array.flags.forc and array.dtype.itemsize >= 4:
        flat = array.reshape(-1, order="A")
        with np.errstate(all="ignore"):
            # One pass: a finite sum of squares has finite terms. Very large values need a closer look.
            if np.isfinite(np.dot(flat, flat)):
                return True
    # A NaN is the least and the largest of its chunk.
    return all(np.isfinite(part.min()) and np.isfinite(part.max()) for part in _chunks(array))


def _chunks(array: Array) -> Iterator[Array]:
    """Yield parts that fit the processor's cache, so that looking twice costs little more than once."""
    if not array.flags.forc:
        yield array
        return
    flat = array.reshape(-1, order="A")
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def scaled(update: Arrays, model: Arrays, factor: float, bounds: Sizes = (1.0, 1.0, 1.0)) -> Arrays:
    """Return an update with its change of the model multiplied, computed in double precision.

    Arrays that the model does not have stay as they are.

    Parameters
    ----------
    update, model : mappings of name to array
        Received and sent.
    factor : float
        Of the weights. Running statistics and whole numbers do not grow with the number of steps.
    bounds : tuple of three floats
        From `limited`, multiplied in addition.
    """
    factors = (factor * bounds[0], *bounds[1:])
    if factors == (1.0, 1.0, 1.0):
        return update
    parts = _parts(update)
    return {
        name: x
        if factors[parts[name]] == 1 or name not in model or model[name].shape != x.shape
        else _moved(x, model[name], factors[parts[name]])
        for name, x in update.items()
    }


def _moved(new: Array, old: Array, factor: float) -> Array:
    """Return an array whose change of the model is multiplied; the model's masks of -inf have none."""
    with np.errstate(invalid="ignore", over="ignore"):
        start, moved = wide(old), wide(new)
        moved -= start
        moved *= factor
        moved += start
        result = narrow(moved, new.dtype)
        known = np.isfinite(start)
        return result if known.all() else np.where(known, result, new)


def _parts(arrays: Arrays) -> dict[str, int]:
    """Return which part of a model each array is: 0 weights, 1 running statistics, 2 whole numbers.

    Where arrays have no names, torch's batch normalisation is found by its order: a mean, a variance and a
    counter of batches.
    """
    names, values = list(arrays), list(arrays.values())
    parts = [2 if x.dtype.kind in "biu" else int(name.endswith(_STATISTICS)) for name, x in arrays.items()]
    for i in [i for i, part in enumerate(parts) if part == 2 and i >= 2 and names[i].isdecimal()]:
        mean, variance = values[i - 2], values[i - 1]
        if (
            values[i].ndim == 0
            and values[i].dtype.kind != "b"
            and mean.ndim == 1
            and mean.shape == variance.shape
        ):
            parts[i - 2] = parts[i - 1] = 1
    return dict(zip(names, parts, strict=True))


def norms(update: Arrays, model: Arrays) -> Sizes:
    """Return the sizes of an update's change of the model's weights, running statistics and whole numbers."""
    parts, total = _parts(update), [0.0, 0.0, 0.0]
    for name, new in update.items():
        old = model.get(name)
        if old is None or old.shape != new.shape:
            continue
        order: Literal["C", "F"] = "F" if new.flags.fnc else "C"
        pairs = zip(_chunks(new.reshape(-1, order=order)), _chunks(old.reshape(-1, order=order)), strict=True)
        with np.errstate(invalid="ignore", over="ignore"):
            for a, b in pairs:
                change = wide(a) - wide(b)
                square = float(np.vdot(change, change).real)
                if not np.isfinite(square):
                    change[~np.isfinite(wide(b))] = 0
                    square = float(np.vdot(change, change).real)
                total[parts[name]] += square
    return total[0] ** 0.5, total[1] ** 0.5, total[2] ** 0.5


def limited(
    changes: Sequence[Sizes],
    factors: Sequence[float],
    works: Sequence[float],
    ratio: float,
    past: Sequence[Sizes] = (),
) -> tuple[list[Sizes], Sizes]:
    """Return by which factors (at most 1) each update is scaled down, and the usual sizes of this round.

    An update may be `ratio` times as large as the median update. The change of n steps is at most n times
    that of the largest step: a task with more work than the median task allows as many times more. Fewer
    than three updates are compared with the usual sizes of the last two rounds, too; a lone one lets the
    usual size grow by `ratio` at most. The median is the lower one, which half of the clients cannot raise.

    Parameters
    ----------
    changes : sequence of three sizes
        From `norms`, per learner.
    factors : sequence of float
        From `blend`: FedNova's changes are per step, and more work is no reason for larger ones.
    works : sequence of float
        Samples that the task allows to process, as the server planned them; 0: it did not.
    ratio : float
        `Robust.max_norm_ratio`.
    past : sequence of three sizes
        What this returned in the last rounds.
    """
    usual_work = median_low([work for work in works if work] or [1.0])
    more = [max(work / usual_work, 1.0) for work in works]
    found, usual = [], []
    for part in range(3):
        nova = part == 0 and any(factor != 1 for factor in factors)
        sizes = [size[part] * (f if nova else 1) for size, f in zip(changes, factors, strict=True)]
        others = [size[part] for size in past][-2:] if len(sizes) < 3 else []
        middle = median_low([*sizes, *others[len(sizes) - 3 :]]) if sizes else 0.0
        allowed = [ratio * middle * (1 if nova else m) for m in more]
        found.append(
            [min(1.0, a / size) if size > 0 else 1.0 for a, size in zip(allowed, sizes, strict=True)]
        )
        usual.append(min(sizes[0], allowed[0]) if len(sizes) == 1 else middle)
    return list(zip(*found, strict=True)), (usual[0], usual[1], usual[2])
