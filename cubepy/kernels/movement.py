"""Moving data: transpose (any permutation of axes) through register-transposed tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels import movement_cubes
from cubepy.kernels.arguments import array_of, finish, output, repeated, wholes, wrapper
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise import identity, run
from cubepy.kernels.matmul_kernels import transpose_lines
from cubepy.kernels.shapes import merged

TILE = 4  # squares of lanes x lanes that a cube does along each axis


@cb.kernel
def transpose_tiles(x: cb.Array, out: cb.Array, lanes: cb.Comptime[int], tile: cb.Comptime[int]):
    """out[b, i, j] = x[b, j, i]; neighbours lie along the last axis of both."""
    side = lanes * tile
    across = (out.shape[2] + side - 1) // side
    down = (out.shape[1] + side - 1) // side
    j0 = (cb.CUBE_POS % across) * side
    i0 = ((cb.CUBE_POS // across) % down) * side
    b = cb.CUBE_POS // (across * down)
    for j in range(j0, cb.min(j0 + side, out.shape[2]), lanes):
        for i in range(i0, cb.min(i0 + side, out.shape[1]), lanes):
            rows = ()
            for r in cb.unroll(range(lanes)):
                rows = rows + (x.load((b, j + r, i), lanes),)
            columns = transpose_lines(rows, lanes)
            for c in cb.unroll(range(lanes)):
                out.store((b, i + c, j), columns[c])


@repeated
def transpose(x: Any, axes: Any = None, *, out: Any = None) -> Any:
    """A contiguous copy with the axes permuted (reversed by default), as `numpy.transpose(x, axes).copy()`.

    Raises:
        ShapeError: `axes` is no permutation.

    Example:
        >>> import numpy as np
        >>> transpose(np.arange(6, dtype=np.float32).reshape(2, 3)).shape
        (3, 2)
    """
    wrap, array = wrapper(x), array_of(x)
    order = tuple(range(array.ndim))[::-1] if axes is None else wholes(axes, "axes")
    if sorted(a % array.ndim if -array.ndim <= a < array.ndim else -1 for a in order) != list(range(array.ndim)):
        raise ShapeError(f"axes {axes} are no permutation of the {array.ndim} axes of shape {array.shape}")
    moved = array.transpose(order)
    result = output(out, moved.shape, array.dtype)
    if result.size == 0:
        return finish(result, out, wrap)
    dest, source = merged([result, moved])
    square = _as_squares(dest, source)
    if square is None:
        run(identity, [moved], result)
    elif has_planes():
        movement_cubes.transpose(*square)
    else:
        d, s = square
        lanes = min(cb.device_properties_of().register_bytes // max(4, array.itemsize), 16)
        cubes = d.shape[0] * -(-d.shape[1] // (lanes * TILE)) * -(-d.shape[2] // (lanes * TILE))
        transpose_tiles[cubes, 1](s, d, lanes, TILE, mode="checked")
    return finish(result, out, wrap)


def _as_squares(dest: np.ndarray, source: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(batch, I, J) and (batch, J, I) views with unit strides at their ends, if two axes are simply swapped."""
    if dest.ndim < 2 or dest.dtype == np.bool_ or dest.strides[-1] != dest.itemsize:
        return None
    inner = [d for d in range(source.ndim - 1) if source.strides[d] == source.itemsize]
    if not inner or (dest.ndim > 3 and not has_planes()):
        return None
    d = inner[-1]
    order = [a for a in range(dest.ndim) if a not in (d, dest.ndim - 1)] + [d, dest.ndim - 1]
    to, back = dest.transpose(order), source.transpose(order)
    if to.ndim == 2:
        to, back = to[None], back[None]
    return to, back.transpose(*range(back.ndim - 2), back.ndim - 1, back.ndim - 2)
