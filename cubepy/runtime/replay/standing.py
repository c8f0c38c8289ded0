"""One tuple, or number, for all that are equal: a call is known by the addresses of its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.compiler.signature import exact
from cubepy.runtime.tables import room

_tuples: dict[tuple[Any, ...], tuple[Any, ...]] = {}
_equal: dict[Any, tuple[Any, ...]] = {}
"""Those that are equal to one that stands for others, and not alike: (2.0,) after (2,)."""
_floats: dict[float, float] = {}


def one_float(value: float) -> float:
    """The number that stands for all equal ones; zeros, which have a sign, are as they are."""
    found = _floats.get(value)
    if found is None:
        if not value or value != value:
            return value
        room(_floats, 4096)
        _floats[value] = found = value
    return found


def one_tuple(attribute: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tuple that stands for all equal ones: short keys have the address of an
    attribute.
    """
    try:
        found = _tuples.get(attribute)
    except TypeError:  # something unhashable
        return attribute
    if found is None:
        room(_tuples, 4096)
        found = _tuples[attribute] = attribute
    if found is attribute or _alike(found, attribute):
        return found
    room(_equal, 4096)
    return _equal.setdefault(exact(attribute), attribute)


_DEEP = frozenset([tuple, float])


def _alike(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether equal tuples have equal types, and zeros of equal signs: 1 is not 1.0, nor true."""
    for a, b in zip(one, other, strict=True):
        if type(a) is not type(b) or type(a) in _DEEP and exact(a) != exact(b):
            return False
    return True


ONE: dict[type, Callable[[Any], Any]] = {tuple: one_tuple, float: one_float}
"""By the type of an option, what gives the object that stands for it."""
