"""Numbers in even steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import cubepy as cb
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.tune import Op, Routine

CHUNK = 4096  # elements of a cube on a CPU
UNITS = 256


@cb.kernel
def fill_steps(out: cb.Array, start, step, chunk):
    """out[k] = start + k * step; a cube does `chunk` neighbours."""
    first = cb.CUBE_POS * chunk
    for k in range(first + cb.UNIT_POS, cb.min(first + chunk, out.size), cb.CUBE_DIM):
        out[k] = cb.cast(start + k * step, out.dtype)


class Steps(NamedTuple):
    """What to fill, and with what."""

    out: Any
    start: Any
    step: Any


class EvenSteps(Routine):
    """Every element from its own number."""

    name = "steps"

    def launch(self, p: Steps, properties: cb.DeviceProperties) -> None:
        """A cube of a CPU does a chunk, units of planes an element each."""
        units, chunk = (UNITS, UNITS) if properties.plane_size > 1 else (1, CHUNK)
        fill_steps[-(-p.out.size // chunk), units](p.out, p.start, p.step, chunk, mode="unchecked")


STEPS = Op("steps", [EvenSteps()])


def steps(start: Any, step: Any, count: int, dtype: Any) -> Any:
    """A new array of `count` numbers on the current device: start, start + step, and so on; floats
    are computed in f64.

    Example:
        >>> steps(1, 3, 4, "i32")
        array([ 1,  4,  7, 10], dtype=int32)
    """
    found = as_dtype(dtype)
    out = memory.empty((count,), found.numpy)
    if count:
        kind = cb.f64 if found.is_float else cb.u64 if found.kind == "u" else cb.i64
        STEPS.run(Steps(out, kind(start), kind(step)))
    return out


def fill(out: Any, value: Any) -> None:
    """Set all elements of a contiguous array to a number of its dtype.

    Example:
        >>> import numpy as np
        >>> x = np.zeros(3, np.float16)
        >>> fill(x, np.float16(0.1))
        >>> x
        array([0.1, 0.1, 0.1], dtype=float16)
    """
    if out.size:
        found = as_dtype(out.dtype)
        kind = cb.f64 if found.is_float else cb.u64 if found.kind == "u" else cb.i64
        STEPS.run(Steps(out.reshape(-1), kind(value), kind(0)))
