"""Joining arrays along an axis, and reversing axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cubepy as cb
from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.kernels.entry.arguments import array_of, axes_of, axis_of, home_of
from cubepy.kernels.entry.dispatch import by_argument, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.entry.shapes import empty_as
from cubepy.kernels.movement import pad_gpu
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.movement.parts_gpu import joined
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.lang.dtypes import as_dtype, promote
from cubepy.runtime import memory, recording
from cubepy.runtime.device import current, device_properties, use
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tune import CpuRoutine, Op

PIECE = 4096  # elements of a row that a cube reverses


def concat(arrays: Any, axis: int = 0, *, out: Any = None) -> Any:
    """Arrays joined along an axis, as `numpy.concatenate` and `torch.concat`.

    Args:
        arrays: sequence of arrays that have the same shape but for the axis.
        axis: int.
        out: array to write.

    Returns:
        An array in the promoted dtype.

    Raises:
        ShapeError: no arrays, or shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> concat([np.zeros(2), np.ones(1)])
        array([0., 0., 1.])
    """
    if not isinstance(arrays, (tuple, list)):
        raise ArgumentError(f"concat needs a list of arrays, not {type(arrays).__name__}")
    given = list(arrays)
    if not given:
        raise ShapeError("concat needs at least one array")
    if recording.asked:
        found = by_argument(concat, (arrays, axis), {"out": out})
        if found is not NotImplemented:
            return found
    with use(home_of(given[0]) or current()):
        xs = [array_of(a) for a in given]
        d = axis_of(axis, xs[0].ndim)
        rest = {(*x.shape[:d], *x.shape[d + 1 :]) for x in xs}
        if len({x.ndim for x in xs}) > 1 or len(rest) > 1:
            raise ShapeError(
                f"concat along axis {d} of the shapes {' and '.join(str(x.shape) for x in xs)}"
            )
        dtype = as_dtype(xs[0].dtype)
        for x in xs[1:]:
            if as_dtype(x.dtype) != dtype:
                dtype = promote(dtype.compute, as_dtype(x.dtype).compute)
        shape = (*xs[0].shape[:d], sum(x.shape[d] for x in xs), *xs[0].shape[d + 1 :])
        result = output(out, shape, dtype.numpy, *xs)
        _put(result, xs, d)
        return finish(result, out, wrapper(*given))


def _put(out: Any, arrays: Sequence[Any], axis: int) -> None:
    """Write arrays side by side."""
    if isinstance(out, DeviceArray) and joined(out, arrays, axis, device_properties(out.device)):
        return
    at = 0
    for x in arrays:
        part = (*[slice(None)] * axis, slice(at, at + x.shape[axis]))
        at += x.shape[axis]
        if x.size:
            convert_into(out[part], x)


def side_by_side(arrays: Sequence[Any], dtype: Any, axis: int) -> Any:
    """Arrays of one device or the host, and of shapes that go together, joined along an axis:
    images with their channels last are joined to such ones, and parts of an array of a device that
    lie in it so are that array.

    Args:
        arrays: what is joined.
        dtype: of the result.
        axis: not negative.
    """
    first = arrays[0]
    length = sum(x.shape[axis] for x in arrays)
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    if isinstance(first, DeviceArray) and _in_one(arrays, dtype, axis):
        return first.strided(shape, first.strides)
    out = empty_as(arrays, shape, dtype) if axis == 1 else memory.empty(shape, dtype)
    _put(out, arrays, axis)
    return out


def _in_one(arrays: Sequence[Any], dtype: Any, axis: int) -> bool:
    """Whether each array of a device begins in memory where the one before ends along an axis."""
    first, at = arrays[0], arrays[0].address
    for x in arrays:
        if type(x) is not DeviceArray or x.owner is not first.owner or x.dtype != dtype:
            return False
        if x.strides != first.strides or x.address != at or not x.size:
            return False
        at += x.shape[axis] * x.strides[axis]
    return True


@cb.kernel
def reverse_rows(x: cb.Array, out: cb.Array, lanes: cb.Comptime[int], piece: cb.Comptime[int]):
    """out[r, k] = x[r, n - 1 - k], a line at a time: the lanes are turned round in registers."""
    n = x.shape[1]
    pieces = (n + piece - 1) // piece
    row = cb.CUBE_POS // pieces
    first = (cb.CUBE_POS % pieces) * piece
    turned = tuple(range(lanes - 1, -1, -1))
    for k in range(first + cb.UNIT_POS * lanes, cb.min(first + piece, n), cb.CUBE_DIM * lanes):
        if k + lanes <= n:
            line = x.load((row, n - k - lanes), lanes)
            out.store((row, k), cb.shuffle(line, line, turned))
        else:
            for j in range(k, n):
                out[row, j] = x[row, n - 1 - j]


class ReversedRows(CpuRoutine):
    """Lines are reversed in registers, rows in memory."""

    name = "rows"

    def launch(self, p: pad_gpu.Flip, properties: cb.DeviceProperties) -> None:
        """A cube does a piece of a row of contiguous arrays."""
        array, result, others = p.x, p.out, tuple(d for d in p.axes if d != p.x.ndim - 1)
        rows = contiguous(p._replace(axes=others).turned())
        flat = result if result.flags.c_contiguous else memory.empty(result.shape, result.dtype)
        n = array.shape[-1]
        m = array.size // n
        lanes = lanes_on(properties, rows)
        reverse_rows[m * -(-n // PIECE), 1](
            rows.reshape(m, n), flat.reshape(m, n), lanes, PIECE, mode="checked"
        )
        if flat is not result:
            convert_into(result, flat)


FLIP = Op("flip", [pad_gpu.ReversedLines(), ReversedRows()])


@repeated
def flip(x: Any, axis: Any = None, *, out: Any = None) -> Any:
    """A copy with axes reversed (all by default), as `numpy.flip` and `torch.flip`.

    Args:
        x: array of any dtype and strides.
        axis: int, tuple of ints, or None.
        out: array to write.

    Example:
        >>> import numpy as np
        >>> flip(np.array([[1, 2], [3, 4]]), 1)
        array([[2, 1],
               [4, 3]])
    """
    wrap, array = wrapper(x), array_of(x)
    axes = axes_of(axis, array.ndim)
    result = output(out, array.shape, array.dtype, *([array] if axes else []))
    if result.size:
        last = array.ndim - 1
        turned = array[
            tuple(
                slice(None, None, -1) if d in axes and d != last else slice(None)
                for d in range(array.ndim)
            )
        ]
        if last in axes:
            if as_dtype(array.dtype).storage_only:
                raise DTypeError(
                    "flip along the last axis works on dtypes that kernels compute with, "
                    f"not {array.dtype}"
                )
            FLIP.run(pad_gpu.Flip(array, axes, result))
        else:
            convert_into(result, turned)
    return finish(result, out, wrap)
