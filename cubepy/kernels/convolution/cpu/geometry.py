"""The integers of a launch of the CPU's convolutions, made on the host; a struct in the kernel has
their names.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def integers(geometry: Any, largest: int) -> tuple[Any, ...]:
    """The fields of a struct in order; of 64 bits where arrays have up to `largest` elements, whose
    offsets 32 do not hold.
    """
    fields = tuple(geometry.__cubepy_values__.values())
    return tuple(np.int64(v) for v in fields) if largest >= 1 << 31 else fields


def some_integers(geometry: Any, **known: int) -> tuple[int, ...]:
    """The fields of a type of struct for a kernel that reads those that are `known`, and no
    other.
    """
    return tuple(known.get(field.name, 0) for field in geometry.fields)
