"""Writing by index: scatter and index_put, each with an explicit update: assign, add, mul, min or
max.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.entry.arguments import array_of, axis_of
from cubepy.kernels.entry.dispatch import placed, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.entry.shapes import joined_shape
from cubepy.kernels.indexing.bounds import check_indices
from cubepy.kernels.indexing.problem import Put, Scatter
from cubepy.kernels.indexing.routines import INDEX_PUT, SCATTER
from cubepy.kernels.indexing.scatter_kernels import UPDATES
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory, recording


def _checked(update: str) -> str:
    if not isinstance(update, str) or update not in UPDATES:
        raise ShapeError(f"an update is one of {', '.join(UPDATES)}, not {update!r}")
    return update


def _delivered(target: Any, out: Any, wrap: Any) -> Any:
    """What a function returns whose routine wrote a target."""
    if out is not None and not np.may_share_memory(target, given := array_of(out, "out")):
        convert_into(given, target)
    return finish(target, out, wrap)


@repeated
def scatter(
    input: Any, axis: int, index: Any, src: Any, update: str = "assign", *, out: Any = None
) -> Any:
    """A copy of `input` where position index[i, j, ...] along an axis is updated with src[i, j,
    ...], as `torch.scatter`.

    Args:
        input: array of any dtype.
        axis: the axis that is indexed.
        index: integers of the rank of `input`; along the other axes it may be shorter.
        src: array that covers `index`, or a number.
        update: "assign", "add", "mul", "min" or "max".
        out: array to write; `input` itself to work in place.

    Raises:
        ShapeError: shapes that do not go together, or an unknown update.
        OutOfBoundsError: an index is negative or not below the length of the axis. On a GPU, which
            is not waited for, such an update is dropped, and this is raised in validate mode or
            with CUBEPY_DEBUG=1.

    Example:
        >>> import numpy as np
        >>> scatter(np.zeros(3), 0, np.array([0, 2, 2]), np.array([1.0, 2.0, 3.0]), "add")
        array([1., 0., 5.])
    """
    wrap, x, positions = (
        wrapper(input, index, src),
        array_of(input, "input"),
        array_of(index, "index"),
    )
    _checked(update)
    d = axis_of(axis, x.ndim)
    if positions.ndim != x.ndim or any(
        a > b for k, (a, b) in enumerate(zip(positions.shape, x.shape)) if k != d
    ):
        raise ShapeError(
            f"scatter along axis {d}: an index of shape {positions.shape} does not go with "
            f"{x.shape}"
        )
    check_indices(positions, x.shape[d], "scatter")
    values = _values(src, positions.shape, x.dtype)
    given = None if out is None else output(out, x.shape, x.dtype, positions, values)
    target = SCATTER.run(Scatter(x, positions, values, update, given, d))
    return _delivered(target, out, wrap)


def _values(src: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """`src` cut to a shape; numbers fill it."""
    values = array_of(src, "src")
    if values.ndim == 0:
        if values.dtype.kind not in "fiub":
            raise DTypeError(f"src must hold numbers, not {values.dtype}")
        one = memory.empty((1,) * len(shape), dtype)
        one[...] = values
        if (
            not isinstance(src, np.ndarray)
            and recording.active
            and (recorder := recording.current()) is not None
        ):
            recorder.constant(one)
        return np.broadcast_to(one, shape)
    if values.ndim != len(shape) or any(a < b for a, b in zip(values.shape, shape)):
        raise ShapeError(f"src of shape {values.shape} does not cover an index of shape {shape}")
    return values[tuple(slice(0, n) for n in shape)]


def index_put(
    input: Any, indices: Any, values: Any, update: str = "assign", *, out: Any = None
) -> Any:
    """A copy of `input` where the positions `input[indices]` are updated with `values`, as
    `torch.index_put`.

    Args:
        input: array of any dtype.
        indices: tuple of integer arrays for the first axes; they broadcast, negative ones count
            from the end.
        values: broadcastable to what `input[indices]` gives.
        update: "assign", "add" (torch's accumulate), "mul", "min" or "max".
        out: array to write; `input` itself to work in place.

    Raises:
        ShapeError: shapes that do not go together, or an unknown update.
        OutOfBoundsError: an index below minus the length of its axis, or not below the length. On a
            GPU as for `scatter`.

    Example:
        >>> import numpy as np
        >>> index_put(np.zeros((2, 2)), (np.array([0, 0, 1]), np.array([1, 1, 0])), 1.0, "add")
        array([[0., 2.],
               [1., 0.]])
    """
    lists = (
        indices
        if type(indices) is tuple
        else tuple(indices)
        if isinstance(indices, (tuple, list))
        else (indices,)
    )
    if type(input) is np.ndarray and type(values) is np.ndarray and values.ndim:
        return _put(input, values, *lists, update=update, out=out)
    return _put_any(input, lists, values, update, out)


@placed
def _put_any(input: Any, lists: tuple[Any, ...], values: Any, update: str, out: Any) -> Any:
    """`index_put` of tensors and numbers."""
    wrap, x, given = wrapper(input, values), array_of(input, "input"), array_of(values, "values")
    if given.ndim == 0:
        as_dtype(given.dtype)  # refuses what is no number
        given, number = memory.empty((1,), x.dtype), given
        given[...] = number
    positions = (array_of(i, "indices") for i in lists)
    done = _put(
        x, given, *positions, update=update, out=None if out is None else array_of(out, "out")
    )
    return finish(done, out, wrap)


@repeated
def _put(*arrays: Any, update: str, out: Any = None) -> Any:
    """`index_put` into the first array of the second one, by the others."""
    x, given = arrays[:2]
    lists = [array_of(i, "indices") for i in arrays[2:]]
    _checked(update)
    if not 1 <= len(lists) <= x.ndim:
        raise ShapeError(
            f"index_put into {x.ndim} axes takes 1 to {x.ndim} index arrays, not {len(lists)}"
        )
    for k, one in enumerate(lists):
        check_indices(one, x.shape[k], "index_put", from_end=True)
    try:
        shape = joined_shape(*(i.shape for i in lists))
        rest = x.shape[len(lists) :]
        spread = np.broadcast_to(given, (*shape, *rest))
    except ValueError:
        raise ShapeError("the shapes of indices and values do not broadcast together") from None
    room = None if out is None else output(out, x.shape, x.dtype, given)
    flat = tuple(contiguous(np.broadcast_to(i, shape)).reshape(-1) for i in lists)
    source = contiguous(spread).reshape(math.prod(shape), math.prod(rest))
    target = INDEX_PUT.run(Put(x, flat, source, update, room))
    return _delivered(target, out, lambda array: array)
