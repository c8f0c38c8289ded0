"""Other shapes and orders, as the array API names them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import i64
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.methods.applied import ints
from cubepy.tensor.namespace.choice import concat
from cubepy.tensor.namespace.creation import arange
from cubepy.tensor.namespace.searching import searchsorted
from cubepy.tensor.program.promised import sketches


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """Tensors stretched to their common shape; no copies."""
    given = [as_tensor(x) for x in arrays]
    try:
        shape = np.broadcast_shapes(*(x.shape for x in given))
    except ValueError as error:
        raise ShapeError(str(error)) from None
    return [x.expand(shape) for x in given]


def broadcast_to(x: Any, /, shape: Any) -> Tensor:
    """A tensor stretched to a shape; no copy."""
    return as_tensor(x).expand(shape)


def expand_dims(x: Any, /, axis: Any = 0) -> Tensor:
    """With a new axis of length 1, or several."""
    found = as_tensor(x)
    axes = axis if isinstance(axis, tuple) else (axis,)
    rank = found.ndim + len(axes)
    if any(not -rank <= a < rank for a in axes):
        raise IndexError(f"expand_dims: axis {axis} is out of range for a result of rank {rank}")
    if len({a % rank for a in axes}) != len(axes):
        raise ShapeError(f"expand_dims: the axes {axis} name one axis twice")
    for a in sorted(a % rank for a in axes):
        found = found.unsqueeze(a)
    return found


def flip(x: Any, /, *, axis: Any = None) -> Tensor:
    """Axes backwards (all by default); no copy."""
    given = as_tensor(x)
    return given.flip() if axis is None else given.flip(ints((axis,)))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to where they are wanted, the others in their order; no copy."""
    return as_tensor(x).movedim(source, destination)


def permute_dims(x: Any, /, axes: Any) -> Tensor:
    """Axes in another order; no copy."""
    return as_tensor(x).permute(axes)


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Every element several times in a row: as often as a number says, or one for each element."""
    given = as_tensor(x)
    if isinstance(repeats, int):
        return given.repeat_interleave(repeats, axis)
    if axis is None:
        given, axis = given.reshape(-1), 0
    times = as_tensor(repeats)
    if not times.shape or times.size == 1:
        return given.repeat_interleave(times.item(), axis)
    ends = times.astype(i64).cumsum(0)
    if times.shape != (given.shape[axis],):
        raise ShapeError(f"repeat of an axis of length {given.shape[axis]} by {times.shape}")
    total = ends[-1].item() if ends.size else 0
    at = searchsorted(ends, arange(total, device=given.device), side="right")
    return apply("take", given, at, axis=axis)  # type: ignore[no-any-return]


def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """The elements in another shape; copied if strides force it, or `copy` says so.

    Raises:
        ValueError: a copy is needed, and `copy` is False.
    """
    given = as_tensor(x)
    if copy:
        return given.clone().reshape(shape)
    found = given.reshape(shape)
    if copy is False and found.size and not _in_memory_of(found, given):
        raise ValueError(f"a tensor of shape {given.shape} is not reshaped without a copy here")
    return found


def _in_memory_of(made: Tensor, source: Tensor) -> bool:
    one, other = sketches([made.storage, source.storage])
    if isinstance(one, np.ndarray):
        return bool(np.may_share_memory(one, other))
    return one.owner is other.owner


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Elements moved along axes; those that leave at an end come back at the other."""
    given = as_tensor(x)
    if not given.ndim:
        return given
    if axis is not None and isinstance(shift, tuple) and not isinstance(axis, (tuple, list)):
        axis = (axis,) * len(shift)
    return given.roll(shift, axis)


def squeeze(x: Any, /, axis: Any) -> Tensor:
    """Without axes of length 1.

    Raises:
        ShapeError: an axis of another length.
    """
    given = as_tensor(x)
    axes = axis if isinstance(axis, tuple) else (axis,)
    for a in axes:
        if -given.ndim <= a < given.ndim and given.shape[a] != 1:
            raise ShapeError(f"squeeze of axis {a} of the shape {given.shape}, which is not 1")
    return given.squeeze(axes)


def stack(arrays: Any, /, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis.

    Raises:
        ShapeError: no tensors, other shapes, or an axis that the result does not have.
    """
    given = [x if type(x) is Tensor else as_tensor(x) for x in arrays]
    if not given:
        raise ShapeError("stack needs at least one tensor")
    shape = given[0].shape
    if [x.shape for x in given].count(shape) < len(given):
        shapes = ", ".join(dict.fromkeys(str(x.shape) for x in given))
        raise ShapeError(
            f"stack takes tensors of one shape, not {shapes}",
            hint="concat joins along an axis that is there; rnn.pad_sequence fills up shorter ones",
        )
    rank, at = len(shape), axis
    if type(axis) is int and -rank <= axis + 1 <= 0:
        at = axis + rank + 1
    if type(at) is not int or not 0 <= at < rank:
        return concat([x.unsqueeze(axis) for x in given], axis=axis)  # a last axis, or a mistake
    return concat(given, axis=at).reshape(*shape[:at], len(given), *shape[at:])


def tile(x: Any, repetitions: Any, /) -> Tensor:
    """The whole tensor several times along each axis."""
    return as_tensor(x).tile(repetitions)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis; no copies."""
    return as_tensor(x).unbind(axis)


__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
]
