"""Tensors on the host as arguments of repeated functions: their arrays are, and what comes of these
is a tensor again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.runtime.replay.standing import one_float, one_tuple

HOSTED: set[type] = set()
"""Classes whose objects give an array by `__cubepy_hosted__`, or None where a call has to know what
they are: they need a gradient, are recorded, packed, or on a device. Before, they may know a call
like it: `__cubepy_again__(function, values)` gives its result, or REFUSED.
"""
_SEVERAL = (tuple, list)


def arrays_of(values: tuple[Any, ...], out: int | None) -> list[Any] | None:
    """Arguments with arrays in place of tensors; None where one has none, or beside an `out`."""
    if out is not None and values[out] is not None:
        return None
    found = list(values)
    for n, v in enumerate(found):
        kind = type(v)
        if kind in HOSTED:
            v = v.__cubepy_hosted__()
            if v is None:
                return None
            found[n] = v
        elif kind in _SEVERAL:
            if any(type(part) in HOSTED for part in v):
                return None
            if kind is tuple:
                found[n] = one_tuple(v)
        elif kind is float:
            found[n] = one_float(v)
    return found


def wrapped(result: Any, wrap: Any) -> Any:
    """A result of arrays, or each of several, as tensors."""
    if isinstance(result, (np.ndarray, np.generic)):
        return wrap(result)
    if type(result) in _SEVERAL:
        return type(result)([wrapped(r, wrap) for r in result])
    return result
