"""Sums and the like along axes, and orders."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.lang.dtypes import bool_, i64
from cubepy.models.onnx.writing.graph import Op, Unwritable, Writer, form

REDUCED = {
    "sum": "ReduceSum",
    "prod": "ReduceProd",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "logsumexp": "ReduceLogSumExp",
}


def axes_of(w: Writer, op: Op) -> str:
    """The axes as an input; empty for all."""
    axis = op.attrs["axis"]
    if axis is None:
        return ""
    return w.integers(axis if isinstance(axis, tuple) else [axis])


def _reduced(w: Writer, op: Op, name: str, x: str, keep: bool | None = None) -> str:
    if op.attrs["axis"] == ():
        return x
    keepdims = op.attrs["keepdims"] if keep is None else keep
    return w.add(name, x, axes_of(w, op), keepdims=int(keepdims))  # type: ignore[no-any-return]


@form(" ".join(REDUCED))
def reduced(w: Writer, op: Op, x: str) -> Any:
    return _reduced(w, op, REDUCED[op.node.op], w.cast(x, op.spec(0).dtype, op.dtype))


@form("any all")
def truths(w: Writer, op: Op, x: str) -> Any:
    """The largest, or smallest, of zeros and ones."""
    numbers = w.cast(w.add("Cast", x, to=9), op.dtype, i64)
    name = "ReduceMax" if op.node.op == "any" else "ReduceMin"
    return w.cast(_reduced(w, op, name, numbers), i64, op.dtype)


@form("argmax argmin")
def arguments(w: Writer, op: Op, x: str) -> Any:
    axis, keep = op.attrs["axis"], op.attrs["keepdims"]
    if isinstance(axis, tuple):
        raise Unwritable(f"{op.node.op} over several axes")
    name = "ArgMax" if op.node.op == "argmax" else "ArgMin"
    if axis is None:
        found = w.add(name, w.reshape(x, (-1,)), axis=0, keepdims=0)
        return w.cast(w.reshape(found, op.shape), i64, op.dtype)
    return w.cast(w.add(name, x, axis=axis, keepdims=int(keep)), i64, op.dtype)


@form("var std")
def spread(w: Writer, op: Op, x: str) -> Any:
    x = w.cast(x, op.spec(0).dtype, op.dtype)
    away = w.add("Sub", x, _reduced(w, op, "ReduceMean", x, keep=True))
    total = _reduced(w, op, "ReduceSum", w.add("Mul", away, away))
    axis, shape = op.attrs["axis"], op.spec(0).shape
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    count = 1
    for a in axes:
        count *= shape[a]
    found = w.add("Div", total, w.constant(max(count - op.attrs["correction"], 0), op.dtype))
    return w.add("Sqrt", found) if op.node.op == "std" else found


@form("norm")
def norm(w: Writer, op: Op, x: str) -> Any:
    ord = op.attrs["ord"]
    x = w.cast(x, op.spec(0).dtype, op.dtype)
    if ord in (1, 2):
        return _reduced(w, op, f"ReduceL{int(ord)}", x)
    size = w.add("Abs", x)
    if ord in (float("inf"), float("-inf")):
        return _reduced(w, op, "ReduceMax" if ord > 0 else "ReduceMin", size)
    if ord == 0:
        raise Unwritable("norm: the order 0")
    total = _reduced(w, op, "ReduceSum", w.add("Pow", size, w.constant(ord, op.dtype)))
    return w.add("Pow", total, w.constant(1 / ord, op.dtype))


@form("softmax log_softmax")
def softmax(w: Writer, op: Op, x: str) -> Any:
    x = w.cast(x, op.spec(0).dtype, op.dtype)
    if not op.shape:
        return w.add("Sub", x, x) if op.node.op == "log_softmax" else w.add("Div", x, x)
    name = "Softmax" if op.node.op == "softmax" else "LogSoftmax"
    return w.add(name, x, axis=op.attrs["axis"])


@form("cumsum")
def cumsum(w: Writer, op: Op, x: str) -> Any:
    x = w.cast(x, op.spec(0).dtype, op.dtype)
    axis = w.constant(op.attrs["axis"], "int64")
    return w.add("CumSum", x, axis, exclusive=int(op.attrs["exclusive"]))


@form("cummax cummin")
def running(w: Writer, op: Op, x: str) -> Any:
    """The largest or smallest so far and its place: of twice as many elements in every step."""
    spec, axis, step = op.spec(0), op.attrs["axis"] % len(op.shape), 1
    n = spec.shape[axis]
    indices = np.arange(n).reshape(-1, *(1,) * (len(spec.shape) - 1 - axis))
    at = w.constant(np.broadcast_to(indices, spec.shape), "int64")
    ends, along = [w.integers([k]) for k in (0, n)], w.integers([axis])
    while step < n:
        heads, cuts = w.integers([step]), w.integers([-step])
        a, first = (w.add("Slice", t, ends[0], cuts, along) for t in (x, at))
        b, second = (w.add("Slice", t, heads, ends[1], along) for t in (x, at))
        taken = w.add(f"{'Greater' if op.node.op == 'cummax' else 'Less'}OrEqual", b, a)
        if spec.dtype.is_float:
            taken = w.add("Or", taken, w.add("IsNaN", b))
        x, at = (
            w.add("Concat", w.add("Slice", t, ends[0], heads, along), later, axis=axis)
            for t, later in (
                (x, w.add("Where", taken, b, a)),
                (at, w.add("Where", taken, second, first)),
            )
        )
        step *= 2
    return [x, w.cast(at, i64, op.node.results[1].dtype)]


@form("cumprod")
def cumprod(w: Writer, op: Op, x: str) -> Any:
    """Products with what lies 1, 2, 4, ... before: ONNX has sums alone."""
    x = w.cast(x, op.spec(0).dtype, op.dtype)
    rank, one = len(op.shape), w.constant(1, op.dtype)
    axis = op.attrs["axis"] % max(rank, 1)
    length = op.shape[axis] if rank else 1

    def before(t: str, by: int) -> str:
        ahead = [by if a == axis else 0 for a in range(rank)]
        return w.add("Pad", t, w.integers([*ahead, *(-n for n in ahead)]), one)  # type: ignore[no-any-return]

    if op.attrs["exclusive"] and length:
        x = before(x, 1)
    step = 1
    while step < length:
        x = w.add("Mul", x, before(x, step))
        step *= 2
    return x


@form("topk")
def topk(w: Writer, op: Op, x: str) -> Any:
    how = {"axis": op.attrs["axis"], "largest": int(op.attrs["largest"])}
    values, at = w.add("TopK", x, w.integers([op.attrs["k"]]), count=2, **how)
    return [values, w.cast(at, i64, op.node.results[1].dtype)]


@form("sort argsort")
def sort(w: Writer, op: Op, x: str) -> Any:
    """All of an axis in order: equal elements stay in theirs."""
    axis = op.attrs["axis"]
    count = w.integers([op.spec(0).shape[axis]])
    how = {"axis": axis, "largest": int(op.attrs["descending"])}
    values, at = w.add("TopK", x, count, count=2, **how)
    return values if op.node.op == "sort" else w.cast(at, i64, op.dtype)


@form("searchsorted")
def searchsorted(w: Writer, op: Op, known: str, wanted: str) -> Any:
    """How many of those that are known come before each element, NaN being the last."""
    known_spec, wanted_spec = op.spec(0), op.spec(1)
    many = known_spec.shape
    known = w.reshape(known, (*many[:-1], 1, many[-1]) if len(many) > 1 else many)
    wanted = w.reshape(wanted, (*wanted_spec.shape, 1))
    one, other = (wanted, known) if op.attrs["right"] else (known, wanted)
    found = w.add("Less", one, other)
    if wanted_spec.dtype.is_float:
        last = w.add("And", w.add("IsNaN", other), w.add("Not", w.add("IsNaN", one)))
        found = w.add("Or", found, last)
    if op.attrs["right"]:
        found = w.add("Not", found)
    counts = w.cast(found, bool_, i64)
    return w.add("ReduceSum", counts, w.integers([-1]), keepdims=0)
