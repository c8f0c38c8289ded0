"""Whether a candidate's results are those of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def on_host(array: Any) -> np.ndarray:
    """An array's elements in NumPy, from wherever they are; a copy."""
    return np.array(array) if isinstance(array, np.ndarray) else np.asarray(array.numpy())


def poison(arrays: Sequence[Any]) -> None:
    """Fill outputs with what no candidate writes by chance, so that one that writes nothing is
    found out.
    """
    for a in arrays:
        kind = a.dtype.kind
        if kind in "iu":
            a.fill(np.iinfo(a.dtype).max)
        elif kind == "b":
            a.fill(True)
        else:
            a.fill(float("nan"))


def difference(
    found: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float
) -> str | None:
    """How results differ from what is expected, in one line; None when they agree.

    Integers must be equal; NaN agrees with NaN.

    Example:
        >>> import numpy as np
        >>> difference([np.array([1.0, 2.0])], [np.array([1.0, 3.0])], 1e-3, 0.0)
        'element (1,) is 2.0, expected 3.0; 1 of 2 differ'
    """
    if len(found) != len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for a, b in zip(found, expected):
        a, b = on_host(a), on_host(b)
        if a.shape != b.shape:
            return f"shape {a.shape}, expected {b.shape}"
        exact = a.dtype.kind in "iub"
        wide_a, wide_b = (a, b) if exact else (a.astype(np.float64), b.astype(np.float64))
        same = (
            wide_a == wide_b
            if exact
            else np.isclose(wide_a, wide_b, rtol=rtol, atol=atol, equal_nan=True)
        )
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            wrong = int((~same).sum())
            return (
                f"element {at} is {wide_a[at]}, expected {wide_b[at]}; {wrong} of {a.size} differ"
            )
    return None
