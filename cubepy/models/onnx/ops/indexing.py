"""Reading and writing by index, and what data choose."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, axis_of, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


def _from_front(index: Tensor, length: int) -> Tensor:
    """Indices below zero counted from the end."""
    index = index.astype("i64")
    return T.where(index < 0, index + length, index)


def _gather_host(call: Call, x: Any, index: Any) -> Any:
    return np.take(x, index, axis=call.get("axis", 0))


@operator("Gather", host=_gather_host)
def gather(call: Call, x: Tensor, index: Tensor) -> Tensor:
    """Slices along an axis by index."""
    axis = axis_of(call.get("axis", 0), len(x.shape))
    at = _from_front(index, x.shape[axis]).reshape(-1)
    found = apply("take", x, at, axis=axis)
    return found.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


@operator("GatherElements")
def gather_elements(call: Call, x: Tensor, index: Tensor) -> Tensor:
    """Elements along an axis, each by its own index."""
    axis = axis_of(call.get("axis", 0), len(x.shape))
    return x.gather(axis, _from_front(index, x.shape[axis]))


def _flat(index: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """Positions in axes that are one, of coordinates along the last axis."""
    result = None
    for k, length in enumerate(lengths):
        part = _from_front(index[..., k], length)
        result = part if result is None else result * length + part
    assert result is not None
    return result


@operator("GatherND")
def gather_nd(call: Call, x: Tensor, index: Tensor) -> Tensor:
    """Slices by coordinates."""
    b, depth = call.get("batch_dims", 0), index.shape[-1]
    batch, lengths, rest = x.shape[:b], x.shape[b : b + depth], x.shape[b + depth :]
    flat = _flat(index, lengths)
    rows, inner = math.prod(batch), math.prod(lengths)
    if b:
        first = T.arange(rows, dtype="i64", device=x.device)
        flat = flat + first.reshape(*batch, *(1,) * (len(index.shape) - b - 1)) * inner
    found = apply("take", x.reshape(rows * inner, *rest), flat.reshape(-1), axis=0)
    return found.reshape(*index.shape[:-1], *rest)


UPDATES = {"none": "assign", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@operator("ScatterElements Scatter")
def scatter_elements(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """A copy with elements along an axis updated, each by its own index."""
    axis = axis_of(call.get("axis", 0), len(x.shape))
    index = _from_front(index, x.shape[axis])
    return x.scatter(axis, index, updates, UPDATES[call.get("reduction", "none")])


@operator("ScatterND")
def scatter_nd(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """A copy with slices at coordinates updated."""
    depth = index.shape[-1]
    lengths, rest = x.shape[:depth], x.shape[depth:]
    flat = _flat(index, lengths).reshape(-1)
    values = updates.reshape(flat.shape[0], *rest)
    made = apply(
        "put",
        x.reshape(math.prod(lengths), *rest),
        flat,
        values,
        axis=0,
        update=UPDATES[call.get("reduction", "none")],
    )
    return made.reshape(*x.shape)


@operator("TensorScatter")
def tensor_scatter(call: Call, cache: Tensor, update: Tensor, at: Tensor | None = None) -> Tensor:
    """A cache with a row of each batch from an index on replaced."""
    axis = axis_of(call.get("axis", -2), len(cache.shape))
    length, count = cache.shape[axis], update.shape[axis]
    first = T.zeros((cache.shape[0],), dtype="i64") if at is None else at.astype("i64")
    steps = first.reshape(-1, 1) + T.arange(count, dtype="i64").reshape(1, count)
    if call.get("mode", "linear") == "circular":
        steps = steps % length
    shape = [1] * len(cache.shape)
    shape[0], shape[axis] = cache.shape[0], count
    index = steps.reshape(*shape).expand(*update.shape)
    return cache.scatter(axis, index.contiguous(), update)


@operator("OneHot", reads=(1,))
def one_hot(call: Call, index: Tensor, depth: Any, values: Tensor) -> Tensor:
    """A value where an axis' position is the index, another one elsewhere."""
    count = int(depth.reshape(-1)[0])
    rank = len(index.shape)
    axis = axis_of(call.get("axis", -1), rank + 1)
    at = _from_front(index, count).unsqueeze(axis)
    shape = [1] * (rank + 1)
    shape[axis] = count
    return T.where(at == T.arange(count, dtype="i64").reshape(*shape), values[1], values[0])


def _nonzero_host(call: Call, x: Any) -> Any:
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@operator("NonZero", host=_nonzero_host, splits=True)
def nonzero(call: Call, x: Tensor) -> Tensor:
    """Coordinates of what is not zero, one column each."""
    return x.nonzero().astype("i64").T.contiguous()


@operator("Compress", reads=(1,))
def compress(call: Call, x: Tensor, condition: Any) -> Tensor:
    """Slices where a condition holds."""
    axis = call.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    at = np.flatnonzero(condition)
    return T.take(x, T(at, device=x.device), axis=axis_of(axis, len(x.shape)))


@operator("Unique", reads=(0,), splits=True)
def unique(call: Call, x: Any) -> tuple[Any, ...]:
    """Different elements or slices, where each is first, which one each is, and how often."""
    axis = call.get("axis")
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not call.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return values, *(a.astype(np.int64) for a in (first, inverse, counts))


@operator("ReverseSequence")
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
    """Each batch's first elements in time, in the other order."""
    time, batch = call.get("time_axis", 0), call.get("batch_axis", 1)
    return reversed_until(x, lengths, time, batch)


def reversed_until(x: Tensor, lengths: Tensor, time: int, batch: int) -> Tensor:
    """A tensor whose first so many elements along an axis are in the other order."""
    count = x.shape[time]
    steps = T.arange(count, dtype="i64", device=x.device).reshape(count, 1)
    ends = lengths.astype("i64").reshape(1, -1)
    at = T.where(steps < ends, ends - 1 - steps, steps)
    at = at if time < batch else at.T
    shape = [1] * len(x.shape)
    shape[time], shape[batch] = x.shape[time], x.shape[batch]
    return x.gather(time, at.reshape(*shape).expand(*x.shape).contiguous())


@operator("NonMaxSuppression", reads=(0, 1, 2, 3, 4), splits=True)
def non_max_suppression(
    call: Call, boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None
) -> Any:
    """(batch, class, box) of the boxes that overlap with no better one of their class."""
    most, overlap, least = (None if v is None else v.reshape(-1)[0] for v in (most, overlap, least))
    found = []
    for b in range(scores.shape[0]):
        corners = _corners(boxes[b], call.get("center_point_box", 0))
        for c in range(scores.shape[1]):
            kept = _suppressed(corners, scores[b, c], int(most or 0), float(overlap or 0), least)
            found += [(b, c, k) for k in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: Any, center: int) -> Any:
    """(low y, low x, high y, high x) of boxes."""
    if center:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], 1)


def _suppressed(boxes: Any, scores: Any, most: int, overlap: float, least: Any) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > least]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best, rest = order[0], order[1:]
        kept.append(int(best))
        low = np.maximum(boxes[best, :2], boxes[rest, :2])
        high = np.minimum(boxes[best, 2:], boxes[rest, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        union = areas[best] + areas[rest] - shared
        order = rest[~(shared > overlap * union)]
    return kept
