"""Reading by index: gather, take_along_axis, select."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of, axis_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.entry.shapes import joined_shape
from cubepy.kernels.indexing.bounds import check_indices, integers
from cubepy.kernels.indexing.problem import Gather, Select, as_blocks, blocks_read
from cubepy.kernels.indexing.routines import GATHER, SELECT
from cubepy.kernels.movement.copy import contiguous, fill
from cubepy.runtime import memory


def _gather(x: Any, index: Any, d: int, out: Any, from_end: bool, wrap: Any, what: str) -> Any:
    result = output(out, index.shape, x.dtype, x)
    if result.size:
        x, index = blocks_read(x, d), as_blocks(contiguous(index), d)
        fill(result, lambda to: GATHER.run(Gather(x, index, as_blocks(to, d), what, from_end)))
    else:
        check_indices(index, x.shape[d], what, from_end)
    return finish(result, out, wrap)


@repeated
def gather(input: Any, axis: int, index: Any, *, out: Any = None) -> Any:
    """out[i, j, ...] = input[index[i, j, ...], j, ...] (for axis 0), as `torch.gather`.

    Args:
        input: array of any dtype.
        axis: the axis that is indexed.
        index: integers of the rank of `input`; along the other axes it may be shorter.
        out: array to write, of the shape of `index`.

    Raises:
        ShapeError: another rank, or an axis longer than that of `input`.
        OutOfBoundsError: an index is negative or not below the length of the axis. On a GPU, which
            is not waited for, such an index gives zero, and this error in validate mode or with
            CUBEPY_DEBUG=1.

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

    Raises:
        ShapeError: another rank, or shapes that do not broadcast.
        OutOfBoundsError: an index below minus the length of the axis, or not below the length. On a
            GPU as for `gather`.

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
        full = joined_shape(
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
    if positions.ndim != 1:
        raise ShapeError(f"select needs indices of rank 1, not of shape {positions.shape}")
    d = axis_of(axis, x.ndim)
    result = output(out, (*x.shape[:d], *positions.shape, *x.shape[d + 1 :]), x.dtype, x)
    slices(as_blocks(contiguous(x), d), positions, result, "select")
    return finish(result, out, wrap)


def taken(x: Any, axis: int, index: Any) -> Any:
    """Slices of an array on a GPU at indices of any rank, whose axes replace the one; negative ones
    count from the end.
    """
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    result = memory.empty(shape, x.dtype)
    slices(as_blocks(contiguous(x), axis), index, result, "an index", from_end=True)
    return result


def slices(x: Any, index: Any, result: Any, what: str, from_end: bool = False) -> None:
    """result[b, j] = x[b, index[j]], whatever shapes index and result have."""
    (blocks, n, columns), flat = x.shape, contiguous(index).reshape(-1)
    if result.size:
        shape = (blocks, flat.size, columns)
        fill(result, lambda to: SELECT.run(Select(x, flat, to.reshape(shape), what, from_end)))
    else:
        check_indices(index, n, what, from_end)
