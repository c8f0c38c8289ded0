"""Functions of elements, copies, and moving elements about."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import kernels as K
from cubepy.lang.dtypes import as_dtype, promote
from tests.fuzz.check import Want, exact
from tests.fuzz.draws import F64, FLOATS, INTS, Call, Draw, draws, is_float, sums

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Any) -> Any:
    return np.where(
        x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))
    )


def gelu(x: Any) -> Any:
    return x * (0.5 * (1 + erf(x / math.sqrt(2)))) if np.size(x) else x


def gelu_tanh(x: Any) -> Any:
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def silu(x: Any) -> Any:
    return x * sigmoid(x)


f = K.functions
ONE: dict[Any, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    # the reference, what errors are relative to, and how many units of them are allowed
    f.gelu_erf: (gelu, lambda x: np.minimum(np.abs(x), 8), 4),
    f.gelu_tanh: (gelu_tanh, lambda x: np.minimum(np.abs(x), 8), 4),
    f.relu: (lambda x: np.where(x < 0, 0.0, x), np.zeros_like, 0),
    f.silu: (silu, lambda x: np.abs(silu(x)) + 1e-30, 8),
    f.sigmoid: (sigmoid, sigmoid, 8),
    f.tanh: (np.tanh, np.tanh, 4),
    cb.exp: (np.exp, np.exp, 4),
    cb.sqrt: (np.sqrt, np.sqrt, 2),
    cb.abs: (np.abs, np.zeros_like, 0),
    cb.floor: (np.floor, np.zeros_like, 0),
    cb.erf: (erf, lambda x: np.abs(erf(x)), 4),
}  # fmt: skip
TWO: dict[Any, tuple[Callable[..., Any], float]] = {
    f.add: (np.add, 1), f.sub: (np.subtract, 1), f.mul: (np.multiply, 1), f.div: (np.divide, 2),
    f.smaller: (np.minimum, 0), f.larger: (np.maximum, 0),
}  # fmt: skip
SUMS = (f.add, f.sub)
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": gelu, "gelu_tanh": gelu_tanh, "relu": lambda x: np.where(x < 0, 0.0, x), "silu": silu, "sigmoid": sigmoid,
    "tanh": np.tanh,
}  # fmt: skip


def of_one(function: Any, x: np.ndarray, dtype: np.dtype) -> Want:
    """A function of one float."""
    reference, scale, units = ONE[function]
    wide = x.astype(np.float64)
    error = units * sums(dtype) * np.abs(scale(wide)) if wide.size else 0.0
    return Want(np.asarray(reference(wide) if wide.size else wide), dtype, error)


@draws("map", also=("functions",))
def _(d: Draw, name: str) -> Call:
    shape = d.shape(0)
    if d.maybe(0.6):
        dtype, function = d.one(FLOATS), d.one(tuple(ONE))
        x = d.array(shape, dtype)
        return Call(K.map, (function, x), lambda: of_one(function, x, dtype), in_place=1)
    function = d.one(tuple(TWO))
    dtypes = [d.one(FLOATS)] * 2 if function is f.div or d.maybe(0.7) else [d.one(INTS)] * 2
    if d.maybe(0.2):
        dtypes[1] = d.one(FLOATS if is_float(dtypes[0]) else INTS)
    a = d.array(shape, dtypes[0])
    b = d.array(d.broadcastable(shape), dtypes[1])
    result = promote(as_dtype(a.dtype), as_dtype(b.dtype)).numpy

    def want() -> Want:
        reference, units = TWO[function]
        if not is_float(result):
            return exact(reference(a.astype(result), b.astype(result)))
        wide = [v.astype(np.float64) for v in (a, b)]
        value = reference(*wide)
        scale = np.abs(wide[0]) + np.abs(wide[1]) if function in SUMS else np.abs(value)
        return Want(value, result, units * sums(result) * scale)

    return Call(K.map, (function, a, b), want, in_place=1)


@draws("gelu")
def _(d: Draw, name: str) -> Call:
    dtype, form = d.one(FLOATS), d.one(("none", "tanh"))
    x = d.array(d.shape(0), dtype)
    function = f.gelu_erf if form == "none" else f.gelu_tanh
    return Call(K.gelu, (x, form), lambda: of_one(function, x, dtype), in_place=0)


def any_dtype(d: Draw) -> np.dtype:
    return np.dtype(d.one((d.one(FLOATS), d.one(INTS), np.bool_)))


@draws("copy", "transpose", "flip")
def _(d: Draw, name: str) -> Call:
    x = d.array(d.shape(0 if name == "copy" else 1), any_dtype(d))
    axes = list(range(x.ndim))
    if name == "copy":
        return Call(K.copy, (x,), lambda: exact(x.copy()))
    if name == "flip":
        axis = d.one(
            (None, d.axis(x.ndim), tuple(d.code.sample(axes, d.one(range(1, x.ndim + 1)))))
        )
        return Call(K.flip, (x, axis), lambda: exact(np.flip(x, axis).copy()))
    d.code.shuffle(axes)
    order = None if d.maybe(0.3) else tuple(axes)
    return Call(K.transpose, (x, order), lambda: exact(np.transpose(x, order).copy()))


@draws("concat")
def _(d: Draw, name: str) -> Call:
    shape = list(d.shape(1, elements=3000))
    axis = d.axis(len(shape))
    dtype, parts = any_dtype(d), []
    for _ in range(d.between(1, 4)):
        shape[axis] = d.size(high=40)
        parts.append(d.array(tuple(shape), dtype))
    if is_float(dtype) and d.maybe(0.2):
        parts[-1] = d.array(parts[-1].shape, d.one(FLOATS))
    result = as_dtype(parts[0].dtype)
    for p in parts:
        result = promote(result, as_dtype(p.dtype))
    return Call(
        K.concat,
        (parts, axis),
        lambda: exact(np.concatenate([p.astype(result.numpy) for p in parts], axis)),
    )


@draws("pad")
def _(d: Draw, name: str) -> Call:
    x = d.array(d.shape(1, elements=3000), any_dtype(d))
    mode = d.one(("constant", "constant", "reflect", "replicate"))
    pairs: list[tuple[int, int]] = []
    for n in reversed(x.shape[-d.one(range(1, x.ndim + 1)) :]):
        if mode == "constant":
            low = d.between(-min(n // 2, 3), 20)
            pairs.append((low, d.between(-min(n // 2, 3), 20)))
        else:
            most = min(n - 1, 20) if mode == "reflect" else (20 if n else 0)
            pairs.append((d.between(0, max(most, 0)), d.between(0, max(most, 0))))
    value = d.one((0, 1)) if x.dtype == np.bool_ else d.one((0, 1, 5))

    def want() -> Want:
        widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
        cut = x[
            tuple(
                slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, widths, strict=True)
            )
        ]
        more = [(max(a, 0), max(b, 0)) for a, b in widths]
        if mode == "constant":
            out = np.full(
                [n + a + b for n, (a, b) in zip(cut.shape, more, strict=True)], value, x.dtype
            )
            out[tuple(slice(a, a + n) for n, (a, _) in zip(cut.shape, more, strict=True))] = cut
            return exact(out)
        out = cut
        for k, (a, b) in enumerate(more):
            n, at = out.shape[k], np.arange(-a, out.shape[k] + b)
            if mode == "replicate":
                at = np.clip(at, 0, n - 1)
            else:
                at = np.abs(at)
                at = np.where(at > n - 1, 2 * (n - 1) - at, at)
            out = np.take(out, at, k) if len(at) else out
        return exact(out)

    return Call(K.pad, (x, [n for pair in pairs for n in pair], mode, value), want)


# -------------------------------------------------------------------------------------------------------
# by indices


def indices(d: Draw, shape: tuple[int, ...], n: int, negative: bool = False) -> np.ndarray:
    """Integers of [0, n), or of [-n, n)."""
    dtype = np.dtype(d.one(("i8", "i8", "i4")))
    values = (
        d.numbers.integers(-n if negative else 0, n, shape, dtype) if n else np.zeros(shape, dtype)
    )
    return d.placed(values)


def once(d: Draw, index: np.ndarray, axis: int, n: int) -> np.ndarray:
    """Indices of which none is there twice along an axis: who writes last is open on a GPU."""
    shape = [*index.shape]
    shape[axis] = n
    order = np.argsort(d.numbers.random(shape), axis).astype(index.dtype)
    return np.take(order, range(min(index.shape[axis], n)), axis)


@draws("gather", "take_along_axis", "select", "embedding")
def _(d: Draw, name: str) -> Call:
    x = d.array(d.shape(2, 2, 1) if name == "embedding" else d.shape(1, 3, 1, 6000), any_dtype(d))
    if name == "embedding":
        x = x if is_float(x.dtype) else d.array(x.shape, d.one(FLOATS))
        rows = indices(d, d.shape(0, 3, elements=200), x.shape[0])
        return Call(K.embedding, (rows, x), lambda: exact(x[rows]))
    axis = d.axis(x.ndim)
    n = x.shape[axis]
    if name == "select":
        index = indices(d, (d.size(high=60),), n)
        return Call(K.select, (x, axis, index), lambda: exact(np.take(x, index, axis)))
    shape = list(x.shape)
    shape[axis] = d.size(high=60)
    if name == "gather":
        for k in range(x.ndim):
            if k != axis % x.ndim and d.maybe(0.3):
                shape[k] = d.between(1, shape[k])
        index = indices(d, tuple(shape), n)
        part = x[
            tuple(slice(None) if k == axis % x.ndim else slice(0, s) for k, s in enumerate(shape))
        ]
        return Call(
            K.gather,
            (x, axis, index),
            lambda: exact(np.take_along_axis(part, index.astype(np.int64), axis)),
        )
    index = indices(d, tuple(shape), n, negative=True)
    return Call(
        K.take_along_axis,
        (x, index, axis),
        lambda: exact(np.take_along_axis(x, index.astype(np.int64), axis)),
    )


UPDATES: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def updated(x: np.ndarray, places: tuple[Any, ...], values: Any, update: str) -> Want:
    """x with some places updated, in the order of the indices."""
    if update == "assign" or not is_float(x.dtype):
        out = x.copy()
        if update == "assign":
            for place, v in zip(
                zip(*(p.reshape(-1) for p in places), strict=True), values.reshape(-1), strict=True
            ):
                out[place] = v
        else:
            UPDATES[update].at(out, places, values)
        return exact(out)
    out, size, count = x.astype(np.float64), np.abs(x.astype(np.float64)), np.zeros(x.shape)
    UPDATES[update].at(out, places, values.astype(np.float64))
    if update in ("min", "max"):
        return exact(out, x.dtype)
    UPDATES[update].at(size, places, np.abs(values.astype(np.float64)))
    np.add.at(count, places, 1)
    return Want(out, x.dtype, (2 + count) * sums(x.dtype) * size)


@draws("scatter", "index_put")
def _(d: Draw, name: str) -> Call:
    dtype = d.one((d.one(FLOATS), d.one(INTS)))
    x = d.array(d.shape(1, 3, 1, 3000), dtype, "near" if d.maybe() else "")
    update = d.one(("assign", "assign", "add", "add", "mul", "min", "max"))
    if name == "scatter":
        axis = d.axis(x.ndim)
        shape = [d.between(1, n) for n in x.shape]
        shape[axis] = d.size(high=40)
        index = indices(d, tuple(shape), x.shape[axis])
        if update == "assign" and not d.ordered:
            index = once(d, index, axis, x.shape[axis])
            shape = [*index.shape]
        src = d.array(tuple(shape), dtype, "near")

        def want() -> Want:
            places = list(np.indices(index.shape, sparse=False))
            places[axis] = index.astype(np.int64)
            return updated(x, tuple(places), src, update)

        return Call(K.scatter, (x, axis, index, src, update), want, in_place=0)
    lead = d.one(range(1, x.ndim + 1))
    many = d.shape(1, 2, 1, 60)
    lists = tuple(indices(d, many, n, negative=True) for n in x.shape[:lead])
    if update == "assign" and not d.ordered:
        total = int(np.prod(x.shape[:lead]))
        chosen = d.numbers.permutation(total)[: int(np.prod(many))]
        rows = np.unravel_index(chosen, x.shape[:lead])
        lists = tuple(r.astype(i.dtype) for r, i in zip(rows, lists, strict=True))
        many = chosen.shape
    values = d.array((*many, *x.shape[lead:]), dtype, "near")

    def want() -> Want:
        whole = tuple(
            np.broadcast_to(
                (p.astype(np.int64) % n).reshape(*many, *(1,) * (x.ndim - lead)), values.shape
            )
            for p, n in zip(lists, x.shape, strict=False)
        )
        rest = np.indices(values.shape)[len(many) :]
        return updated(x, (*whole, *rest), values, update)

    return Call(K.index_put, (x, lists, values, update), want, in_place=0)


assert F64 in FLOATS
