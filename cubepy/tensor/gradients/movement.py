"""Gradients of other shapes and orders: elements go back where they came from."""

from __future__ import annotations

from typing import Any

from cubepy.tensor.array import apply, constant
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.ops.movement import takes_all
from cubepy.tensor.ops.op import axis_in


@vjp("contiguous", "clone")
def _contiguous(b: Backward, g: Any) -> Any:
    return g


@vjp("reshape")
def _reshape(b: Backward, g: Any) -> Any:
    return g.reshape(b.inputs[0].shape)


@vjp("permute")
def _permute(b: Backward, g: Any) -> Any:
    axes = b.attrs["axes"]
    back = [0] * len(axes)
    for to, a in enumerate(axes):
        back[a % len(axes)] = to
    return g.permute(tuple(back))


@vjp("expand")
def _expand(b: Backward, g: Any) -> Any:
    return g  # summed by the walk


@vjp("slice")
def _slice(b: Backward, g: Any) -> Any:
    index, shape = b.attrs["index"], b.inputs[0].shape
    if takes_all(index, shape):  # nothing but new axes
        return g.reshape(shape)
    return apply("unslice", g, shape=shape, index=index)


@vjp("unslice")
def _unslice(b: Backward, g: Any) -> Any:
    return apply("slice", g, index=b.attrs["index"])


@vjp("slice_put")
def _slice_put(b: Backward, g: Any) -> Any:
    index = b.attrs["index"]
    kept = None
    if b.needs[0]:
        kept = apply("slice_put", g, constant(0, g.dtype), index=index)
    return kept, apply("slice", g, index=index) if b.needs[1] else None


@vjp("concat")
def _concat(b: Backward, g: Any) -> Any:
    at = axis_in(b.attrs["axis"], g.ndim, "concat")
    parts, start = [], 0
    for x, wanted in zip(b.inputs, b.needs, strict=True):
        stop = start + x.shape[at]
        parts.append(g[(slice(None),) * at + (slice(start, stop),)] if wanted else None)
        start = stop
    return parts


@vjp("pad")
def _pad(b: Backward, g: Any) -> Any:
    """A constant pad is cut off; what was added from the edge goes back there."""
    widths, mode = b.attrs["widths"], b.attrs["mode"]
    if mode == "constant":
        cut = tuple(-n for n in widths)
        return apply("pad", g, widths=cut, mode=mode, value=0)
    for k in range(len(widths) // 2):
        before, after = widths[2 * k], widths[2 * k + 1]
        if before or after:
            g = _folded(g, g.ndim - 1 - k, before, after, mode)
    return g


def _folded(g: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """What lies behind the ends of an axis, added to where it was read."""
    n = g.shape[axis] - before - after

    def part(start: int, stop: int) -> Any:
        return g[(slice(None),) * axis + (slice(start, stop),)]

    def put(t: Any, start: int) -> Any:
        widths = [0, 0] * (g.ndim - 1 - axis) + [start, n - start - t.shape[axis]]
        return apply("pad", t, widths=tuple(widths), mode="constant", value=0)

    found = part(before, before + n)
    for start, stop, to in ((0, before, 1), (before + n, g.shape[axis], n - 1 - after)):
        if start == stop:
            continue
        ends = part(start, stop)
        if mode == "reflect":
            turned = tuple((None, None, -1 if d == axis else None) for d in range(g.ndim))
            found = found + put(apply("slice", ends, index=turned), to)
        else:
            found = found + put(ends.sum(axis=axis, keepdims=True), 0 if start == 0 else n - 1)
    return found
