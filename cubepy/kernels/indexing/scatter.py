"""Writing by index: scatter and index_put, each with an explicit update: assign, add, mul, min or
max.

Where units are not threads, one unit owns its columns and walks the indices in order: the last
assignment wins, and sums do not depend on the number of threads. On a GPU updates are atomic, in no
order, and of several assignments to one position any may win, as in torch, unless
`cb.config.deterministic` is set.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.config import config
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.entry.arguments import array_of, axis_of
from cubepy.kernels.entry.dispatch import has_planes, placed, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.indexing import scatter_gpu
from cubepy.kernels.indexing.bounds import check_indices
from cubepy.kernels.indexing.gather import as_blocks
from cubepy.kernels.indexing.scatter_kernels import (
    COLUMNS,
    NEAR,
    PARTS,
    UNITS,
    UPDATES,
    put_elements,
    put_lines,
    put_rows,
    scatter_columns,
    scatter_elements,
    scatter_row,
    updated,
)
from cubepy.kernels.movement.copy import contiguous, convert_into, copy
from cubepy.kernels.primitives.vector_width import lanes_for
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory, recording


def _checked(update: str) -> str:
    if not isinstance(update, str) or update not in UPDATES:
        raise ShapeError(f"an update is one of {', '.join(UPDATES)}, not {update!r}")
    return update


def _copy_of(x: Any, out: Any, *sources: Any) -> Any:
    """What to write: a contiguous copy of x, or `out` itself where that can be used (see
    `_delivered`).
    """
    if out is None:
        return copy(x)
    target = output(out, x.shape, x.dtype, *sources)
    if not target.flags.c_contiguous and not np.may_share_memory(target, x):
        return copy(x)
    if target is not x:
        copy(x, out=target)
    return target


def _rounds(x: Any, update: str) -> bool:
    """Whether updates of one position would each be rounded: sums and products of narrow floats are
    made in f32.
    """
    dtype = as_dtype(x.dtype)
    return update in ("add", "mul") and dtype.is_float and dtype.bits < 32


def _delivered(target: Any, out: Any, wrap: Any) -> Any:
    """What a function returns that wrote what `_copy_of` gave."""
    if out is not None and not np.may_share_memory(target, given := array_of(out, "out")):
        convert_into(given, target)
    return finish(target, out, wrap)


def _working(x: Any, update: str) -> Any:
    """The array that the kernels write: narrow floats are added up in f32; on a GPU only some
    dtypes have atomics.
    """
    if not x.flags.c_contiguous:
        x = contiguous(x)
    dtype = as_dtype(x.dtype)
    if _rounds(x, update) or (has_planes() and update != "assign" and dtype.bits < 32):
        wide = memory.empty(x.shape, np.float32 if dtype.is_float else np.int32)
        convert_into(wide, x)
        return wide
    return x


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

    Raises: ShapeError: shapes that do not go together, or an unknown update. OutOfBoundsError: an
        index is negative or not below the length of the axis. On a GPU, which is not waited for,
        such an update is dropped, and this is raised in validate mode or with CUBEPY_DEBUG=1.

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
    if _any_order() and scatter_gpu.fits(x, positions, d):  # not narrow floats
        target = output(out, x.shape, x.dtype, positions, values)
        flat = target if target.flags.c_contiguous else memory.empty(x.shape, x.dtype)
        arrays = [contiguous(a) for a in (x, flat, positions, values)]
        scatter_gpu.scatter(*arrays, d, updated, update)  # type: ignore[call-arg]
        if flat is not target:
            copy(flat, out=target)
        return finish(target, out, wrap)
    given = None if out is None else output(out, x.shape, x.dtype, positions, values)
    disjoint = given is None or not np.may_share_memory(given, x)
    if disjoint and not _rounds(x, update) and _by_rows(x, positions, d):
        target = (
            given
            if given is not None and given.flags.c_contiguous
            else memory.empty(x.shape, x.dtype)
        )
        rows = (
            a.reshape(-1, a.shape[d])
            for a in (x, target, contiguous(positions), contiguous(values))
        )
        scatter_row[x.size // x.shape[d], 1](*rows, update, lanes_for(x), mode="unchecked")
        return _delivered(target, out, wrap)
    target = _copy_of(x, out, positions, values)
    if positions.size:
        part = tuple(slice(None) if k == d else slice(0, m) for k, m in enumerate(positions.shape))
        work = _working(target[part], update)
        dest, where, source = (as_blocks(contiguous(a), d) for a in (work, positions, values))
        if _any_order():
            scatter_elements[-(-positions.size // UNITS), UNITS](
                dest, where, source, update, positions.size, mode="checked"
            )
        elif where.shape[2] == 1 and isinstance(
            where, np.ndarray
        ):  # the host has looked at the indices
            blocks = [a.reshape(len(a), -1) for a in (dest, where, source)]
            scatter_row[dest.shape[0], 1](None, *blocks, update, 1, mode="unchecked")
        else:
            columns = _columns()
            cubes = dest.shape[0] * -(-where.shape[2] // columns)
            known = (
                "unchecked" if isinstance(where, np.ndarray) else "checked"
            )  # the host has looked at the indices
            scatter_columns[cubes, 1](dest, where, source, update, columns, mode=known)
        if not np.shares_memory(dest, target):
            convert_into(target[part], dest.reshape(work.shape))
    return _delivered(target, out, wrap)


def _by_rows(x: Any, positions: Any, d: int) -> bool:
    """Whether rows can be copied by the unit that updates them: on a CPU, where the host has looked
    at the indices.
    """
    single = math.prod(x.shape[d + 1 :]) == 1 and x.flags.c_contiguous and x.dtype != np.bool_
    single = single and x.shape[d] * x.itemsize <= NEAR
    same = all(
        a == b for k, (a, b) in enumerate(zip(x.shape, positions.shape, strict=True)) if k != d
    )
    return (
        single
        and same
        and positions.size > 0
        and isinstance(positions, np.ndarray)
        and not has_planes()
    )


def _any_order() -> bool:
    """Whether updates of one position may come in any order."""
    return has_planes() and not config.deterministic


def _columns() -> int:
    """That one unit owns: on a GPU there are units enough for one each."""
    return 1 if has_planes() else COLUMNS


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

    Args: input: array of any dtype. indices: tuple of integer arrays for the first axes; they
        broadcast, negative ones count from the end. values: broadcastable to what `input[indices]`
        gives. update: "assign", "add" (torch's accumulate), "mul", "min" or "max". out: array to
        write; `input` itself to work in place.

    Raises: ShapeError: shapes that do not go together, or an unknown update. OutOfBoundsError: an
        index below minus the length of its axis, or not below the length. On a GPU as for
        `scatter`.

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
        shape = np.broadcast_shapes(*(i.shape for i in lists))
        rest = x.shape[len(lists) :]
        spread = np.broadcast_to(given, (*shape, *rest))
    except ValueError:
        raise ShapeError("the shapes of indices and values do not broadcast together") from None
    target = _copy_of(x, out, given)
    if spread.size:
        count, width = math.prod(shape), math.prod(rest)
        work = _working(target, update)
        dest = work.reshape(1, -1, width)
        flat = tuple(contiguous(np.broadcast_to(i, shape)).reshape(-1) for i in lists)
        source = contiguous(spread).reshape(count, width)
        sizes, known = tuple(x.shape[: len(lists)]), all(isinstance(i, np.ndarray) for i in lists)
        if has_planes() or dest.dtype == np.bool_:  # which are no lines
            atomic, columns = _any_order(), _columns()
            units = UNITS if atomic else 1
            cubes = -(-count * width // UNITS) if atomic else -(-width // columns)
            put_rows[cubes, units](
                dest, flat, source, sizes, count, update, columns, atomic, known, mode="checked"
            )
        elif not known:
            put_rows[-(-width // COLUMNS), 1](
                dest, flat, source, sizes, count, update, COLUMNS, False, False, mode="checked"
            )
        elif width == 1:
            put_elements[1, 1](
                dest.reshape(-1), flat, source.reshape(-1), sizes, update, mode="unchecked"
            )
        else:
            lanes = lanes_for(dest, source)
            columns = -(-width // (PARTS * lanes)) * lanes
            put_lines[-(-width // columns), 1](
                dest[0], flat, source, sizes, columns, update, lanes, mode="unchecked"
            )
        if not np.shares_memory(dest, target):
            convert_into(target, dest.reshape(target.shape))
    return _delivered(target, out, lambda array: array)
