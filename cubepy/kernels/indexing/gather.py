"""Reading by index: gather, take_along_axis, select."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of, axis_of
from cubepy.kernels.entry.dispatch import has_planes, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.indexing import gather_gpu
from cubepy.kernels.indexing.bounds import Look, check_indices, integers
from cubepy.kernels.indexing.gather_cpu import (
    CHUNK,
    FEW,
    LANES,
    UNITS,
    gather_columns,
    gather_elements,
    gather_lines,
    select_slices,
)
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.kernels.primitives.vector_width import STREAMING_BYTES, aligned, lanes_for
from cubepy.runtime import memory


@cb.kernel
def select_rows(x: cb.Array, index: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    """out[b, j] = x[b, index[j]], row by row; the units of a cube share a row."""
    m = out.shape[1]
    j = cb.CUBE_POS % m
    b = cb.CUBE_POS // m
    row = index[j]
    for c in range(cb.UNIT_POS * lanes, out.shape[2], cb.CUBE_DIM * lanes):
        out.store((b, j, c), x.load((b, row, c), lanes))


def as_blocks(x: Any, d: int) -> Any:
    """(before, along axis d, behind) of a contiguous array."""
    return x.reshape(math.prod(x.shape[:d]), x.shape[d], math.prod(x.shape[d + 1 :]))


def _gather(x: Any, index: Any, d: int, out: Any, from_end: bool, wrap: Any, what: str) -> Any:
    result = output(out, index.shape, x.dtype, x)
    if not (isinstance(index, np.ndarray) and result.size) or has_planes():
        check_indices(index, x.shape[d], what, from_end)
    if result.size:
        flat = result if result.flags.c_contiguous else memory.empty(result.shape, result.dtype)
        source, positions, target = (as_blocks(contiguous(a), d) for a in (x, index, flat))
        blocks, m, columns = target.shape
        if has_planes():
            gather_gpu.gather(source, positions, target, from_end)
        elif not isinstance(positions, np.ndarray):
            cubes = blocks * -(-m * columns // CHUNK)
            gather_elements[cubes, 1](
                source, positions, target, CHUNK, columns == 1, from_end, mode="checked"
            )
        elif columns == 1:
            flats = (a.reshape(blocks, -1) for a in (source, positions, target))
            _one_column(*flats, from_end, what)  # type: ignore[arg-type, call-arg]
        else:
            rows, look = max(1, CHUNK // columns), Look(positions, source.shape[1], what, from_end)
            gather_columns[blocks * -(-m // rows), 1](
                source,
                positions.reshape(blocks, -1),
                target,
                rows,
                *look.arguments,
                from_end,
                LANES,
                mode="unchecked",
            )
            look.done()
        if flat is not result:
            copy(flat, out=result)
    return finish(result, out, wrap)


def _one_column(source: Any, positions: Any, target: Any, from_end: bool, what: str) -> None:
    """target[b, k] = source[b, positions[b, k]] on a CPU."""
    blocks, m = target.shape
    look = Look(positions, source.shape[1], what, from_end)
    streaming = target.nbytes >= STREAMING_BYTES and m % LANES == 0 and aligned(target, LANES)
    gather_lines[blocks * -(-m // CHUNK), 1](
        source,
        positions,
        target,
        CHUNK,
        *look.arguments,
        from_end,
        LANES,
        streaming,
        mode="unchecked",
    )
    look.done()


@repeated
def gather(input: Any, axis: int, index: Any, *, out: Any = None) -> Any:
    """out[i, j, ...] = input[index[i, j, ...], j, ...] (for axis 0), as `torch.gather`.

    Args:
        input: array of any dtype.
        axis: the axis that is indexed.
        index: integers of the rank of `input`; along the other axes it may be shorter.
        out: array to write, of the shape of `index`.

    Raises: ShapeError: another rank, or an axis longer than that of `input`. OutOfBoundsError: an
        index is negative or not below the length of the axis. On a GPU, which is not waited for,
        such an index gives zero, and this error in validate mode or with CUBEPY_DEBUG=1.

    Example:
        >>> import numpy as np
        >>> gather(np.array([[1, 2], [3, 4]]), 1, np.array([[0, 0], [1, 0]]))
        array([[1, 1],
               [4, 3]])
    """
    wrap, x, positions = (
        wrapper(input, index),
        array_of(input, "input"),
        integers(array_of(index, "index"), "gather"),
    )
    d = axis_of(axis, x.ndim)
    if positions.ndim != x.ndim or any(
        a > b for k, (a, b) in enumerate(zip(positions.shape, x.shape)) if k != d
    ):
        raise ShapeError(
            f"gather along axis {d}: an index of shape {positions.shape} does not go with {x.shape}"
        )
    part = tuple(slice(None) if k == d else slice(0, m) for k, m in enumerate(positions.shape))
    return _gather(x[part], positions, d, out, False, wrap, "gather")


@repeated
def take_along_axis(x: Any, indices: Any, axis: int | None = -1, *, out: Any = None) -> Any:
    """Elements at indices along an axis, as `numpy.take_along_axis`: the other axes broadcast,
    negative indices count from the end.

    Args:
        x: array of any dtype; flattened when `axis` is None.
        indices: integers of the same rank, such as what `argsort` gives.
        axis: int or None.
        out: array to write.

    Raises: ShapeError: another rank, or shapes that do not broadcast. OutOfBoundsError: an index
        below minus the length of the axis, or not below the length. On a GPU as for `gather`.

    Example:
        >>> import numpy as np
        >>> take_along_axis(np.array([5, 3, 4]), np.array([1, 2, -3]))
        array([3, 4, 5])
    """
    wrap, array = wrapper(x, indices), array_of(x)
    positions = integers(array_of(indices, "indices"), "take_along_axis")
    if axis is None:
        array, axis = contiguous(array).reshape(-1), 0
    d = axis_of(axis, array.ndim)
    if positions.ndim != array.ndim:
        raise ShapeError(
            f"take_along_axis of shape {array.shape} needs indices of rank {array.ndim}, not "
            f"{positions.ndim}"
        )
    try:
        full = np.broadcast_shapes(
            tuple(1 if k == d else n for k, n in enumerate(array.shape)),
            tuple(1 if k == d else n for k, n in enumerate(positions.shape)),
        )
    except ValueError:
        raise ShapeError(
            f"indices of shape {positions.shape} do not broadcast to {array.shape} outside axis {d}"
        ) from None
    source = np.broadcast_to(
        array, tuple(array.shape[d] if k == d else n for k, n in enumerate(full))
    )
    wanted = np.broadcast_to(
        positions, tuple(positions.shape[d] if k == d else n for k, n in enumerate(full))
    )
    return _gather(source, wanted, d, out, True, wrap, "take_along_axis")


@repeated
def select(input: Any, axis: int, index: Any, *, out: Any = None) -> Any:
    """Whole slices at the positions of a list of indices, as `torch.index_select`.

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
    wrap, x, positions = (
        wrapper(input, index),
        array_of(input, "input"),
        integers(array_of(index, "index"), "select"),
    )
    d = axis_of(axis, x.ndim)
    if positions.ndim != 1:
        raise ShapeError(f"select needs indices of rank 1, not of shape {positions.shape}")
    shape = (*x.shape[:d], positions.shape[0], *x.shape[d + 1 :])
    result = output(out, shape, x.dtype, x)
    if not (isinstance(positions, np.ndarray) and result.size) or has_planes():
        check_indices(positions, x.shape[d], "select")
    if result.size:
        flat = result if result.flags.c_contiguous else memory.empty(shape, x.dtype)
        source, target = as_blocks(contiguous(x), d), as_blocks(flat, d)
        if target.shape[2] == 1:  # one column: rows of one element would be a cube each
            spread = np.broadcast_to(contiguous(positions), target.shape[:2])
            if has_planes() or not isinstance(positions, np.ndarray):
                _gather(
                    source[:, :, 0],
                    spread,
                    1,
                    flat.reshape(target.shape[:2]),
                    False,
                    lambda a: a,
                    "select",
                )
            else:
                _one_column(source[:, :, 0], spread, target[:, :, 0], False, "select")
        else:
            select_rows_of(source, contiguous(positions), target, "select")
        if flat is not result:
            copy(flat, out=result)
    return finish(result, out, wrap)


def select_rows_of(source: Any, positions: Any, target: Any, what: str) -> None:
    """target[b, j] = source[b, positions[j]] for contiguous arrays of rank 3; on a CPU with a look
    at the positions.
    """
    blocks, m, columns = target.shape
    lanes = lanes_for(source)
    if has_planes():
        units = min(UNITS, max(32, columns // lanes))
        select_rows[blocks * m, units](source, positions, target, lanes, mode="checked")
    elif isinstance(positions, np.ndarray):
        rows, look = (
            m if target.size <= FEW else max(1, CHUNK // columns),
            Look(positions, source.shape[1], what),
        )
        select_slices[blocks * -(-m // rows), 1](
            source, positions.reshape(1, -1), target, rows, *look.arguments, lanes, mode="unchecked"
        )
        look.done()
    else:
        select_rows[blocks * m, 1](source, positions, target, lanes, mode="checked")
