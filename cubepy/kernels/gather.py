"""Reading by index: gather, take_along_axis, select."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, OutOfBoundsError, ShapeError
from cubepy.kernels.arguments import array_of, axis_of, finish, output, placed, wrapper
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise import contiguous, lanes_for
from cubepy.runtime import memory

CHUNK = 4096  # elements of a cube
UNITS = 256


@cb.func
def place_of(index, n, from_end: cb.Comptime[bool]):
    """An index as a place; with `from_end` negative ones count from the end."""
    if from_end:
        return cb.select(index < 0, index + cb.cast(n, index.dtype), index)
    return index


@cb.kernel
def gather_elements(
    x: cb.Array, index: cb.Array, out: cb.Array, chunk, single: cb.Comptime[bool], from_end: cb.Comptime[bool]
):
    """out[b, j, c] = x[b, index[b, j, c], c]; `single`: there is one column. Neighbouring units do neighbours."""
    n, m, columns = x.shape[1], out.shape[1], out.shape[2]
    run = m * columns
    chunks = (run + chunk - 1) // chunk
    b = cb.CUBE_POS // chunks
    first = (cb.CUBE_POS % chunks) * chunk
    for k in range(first + cb.UNIT_POS, cb.min(first + chunk, run), cb.CUBE_DIM):
        if single:
            out[b, k, 0] = x[b, place_of(index[b, k, 0], n, from_end), 0]
        else:
            j = k // columns
            c = k % columns
            out[b, j, c] = x[b, place_of(index[b, j, c], n, from_end), c]


@cb.kernel
def select_rows(x: cb.Array, index: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    """out[b, j] = x[b, index[j]], row by row; the units of a cube share a row."""
    m = out.shape[1]
    j = cb.CUBE_POS % m
    b = cb.CUBE_POS // m
    row = index[j]
    for c in range(cb.UNIT_POS * lanes, out.shape[2], cb.CUBE_DIM * lanes):
        out.store((b, j, c), x.load((b, row, c), lanes))


def check_indices(index: Any, n: int, what: str, from_end: bool = False) -> None:
    """Refuse indices that are no integers or, where the host can see them, outside of an axis.

    Raises:
        DTypeError, OutOfBoundsError: as it says.
    """
    if index.dtype.kind not in "iu":
        raise DTypeError(f"{what} needs integer indices, not {index.dtype}")
    if isinstance(index, np.ndarray) and index.size:
        low, high = int(index.min()), int(index.max())
        if low < (-n if from_end else 0) or high >= n:
            bad = high if high >= n else low
            raise OutOfBoundsError(f"{what}: the index {bad} is outside an axis of length {n}")


def as_blocks(x: Any, d: int) -> Any:
    """(before, along axis d, behind) of a contiguous array."""
    return x.reshape(math.prod(x.shape[:d]), x.shape[d], math.prod(x.shape[d + 1 :]))


def _gather(x: Any, index: Any, d: int, out: Any, from_end: bool, wrap: Any) -> Any:
    result = output(out, index.shape, x.dtype)
    if result.size:
        flat = result if result.flags.c_contiguous else memory.empty(result.shape, result.dtype)
        source, places, target = (as_blocks(contiguous(a), d) for a in (x, index, flat))
        blocks, m, columns = target.shape
        cubes = blocks * -(-m * columns // CHUNK)
        gather_elements[cubes, UNITS if has_planes() else 1](
            source, places, target, CHUNK, columns == 1, from_end, mode="checked"
        )
        if flat is not result:
            result[...] = flat
    return finish(result, out, wrap)


@placed
def gather(input: Any, axis: int, index: Any, *, out: Any = None) -> Any:
    """out[i, j, ...] = input[index[i, j, ...], j, ...] (for axis 0), as `torch.gather`.

    Args:
        input: array of any dtype.
        axis: the axis that is indexed.
        index: integers of the rank of `input`; along the other axes it may be shorter.
        out: array to write, of the shape of `index`.

    Raises:
        ShapeError: another rank, or an axis longer than that of `input`.
        OutOfBoundsError: an index outside the axis. On a GPU, which is not waited for, such an index gives zero, and
            an error in validate mode.

    Example:
        >>> import numpy as np
        >>> gather(np.array([[1, 2], [3, 4]]), 1, np.array([[0, 0], [1, 0]]))
        array([[1, 1],
               [4, 3]])
    """
    wrap, x, places = wrapper(input, index), array_of(input, "input"), array_of(index, "index")
    d = axis_of(axis, x.ndim)
    if places.ndim != x.ndim or any(a > b for k, (a, b) in enumerate(zip(places.shape, x.shape)) if k != d):
        raise ShapeError(f"gather along axis {d}: an index of shape {places.shape} does not go with {x.shape}")
    check_indices(places, x.shape[d], "gather")
    part = tuple(slice(None) if k == d else slice(0, m) for k, m in enumerate(places.shape))
    return _gather(x[part], places, d, out, False, wrap)


@placed
def take_along_axis(x: Any, indices: Any, axis: int | None = -1, *, out: Any = None) -> Any:
    """Elements at indices along an axis, as `numpy.take_along_axis`: the other axes broadcast, negative indices count
    from the end.

    Args:
        x: array of any dtype; flattened when `axis` is None.
        indices: integers of the same rank, such as what `argsort` gives.
        axis: int or None.
        out: array to write.

    Raises:
        ShapeError, OutOfBoundsError: as for `gather`.

    Example:
        >>> import numpy as np
        >>> take_along_axis(np.array([5, 3, 4]), np.array([1, 2, -3]))
        array([3, 4, 5])
    """
    wrap, array, places = wrapper(x, indices), array_of(x), array_of(indices, "indices")
    if axis is None:
        array, axis = contiguous(array).reshape(-1), 0
    d = axis_of(axis, array.ndim)
    if places.ndim != array.ndim:
        raise ShapeError(
            f"take_along_axis of shape {array.shape} needs indices of rank {array.ndim}, not {places.ndim}"
        )
    check_indices(places, array.shape[d], "take_along_axis", from_end=True)
    try:
        full = np.broadcast_shapes(
            tuple(1 if k == d else n for k, n in enumerate(array.shape)),
            tuple(1 if k == d else n for k, n in enumerate(places.shape)),
        )
    except ValueError:
        raise ShapeError(
            f"indices of shape {places.shape} do not broadcast to {array.shape} outside axis {d}"
        ) from None
    source = np.broadcast_to(array, tuple(array.shape[d] if k == d else n for k, n in enumerate(full)))
    wanted = np.broadcast_to(places, tuple(places.shape[d] if k == d else n for k, n in enumerate(full)))
    return _gather(source, wanted, d, out, True, wrap)


@placed
def select(input: Any, axis: int, index: Any, *, out: Any = None) -> Any:
    """Whole slices at the places of a list of indices, as `torch.index_select`.

    Args:
        input: array of any dtype.
        axis: the axis that is indexed.
        index: integers, rank 1.
        out: array to write.

    Raises:
        ShapeError: `index` has not rank 1.
        OutOfBoundsError: as for `gather`.

    Example:
        >>> import numpy as np
        >>> select(np.array([[1, 2], [3, 4]]), 1, np.array([1, 1, 0]))
        array([[2, 2, 1],
               [4, 4, 3]])
    """
    wrap, x, places = wrapper(input, index), array_of(input, "input"), array_of(index, "index")
    d = axis_of(axis, x.ndim)
    if places.ndim != 1:
        raise ShapeError(f"select needs indices of rank 1, not of shape {places.shape}")
    check_indices(places, x.shape[d], "select")
    shape = (*x.shape[:d], places.shape[0], *x.shape[d + 1 :])
    result = output(out, shape, x.dtype)
    if result.size:
        flat = result if result.flags.c_contiguous else memory.empty(shape, x.dtype)
        source, target = as_blocks(contiguous(x), d), as_blocks(flat, d)
        lanes = lanes_for(source)
        if target.shape[2] == 1:  # one column: rows of one element would be a cube each
            spread = np.broadcast_to(places, target.shape[:2])
            result[...] = _gather(source[:, :, 0], spread, 1, None, False, lambda a: a).reshape(shape)
            return finish(result, out, wrap)
        units = min(UNITS, max(32, target.shape[2] // lanes)) if has_planes() else 1
        select_rows[target.shape[0] * target.shape[1], units](source, places, target, lanes, mode="checked")
        if flat is not result:
            result[...] = flat
    return finish(result, out, wrap)
