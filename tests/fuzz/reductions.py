"""Reductions, statistics, scans and order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import kernels as K
from tests.fuzz.check import Want, depth, exact, summed
from tests.fuzz.draws import F32, F64, FLOATS, INTS, Call, Draw, draws, is_float, sums


def axes(d: Draw, rank: int, several: bool = True) -> Any:
    """None, an axis, or some."""
    if not rank or d.maybe(0.2):
        return None
    if several and d.maybe(0.25):
        return tuple(d.code.sample(range(rank), d.one(range(1, rank + 1))))
    return d.axis(rank)


def counted(x: np.ndarray, axis: Any) -> int:
    """How many elements go into one result."""
    over = (
        range(x.ndim)
        if axis is None
        else [a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
    )
    return math.prod(x.shape[k] for k in over)


def number(d: Draw) -> np.dtype:
    return np.dtype(d.one((d.one(FLOATS), d.one(FLOATS), d.one(INTS))))


def wide_int(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


def float_of(dtype: np.dtype) -> np.dtype:
    """What means of ints are in."""
    return F64 if dtype.itemsize == 8 else F32


@draws("sum", "prod", "mean")
def _(d: Draw, name: str) -> Call:
    dtype = number(d)
    x = d.array(d.shape(0), dtype, "near" if name == "prod" else "")
    axis, keep = axes(d, x.ndim), d.maybe(0.2)
    if name == "mean" and not counted(x, axis):
        x = d.array((3,) * max(x.ndim, 1), dtype)
        axis = None

    def want() -> Want:
        n = counted(x, axis)
        if name != "mean" and not is_float(dtype):
            return exact(getattr(np, name)(x.astype(wide_int(dtype)), axis, keepdims=keep))
        wide = x.astype(np.float64)
        if name == "prod":
            value = wide.prod(axis, keepdims=keep)
            return Want(value, dtype, (1 + n) * sums(dtype) * np.abs(value))
        scale = 1 / max(n, 1) if name == "mean" else 1.0
        value = wide.sum(axis, keepdims=keep) * scale
        result = dtype if is_float(dtype) else float_of(dtype)
        return summed(value, np.abs(wide).sum(axis, keepdims=keep) * scale, n, result, 2)

    return Call(getattr(K, name), (x,), want, {"axis": axis, "keepdims": keep})


@draws("max", "min", "argmax", "argmin", "all", "any")
def _(d: Draw, name: str) -> Call:
    dtype = np.dtype(np.bool_) if name in ("all", "any") and d.maybe() else number(d)
    x = d.array(d.shape(0, low=0 if name in ("all", "any") else 1), dtype)
    axis, keep = axes(d, x.ndim, not name.startswith("arg")), d.maybe(0.2)

    def want() -> Want:
        wide = x.astype(np.float64) if is_float(dtype) else x
        value = getattr(np, name)(wide, axis, keepdims=keep)
        return exact(
            value,
            np.int64 if name.startswith("arg") else np.bool_ if name in ("all", "any") else dtype,
        )

    return Call(getattr(K, name), (x,), want, {"axis": axis, "keepdims": keep})


@draws("var", "std", "norm", "logsumexp")
def _(d: Draw, name: str) -> Call:
    dtype = d.one(FLOATS)
    x = d.array(d.shape(1, low=1), dtype)
    axis, keep = axes(d, x.ndim), d.maybe(0.2)
    # the library's statistics of f64 are nearer to what they should be than NumPy's
    precise = np.longdouble if name in ("var", "std") else np.float64
    n, wide = counted(x, axis), x.astype(precise)
    options: dict[str, Any] = {"axis": axis, "keepdims": keep}
    if name in ("var", "std"):
        options["ddof"] = d.one((0, 0, 1)) if n > 1 else 0
    elif name == "norm":
        options["ord"] = d.one((1, 2, 2, 3, 0.5, math.inf, 1.5))

    def want() -> Want:
        over = {"axis": axis, "keepdims": keep}
        if name == "logsumexp":
            top = wide.max(axis=axis, keepdims=True)
            base = np.where(np.isfinite(top), top, 0.0)
            total = np.exp(wide - base).sum(axis, keepdims=True)
            value = np.log(total) + base
            value = value if keep else value.sum(axis)
            return Want(value, dtype, (depth(n) + 4) * sums(dtype) * (np.abs(value) + 1))
        if name == "norm":
            order = options["ord"]
            size = np.abs(wide)
            if order == math.inf:
                return exact(size.max(**over), dtype)
            value = (size**order).sum(**over) ** (1 / order)
            # powers of any order are exp(order * log x), whose error grows with the exponent
            more = 4 if order in (1, 2) else 60
            return Want(value, dtype, (depth(n) + more) * sums(dtype) * value * max(1, 1 / order))
        ddof = options["ddof"]
        mean = wide.mean(axis, keepdims=True)
        away = ((wide - mean) ** 2).sum(**over) / max(n - ddof, 0)
        value = away if name == "var" else np.sqrt(away)
        # the mean is off by a few units, which counts squared
        off = (depth(n) * sums(dtype) * np.abs(wide).mean(**over)) ** 2 * (n / max(n - ddof, 1))
        error = (depth(n) + 2) * sums(dtype) * away + off
        if name == "std":
            error = np.minimum(np.sqrt(error), error / np.where(value > 0, value, 1) + np.sqrt(off))
        return Want(value.astype(np.float64), dtype, error)

    return Call(getattr(K, name), (x,), want, options)


@draws("cumsum", "cumprod")
def _(d: Draw, name: str) -> Call:
    dtype = number(d)
    x = d.array(d.shape(1), dtype, "near" if name == "cumprod" else "")
    axis, exclusive = axes(d, x.ndim, False), d.maybe(0.3)

    def want() -> Want:
        flat, along = (x.reshape(-1), 0) if axis is None else (x, axis)
        result = dtype if is_float(dtype) else wide_int(dtype)
        wide = flat.astype(np.float64 if is_float(dtype) else result)
        scan, first = (np.cumsum, 0) if name == "cumsum" else (np.cumprod, 1)

        def scanned(v: np.ndarray) -> np.ndarray:
            out = scan(v, axis=along)
            if not exclusive or not out.shape[along]:
                return out
            out = np.roll(out, 1, along)
            out[
                tuple(
                    slice(0, 1) if k == along % out.ndim else slice(None) for k in range(out.ndim)
                )
            ] = first
            return out

        value = scanned(wide)
        if not is_float(dtype):
            return exact(value)
        n = flat.shape[along]
        size = scanned(np.abs(wide))
        return Want(
            value, result, (depth(n) + (n if name == "cumprod" else 0)) * sums(dtype) * size
        )

    return Call(getattr(K, name), (x,), want, {"axis": axis, "exclusive": exclusive})


def ranks(x: np.ndarray, axis: int) -> np.ndarray:
    """The place of each element among the different ones, NaN last: ints that compare as the
    elements do.
    """
    wide = x.astype(np.float64) if is_float(x.dtype) else x
    return np.unique(wide, return_inverse=True)[1].reshape(x.shape)


@draws("sort", "argsort", "topk")
def _(d: Draw, name: str) -> Call:
    dtype = number(d)
    x = d.array(d.shape(1, 3), dtype)
    descending = d.maybe(0.4)
    axis = d.axis(x.ndim)

    def order(v: np.ndarray, axis: int, descending: bool) -> np.ndarray:
        key = ranks(v, axis).astype(np.int64)
        return np.argsort(-key if descending else key, axis, kind="stable")

    if name == "topk":
        k = d.between(0, x.shape[axis])

        def best() -> list[Want]:
            places = np.take(order(x, axis, descending), np.arange(k), axis)
            return [exact(np.take_along_axis(x, places, axis)), exact(places.astype(np.int64))]

        return Call(K.topk, (x, k, axis, descending), best, out=False)
    along = None if d.maybe(0.1) else axis

    def want() -> Want:
        flat, k = (x.reshape(-1), 0) if along is None else (x, axis)
        places = order(flat, k, descending)
        return (
            exact(places.astype(np.int64))
            if name == "argsort"
            else exact(np.take_along_axis(flat, places, k))
        )

    return Call(getattr(K, name), (x, along, descending), want)
