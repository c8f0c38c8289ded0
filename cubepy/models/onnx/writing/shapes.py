"""Ops that move elements, and ops by indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.lang.dtypes import i64
from cubepy.models.onnx.writing.graph import Op, Unwritable, Writer, form
from cubepy.tensor.ops.movement import spans

UPDATES = {"assign": "none", "add": "add", "max": "max", "min": "min", "mul": "mul"}


@form("reshape")
def reshape(w: Writer, op: Op, x: str) -> Any:
    return w.reshape(x, op.shape)


@form("permute")
def permute(w: Writer, op: Op, x: str) -> Any:
    return w.add("Transpose", x, perm=[a % len(op.shape) for a in op.attrs["axes"]] or None)


@form("expand")
def expand(w: Writer, op: Op, x: str) -> Any:
    return w.add("Expand", x, w.integers(op.shape))


@form("slice")
def cut(w: Writer, op: Op, x: str) -> Any:
    """A cut with steps; then axes of one number go, and new ones come."""
    shape = op.spec(0).shape
    taken = spans(op.attrs["index"], shape)
    axes = [a for a, r in enumerate(taken) if r != range(shape[a])]
    if axes:
        bounds = [taken[a] for a in axes]
        stops = [b.stop if b.stop >= 0 else -(1 << 40) for b in bounds]
        parts = ([b.start for b in bounds], stops, axes, [b.step for b in bounds])
        x = w.add("Slice", x, *[w.integers(p) for p in parts])
    if tuple(map(len, taken)) != op.shape:
        x = w.reshape(x, op.shape)
    return x


def positions(taken: list[range], shape: tuple[int, ...]) -> np.ndarray:
    """The flat positions of what a slice takes."""
    flat = np.arange(int(np.prod(shape))).reshape(shape)
    found: np.ndarray = flat[np.ix_(*[np.asarray(r, np.int64) for r in taken])]
    return found.reshape(-1)


@form("slice_put")
def slice_put(w: Writer, op: Op, x: str, values: str) -> Any:
    taken = spans(op.attrs["index"], op.shape)
    return _put_flat(w, op, w.reshape(x, (-1,)), values, taken, 1)


@form("unslice")
def unslice(w: Writer, op: Op, x: str) -> Any:
    zero = np.zeros(1, op.dtype.numpy)
    flat = w.add("ConstantOfShape", w.integers([int(np.prod(op.shape))]), value=zero)
    return _put_flat(w, op, flat, x, spans(op.attrs["index"], op.shape), 0)


def _put_flat(w: Writer, op: Op, flat: str, values: str, taken: list[range], k: int) -> Any:
    at = positions(taken, op.shape)
    if not at.size:
        return w.reshape(flat, op.shape)
    kept = [len(r) for r in taken]
    shape = op.spec(k).shape
    if int(np.prod(shape)) == at.size:
        values = w.reshape(values, (-1,))
    else:
        lead = len(kept) - len(shape)
        if lead < 0:
            values = w.reshape(values, shape[-lead:])
        values = w.reshape(w.add("Expand", values, w.integers(kept)), (-1,))
    made = w.add("ScatterElements", flat, w.constant(at, np.int64), values, axis=0)
    return w.reshape(made, op.shape)


@form("concat")
def concat(w: Writer, op: Op, *xs: str) -> Any:
    cast = [w.cast(x, op.spec(k).dtype, op.dtype) for k, x in enumerate(xs)]
    return w.add("Concat", *cast, axis=op.attrs["axis"])


@form("pad")
def pad(w: Writer, op: Op, x: str) -> Any:
    widths, mode = op.attrs["widths"], op.attrs["mode"]
    rank = len(op.shape)
    before, after = [0] * rank, [0] * rank
    for k in range(len(widths) // 2):
        before[rank - 1 - k], after[rank - 1 - k] = widths[2 * k], widths[2 * k + 1]
    how = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}[mode]
    value = w.constant(op.attrs["value"], op.dtype) if mode == "constant" else ""
    return w.add("Pad", x, w.integers(before + after), value, mode=how)


# By indices


def _counted(w: Writer, index: str) -> str:
    """An index as 64-bit integers."""
    return w.add("Cast", index, to=7)  # type: ignore[no-any-return]


@form("take")
def take(w: Writer, op: Op, x: str, index: str) -> Any:
    return w.add("Gather", x, _counted(w, index), axis=op.attrs["axis"])


@form("embedding")
def embedding(w: Writer, op: Op, index: str, weight: str) -> Any:
    found = w.add("Gather", weight, _counted(w, index), axis=0)
    return w.cast(found, op.spec(1).dtype, op.dtype)


@form("take_along_axis")
def take_along(w: Writer, op: Op, x: str, index: str) -> Any:
    axis = op.attrs["axis"] % len(op.shape)
    shape = op.spec(0).shape
    if tuple(shape[a] for a in range(len(shape)) if a != axis) != tuple(
        op.shape[a] for a in range(len(op.shape)) if a != axis
    ):
        full = [shape[a] if a == axis else n for a, n in enumerate(op.shape)]
        x = w.add("Expand", x, w.integers(full))
    index = _counted(w, index)
    if op.spec(1).shape != op.shape:
        index = w.add("Expand", index, w.integers(op.shape))
    return w.add("GatherElements", x, index, axis=axis)


@form("gather")
def gather(w: Writer, op: Op, x: str, index: str) -> Any:
    """Axes of which an index has less are cut before: ONNX wants them to be as long."""
    shape, axis = op.spec(0).shape, op.attrs["axis"] % len(op.shape)
    axes = [a for a, n in enumerate(shape) if a != axis and n != op.shape[a]]
    if axes:
        ends = [op.shape[a] for a in axes]
        x = w.add("Slice", x, w.integers([0] * len(axes)), w.integers(ends), w.integers(axes))
    return w.add("GatherElements", x, _counted(w, index), axis=axis)


@form("scatter")
def scatter(w: Writer, op: Op, x: str, index: str, source: str) -> Any:
    if op.attrs["update"] not in UPDATES:
        raise Unwritable(f"{op.node.op}: the update {op.attrs['update']!r}")
    at = op.spec(1).shape
    if op.spec(2).shape != at:
        ends = w.integers(at)
        source = w.add("Slice", source, w.integers([0] * len(at)), ends)
    source = w.cast(source, op.spec(2).dtype, op.dtype)
    how = {"axis": op.attrs["axis"], "reduction": UPDATES[op.attrs["update"]]}
    return w.add("ScatterElements", x, _counted(w, index), source, **how)


@form("put")
def put(w: Writer, op: Op, x: str, index: str, values: str) -> Any:
    """Slices along the first axis, by ScatterND; another axis comes to the front and goes back."""
    if op.attrs["update"] not in UPDATES:
        raise Unwritable(f"{op.node.op}: the update {op.attrs['update']!r}")
    rank, at = len(op.shape), op.attrs["axis"] % len(op.shape)
    many = op.spec(1).shape
    full = [*op.shape[:at], *many, *op.shape[at + 1 :]]
    values = w.cast(values, op.spec(2).dtype, op.dtype)
    values = w.add("Expand", values, w.integers(full))
    front = [
        *range(at, at + len(many)),
        *[d for d in range(len(full)) if not at <= d < at + len(many)],
    ]
    order = [at, *[d for d in range(rank) if d != at]]
    if at:
        x, values = w.add("Transpose", x, perm=order), w.add("Transpose", values, perm=front)
    rows = w.reshape(_counted(w, index), (*many, 1))
    made = w.add("ScatterND", x, rows, values, reduction=UPDATES[op.attrs["update"]])
    return w.add("Transpose", made, perm=[order.index(d) for d in range(rank)]) if at else made


@form("flat_index")
def flat_index(w: Writer, op: Op, *indices: str) -> Any:
    found = ""
    for name, n in zip(indices, op.attrs["lengths"], strict=True):
        at = _counted(w, name)
        below = w.add("Less", at, w.constant(0, np.int64))
        at = w.add("Where", below, w.add("Add", at, w.constant(n, np.int64)), at)
        found = w.add("Add", w.add("Mul", found, w.constant(n, np.int64)), at) if found else at
    return w.cast(found, i64, op.dtype)
