"""Where masks hold, and what they select, whose numbers only the work itself says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.scan import mask_gpu
from cubepy.kernels.scan.problem import Mask
from cubepy.kernels.scan.scan import cumsum
from cubepy.runtime import memory
from cubepy.tune import Op, Routine

CHUNK = 1 << 12  # elements of a cube


@cb.kernel
def put_selected(mask: cb.Array, ends: cb.Array, x, out: cb.Array, count: cb.Array, shape, chunk):
    """out[:, n] = the index of the n-th element of a mask that holds, along the axes of `shape`;
    or out[n] = x[i] for it, a row. ends: how many hold up to each element.
    """
    first = cb.CUBE_POS * chunk
    for i in range(first, cb.min(first + chunk, mask.size)):
        if mask[i] != 0:
            to = ends[i] - 1
            if x is None:
                index = cb.unravel(i, shape)
                for d in cb.unroll(range(len(shape))):
                    out[d, to] = cb.cast(index[d], out.dtype)
            else:
                for c in range(x.shape[1]):
                    out[to, c] = x[i, c]
    if first + chunk >= mask.size:
        count[0] = ends[mask.size - 1]


class Counted(Routine):
    """Each element that holds goes to where a running count says."""

    name = "counted"

    def launch(self, p: Mask, properties: cb.DeviceProperties) -> None:
        """A cube does a part of the mask."""
        ends = cumsum(p.mask)
        cubes = -(-p.mask.size // CHUNK)
        put_selected[cubes, 1](p.mask, ends, p.x, p.out, p.count, p.shape, CHUNK, mode="unchecked")


MASK = Op("mask", [mask_gpu.Tiles(), Counted()])


def _run(mask: Any, x: Any, out: Any) -> tuple[Any, Any]:
    count = memory.empty((1,), np.int64)
    if mask.size:
        whole = contiguous(mask)
        bits = whole.view(np.uint8) if mask.dtype == np.bool_ else whole
        MASK.run(Mask(bits.reshape(-1), x, out, count, mask.shape))
    else:
        count[...] = 0
    return out, count


def positions(mask: Any) -> tuple[Any, Any]:
    """The indices (i64) of the elements of a mask that hold, a row for each axis, in the first
    columns of a matrix that has one for each element; and how many they are, one number (i64).

    Example:
        >>> import numpy as np
        >>> found, count = positions(np.array([[True], [False], [True]]))
        >>> found[:, : count[0]]
        array([[0, 2],
               [0, 0]])
    """
    return _run(mask, None, memory.empty((mask.ndim, mask.size), np.int64))


def selected(x: Any, mask: Any) -> tuple[Any, Any]:
    """What a mask of the first axes of x selects, the first of as many as it has elements; and how
    many they are, one number (i64).

    Example:
        >>> import numpy as np
        >>> found, count = selected(np.array([5.0, 6.0, 7.0]), np.array([True, False, True]))
        >>> found[: count[0]]
        array([5., 7.])
    """
    shape = (mask.size, *x.shape[mask.ndim :])
    out = memory.empty(shape, x.dtype)
    width = math.prod(shape[1:])
    if not width:
        return out, positions(mask)[1]
    rows = contiguous(x).reshape(mask.size, width)
    return out, _run(mask, rows, out.reshape(mask.size, width))[1]
