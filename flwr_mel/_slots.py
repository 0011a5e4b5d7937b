"""Copies of dataclasses with slots, for what is copied once per learner and cycle."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

_put = object.__setattr__


def changed(x: T, **fields: Any) -> T:
    """Return a copy with some fields changed: `dataclasses.replace` at a quarter of its price.

    Nothing is checked again: ``__init__`` and ``__post_init__`` do not run.

    Parameters
    ----------
    x : dataclass with slots
        It stays as it is.
    **fields
        What is different.
    """
    cls = type(x)
    made = cls.__new__(cls)
    for name in cls.__slots__:  # type: ignore[attr-defined]
        _put(made, name, fields[name] if name in fields else getattr(x, name))
    return made
