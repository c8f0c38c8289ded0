"""The 128 bytes by which the hardware knows a tensor map, made once for each address, shape and
box.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from cubepy.backends.cuda.native import module
from cubepy.runtime.tables import room
from cubepy.runtime.tensor_map import ArrayMap

LIMIT = 4096
_made: dict[tuple[Any, ...], bytes] = {}


@cache
def _name(dtype: np.dtype) -> str:
    return dtype.name  # NumPy works it out anew each time


def encoded(value: ArrayMap) -> bytes:
    """The 128 bytes of a tensor map; they hold the array's address."""
    where = value.address
    key = (where, value.key)
    found = _made.get(key)
    if found is None:
        array = value.array
        name = "tf32" if value.tf32 else _name(array.dtype)
        found = module.tensor_map(
            where, name, array.shape, value.strides, value.box, swizzle=value.swizzle
        )
        room(_made, LIMIT)
        _made[key] = found
    return found
