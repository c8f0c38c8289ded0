"""Gradients of other shapes and orders: elements go back where they came from."""

from __future__ import annotations

from typing import Any

from cubepy.tensor.array import apply
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.ops.op import axis_in


@vjp("contiguous")
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
    return apply("unslice", g, shape=b.inputs[0].shape, index=b.attrs["index"])


@vjp("unslice")
def _unslice(b: Backward, g: Any) -> Any:
    return apply("slice", g, index=b.attrs["index"])


@vjp("concat")
def _concat(b: Backward, g: Any) -> Any:
    at = axis_in(b.attrs["axis"], g.ndim, "concat")
    parts, start = [], 0
    for x, wanted in zip(b.inputs, b.needs, strict=True):
        stop = start + x.shape[at]
        parts.append(g[(slice(None),) * at + (slice(start, stop),)] if wanted else None)
        start = stop
    return parts
