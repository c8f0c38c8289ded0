"""Masked arrays are refused wherever arrays come in: no kernel knows masks."""

from __future__ import annotations

import sys
from typing import Any

from cubepy.errors import ArgumentError


def is_masked(value: Any) -> bool:
    """Whether a value is a masked array; there is none before somebody imports `numpy.ma`, which
    takes a while.
    """
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def refuse_masked(value: Any, name: str) -> None:
    """Refuse a masked array of NumPy: its mask would be dropped, and what lies under a mask is
    arbitrary.

    Raises:
        ArgumentError: it is one.
    """
    if is_masked(value):
        raise ArgumentError(
            f"{name} is a masked array, and masks are not heeded: what lies under them would count",
            hint="pass x.filled(number), or x.data and the mask as arrays of their own",
        )


def refuse_masked_parts(value: list[Any] | tuple[Any, ...], name: str) -> None:
    """`refuse_masked` for the items of a list."""
    for part in value:
        if is_masked(part):
            refuse_masked(part, f"a part of {name}")


def refused(value: Any, name: str) -> Any:
    """The value, unless it is a masked array: see `refuse_masked`."""
    refuse_masked(value, name)
    return value
