"""Shapes: reshape, transpose, join, cut, pad and repeat."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, axes_of, axis_of, ints, operator, shape_of
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


@operator("Shape", host=lambda call, x: shape(call, x), plain=True)
def shape(call: Call, x: Any) -> Any:
    """Lengths, as a host array."""
    full = shape_of(x)
    rank = len(full)
    first, last = call.get("start", 0), call.get("end", rank)
    first, last = (max(0, min(rank, n + rank if n < 0 else n)) for n in (first, last))
    return np.array(full[first:last], np.int64)


@operator("Size", plain=True)
def size(call: Call, x: Any) -> Any:
    """How many elements there are."""
    return np.array(math.prod(shape_of(x)), np.int64)


def new_shape(call: Call, old: tuple[int, ...], wanted: Any) -> tuple[int, ...]:
    """What `Reshape` makes of a shape with -1 and 0 in it."""
    lengths = list(ints(call["shape"] if wanted is None else wanted))
    if not call.get("allowzero", 0):
        lengths = [old[k] if n == 0 and k < len(old) else n for k, n in enumerate(lengths)]
    if lengths.count(-1) == 1:
        rest = math.prod(n for n in lengths if n != -1)
        lengths[lengths.index(-1)] = math.prod(old) // rest if rest else 0
    return tuple(lengths)


@operator(
    "Reshape", reads=(1,), host=lambda call, x, s=None: x.reshape(new_shape(call, x.shape, s))
)
def reshape(call: Call, x: Tensor, wanted: Any = None) -> Tensor:
    """The same elements in another shape."""
    return x.reshape(*new_shape(call, x.shape, wanted))


@operator(
    "Transpose", host=lambda call, x: x.transpose(call.get("perm") or tuple(range(x.ndim))[::-1])
)
def transpose(call: Call, x: Tensor) -> Tensor:
    """Axes in another order."""
    axes = call.get("perm") or tuple(range(len(x.shape)))[::-1]
    return x.permute(*axes) if len(axes) > 1 else x


def _flat(call: Call, x: Any) -> Any:
    axis = call.get("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


operator("Flatten", host=_flat)(_flat)


def _squeezed(call: Call, x: Any, axes: Any = None) -> Any:
    axes = call.get("axes") if axes is None else axes
    old = shape_of(x)
    if axes is None:
        gone = {k for k, n in enumerate(old) if n == 1}
    else:
        gone = set(axes_of(axes, len(old)))
        if wrong := [k for k in gone if old[k] != 1]:
            raise call.refuse(f"axis {wrong[0]} of {list(old)} is not of length 1")
    return x.reshape(tuple(n for k, n in enumerate(old) if k not in gone))


operator("Squeeze", reads=(1,), host=_squeezed)(_squeezed)


def _unsqueezed(call: Call, x: Any, axes: Any = None) -> Any:
    axes = ints(call["axes"] if axes is None else axes)
    rank = len(x.shape) + len(axes)
    new = set(axes_of(axes, rank))
    old = iter(shape_of(x))
    return x.reshape(tuple(1 if k in new else next(old) for k in range(rank)))


operator("Unsqueeze", reads=(1,), host=_unsqueezed)(_unsqueezed)


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of two that broadcast."""
    return tuple(np.broadcast_shapes(a, b))


@operator(
    "Expand", reads=(1,), host=lambda call, x, s: np.broadcast_to(x, broadcast(x.shape, ints(s)))
)
def expand(call: Call, x: Tensor, wanted: Any) -> Tensor:
    """Repeated along axes of length one."""
    lengths = broadcast(x.shape, ints(wanted))
    return x if lengths == x.shape else x.expand(*lengths)


@operator("Tile", reads=(1,), host=lambda call, x, r: np.tile(x, ints(r)))
def tile(call: Call, x: Tensor, repeats: Any) -> Tensor:
    """Repeated along all axes."""
    return T.tile(x, ints(repeats))


@operator("Concat", host=lambda call, *xs: np.concatenate(xs, axis=call["axis"]))
def concat(call: Call, *xs: Tensor) -> Tensor:
    """Joined along an axis."""
    axis = axis_of(call.get("axis", 1), len(xs[0].shape))
    parts = [x for x in xs if x.shape[axis]] or [xs[0]]
    return parts[0] if len(parts) == 1 else T.concat(parts, axis=axis)


def parts_of(call: Call, length: int, split: Any) -> list[int]:
    """Lengths of the parts of an axis."""
    split = call.get("split") if split is None else split
    if split is not None:
        return list(ints(split))
    count = call.get("num_outputs", call.count)
    each = -(-length // count)
    return [max(0, min(each, length - k * each)) for k in range(count)]


def _split(call: Call, x: Any, split: Any = None) -> tuple[Any, ...]:
    axis = axis_of(call.get("axis", 0), len(x.shape))
    found, at = [], 0
    for length in parts_of(call, x.shape[axis], split):
        found.append(x[(slice(None),) * axis + (slice(at, at + length),)])
        at += length
    if at != x.shape[axis]:
        raise call.refuse(f"parts of {at} in all of an axis of {x.shape[axis]}")
    return tuple(found)


operator("Split", reads=(1,), host=_split)(_split)


WHOLE = (2**31 - 1, 2**63 - 1)
"""Ends that stand for the end of an axis, whichever way it is walked (so onnxruntime does)."""


def slices(call: Call, old: tuple[int, ...], given: tuple[Any, ...]) -> tuple[slice, ...]:
    """What `Slice` takes of each axis."""
    if call.version < 10:
        starts, ends = call["starts"], call["ends"]
        axes, steps = call.get("axes"), None
    else:
        starts, ends, axes, steps = (*given, None, None)[:4]
    starts, ends = ints(starts), ints(ends)
    axes = range(len(starts)) if axes is None else axes_of(axes, len(old))
    steps = [1] * len(starts) if steps is None else ints(steps)
    found = [slice(None)] * len(old)
    for first, last, axis, step in zip(starts, ends, axes, steps, strict=True):
        length = old[axis]
        first = first + length if first < 0 else first
        last = last + length if last < 0 else last
        if step > 0:
            found[axis] = slice(max(0, min(first, length)), max(0, min(last, length)), step)
        else:
            last = -1 if last in WHOLE else last
            first, last = max(-1, min(first, length - 1)), max(-1, min(last, length - 1))
            found[axis] = slice(first, None if last < 0 else last, step)
            if first < 0:
                found[axis] = slice(0, 0, 1)
    return tuple(found)


@operator("Slice", reads=(1, 2, 3, 4), host=lambda call, x, *given: x[slices(call, x.shape, given)])
def slice_(call: Call, x: Tensor, *given: Any) -> Tensor:
    """Every n-th element between two, along axes."""
    return x[slices(call, x.shape, given)]


def pad_widths(call: Call, rank: int, pads: Any, axes: Any) -> list[tuple[int, int]]:
    """(before, after) of each axis."""
    given = ints(call.get("pads", call.get("paddings")) if pads is None else pads)
    chosen = range(rank) if axes is None else axes_of(axes, rank)
    half = len(given) // 2
    found = [(0, 0)] * rank
    for k, axis in enumerate(chosen):
        found[axis] = (given[k], given[k + half])
    return found


def _pad_host(call: Call, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    widths = pad_widths(call, x.ndim, pads, axes)
    cut = x[tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(widths, x.shape))]
    grown = [(max(0, a), max(0, b)) for a, b in widths]
    mode: Any = call.get("mode", "constant")
    if mode != "constant":
        return np.pad(cut, grown, mode)
    number = call.get("value", 0) if value is None else value.reshape(-1)[0]
    return np.pad(cut, grown, constant_values=number)


@operator("Pad", reads=(1, 2, 3), host=_pad_host)
def pad(call: Call, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Tensor:
    """Elements added at both ends of axes, or (below zero) cut off."""
    widths = pad_widths(call, len(x.shape), pads, axes)
    mode = call.get("mode", "constant")
    if any(a < 0 or b < 0 for a, b in widths):
        ends = zip(widths, x.shape, strict=True)
        x = x[tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in ends)]
        widths = [(max(0, a), max(0, b)) for a, b in widths]
    if not any(a or b for a, b in widths):
        return x
    if mode == "constant":
        number = call.get("value", 0.0) if value is None else value.reshape(-1)[0].item()
        return padded(x, widths, number)
    for axis, (a, b) in enumerate(widths):
        if a or b:
            at = np.pad(np.arange(x.shape[axis]), (a, b), mode)
            x = T.take(x, T(at, device=x.device), axis=axis)
    return x


def padded(x: Tensor, widths: Any, value: Any = 0) -> Tensor:
    """A tensor with a number around it; widths are (before, after) of each axis."""
    value = float(value) if x.dtype.is_float else int(value)
    if x.dtype.kind == "b":
        return padded(x.astype("u8"), widths, value).astype("bool_")
    if value in (float("inf"), float("-inf")) or value != value:
        lengths = tuple(n + a + b for (a, b), n in zip(widths, x.shape, strict=True))
        full = T.full(lengths, value, dtype=x.dtype, device=x.device)
        full[tuple(slice(a, a + n) for (a, _), n in zip(widths, x.shape, strict=True))] = x
        return full
    changed = [k for k, (a, b) in enumerate(widths) if a or b]
    if not changed:
        return x
    pairs = [int(n) for pair in reversed(list(widths)[changed[0] :]) for n in pair]
    return apply("pad", x, widths=tuple(pairs), mode="constant", value=value)


@operator("CenterCropPad", reads=(1,))
def center_crop_pad(call: Call, x: Tensor, wanted: Any) -> Tensor:
    """Cut or padded to a shape around its middle."""
    lengths = ints(wanted)
    axes = axes_of(call.get("axes", range(len(lengths))), len(x.shape))
    for axis, length in zip(axes, lengths, strict=True):
        more = length - x.shape[axis]
        if more < 0:
            first = -more // 2
            x = x[(slice(None),) * axis + (slice(first, first + length),)]
        elif more:
            widths = [(0, 0)] * len(x.shape)
            widths[axis] = (more // 2, more - more // 2)
            x = padded(x, widths)
    return x


@operator("DepthToSpace")
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    """Blocks of channels become blocks of pixels."""
    b, (n, c, h, w) = call["blocksize"], x.shape
    if call.get("mode", "DCR") == "DCR":
        parts = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // b**2, h * b, w * b)


@operator("SpaceToDepth")
def space_to_depth(call: Call, x: Tensor) -> Tensor:
    """Blocks of pixels become channels."""
    b, (n, c, h, w) = call["blocksize"], x.shape
    if call.get("mode", "DCR") == "DCR":
        parts = x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4)
    else:
        parts = x.reshape(n, c, h // b, b, w // b, b).permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(n, c * b * b, h // b, w // b)


@operator("Trilu", reads=(1,))
def trilu(call: Call, x: Tensor, k: Any = None) -> Tensor:
    """The upper or lower triangle."""
    diagonal = 0 if k is None else int(k.reshape(-1)[0])
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    keep = columns - rows >= diagonal if call.get("upper", 1) else columns - rows <= diagonal
    return T.where(T(keep, device=x.device), x, T.zeros_like(x))
