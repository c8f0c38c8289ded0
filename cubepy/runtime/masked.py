"""Masked arrays are refused wherever arrays come in: no kernel knows masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ArgumentError


def refuse_masked(value: Any, name: str) -> None:
    """Refuse a masked array of NumPy: its mask would be dropped, and what lies under a mask is
    arbitrary.

    Raises:
        ArgumentError: it is one.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(
            f"{name} is a masked array, and masks are not heeded: what lies under them would count",
            hint="pass x.filled(number), or x.data and the mask as arrays of their own",
        )


def refuse_masked_parts(value: list[Any] | tuple[Any, ...], name: str) -> None:
    """`refuse_masked` for the items of a list."""
    for part in value:
        if isinstance(part, np.ma.MaskedArray):
            refuse_masked(part, f"a part of {name}")


def refused(value: Any, name: str) -> Any:
    """The value, unless it is a masked array: see `refuse_masked`."""
    refuse_masked(value, name)
    return value
