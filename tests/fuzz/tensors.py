"""Methods of tensors and functions of their namespace: indexing, order, statistics, moving elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import tensor as T
from cubepy.tensor import as_tensor
from tests.fuzz.check import Want, Wrong, depth, exact
from tests.fuzz.draws import F32, F64, FLOATS, INTS, Call, Draw, draws, is_float, sums, unit
from tests.fuzz.elementwise import any_dtype, indices
from tests.fuzz.reductions import counted, number


def of_tensors(name: str, function: Callable[..., Any], *arrays: Any, want: Any) -> Call:
    """A call of a function of tensors."""

    def call(*given: Any) -> Any:
        return function(*(as_tensor(v) if hasattr(v, "shape") else v for v in given))

    call.__name__ = name
    return Call(call, arrays, want, out=False)


def an_index(d: Draw, shape: tuple[int, ...], writes: bool) -> tuple[Any, ...]:
    """Integers, slices, None, ..., a mask or arrays of integers; what is written is named once."""
    parts: list[Any] = []
    common, arrays = d.one(((), (1,), (5,), (2, 3))), 0
    for n in shape:
        kind = d.one(("int", "slice", "slice", "step", "array", "mask", "none", "whole", "end"))
        if kind == "end":
            break
        if kind == "none" and len(parts) < 6:
            parts.append(None)
        if kind == "int":
            parts.append(d.between(-n, n - 1))
        elif kind == "array" and not (arrays and writes):
            arrays += 1
            if writes:
                whole = d.numbers.permutation(n)[: min(n, 5)]
                parts.append(whole.astype(np.int64))
            else:
                parts.append(d.numbers.integers(-n, n, common).astype(d.one((np.int64, np.int32))))
        elif kind == "mask" and not arrays:
            arrays += 1
            mask = d.numbers.random(n) < 0.5
            parts.append(mask)
            common = (1,)  # what else is indexed broadcasts to the elements chosen
        elif kind in ("slice", "none"):
            low, high = sorted((d.between(-n, n), d.between(-n, n + 2)))
            parts.append(slice(d.any((None, low)), d.any((None, high))))
        elif kind == "step":
            parts.append(slice(None, None, d.one((-1, 2, -2, 3))))
        else:
            parts.append(slice(None))
    if len(parts) < len(shape) and d.maybe(0.3):
        parts.append(Ellipsis)
    return tuple(parts)


def as_index(index: tuple[Any, ...], wrap: bool) -> tuple[Any, ...]:
    return tuple(as_tensor(p) if wrap and isinstance(p, np.ndarray) else p for p in index)


@draws("t[i]", "t[i] = v")
def _(d: Draw, name: str) -> Call:
    d.vary(100)
    shape = d.shape(1, 4, low=1, elements=3000)
    x = d.array(shape, any_dtype(d))
    index = an_index(d, shape, name != "t[i]")
    wrap = d.maybe(0.3)
    if name == "t[i]":
        call = lambda t: t[as_index(index, wrap)]
        return of_tensors(f"[{index}]", call, x, want=lambda: exact(x[index].copy()))
    part = x[index].shape
    value = d.array(d.broadcastable(part) if part else (), x.dtype)

    def put(t: Any, v: Any) -> Any:
        t = t.clone()
        t[as_index(index, wrap)] = v
        return t

    def want() -> Want:
        made = x.copy()
        made[index] = value
        return exact(made)

    return of_tensors(f"[{index}] =", put, x, value, want=want)


def places(d: Draw, shape: tuple[int, ...]) -> np.ndarray:
    return d.placed(d.numbers.random(shape) < d.any((0.02, 0.5, 0.98)))


@draws("t.masked_fill", "t.masked_select", "t.nonzero", "where")
def _(d: Draw, name: str) -> Call:
    shape = d.shape(1, 3, elements=4000)
    x, mask = d.array(shape, any_dtype(d)), places(d, shape)
    if name == "t.masked_fill":
        value = d.one((0, 1))
        call: Any = lambda t, m: t.masked_fill(m, value)
        return of_tensors(
            name, call, x, mask, want=lambda: exact(np.where(mask, x.dtype.type(value), x))
        )
    if name == "t.masked_select":
        call = lambda t, m: t.masked_select(m)
        return of_tensors(name, call, x, mask, want=lambda: exact(x[mask]))
    if name == "t.nonzero":
        kind = lambda: [exact(p.astype(np.int64)) for p in np.nonzero(x)]
        return of_tensors(name, lambda t: t.nonzero(as_tuple=True), x, want=kind)
    y = d.array(shape, x.dtype)
    return of_tensors(name, T.where, mask, x, y, want=lambda: exact(np.where(mask, x, y)))


@draws("t.index_select", "t.index_copy", "t.index_add", "t.gather", "t.scatter_add", "take")
def _(d: Draw, name: str) -> Call:
    adds = name.endswith("add")
    dtype = number(d) if adds else any_dtype(d)
    x = d.array(
        d.shape(1, 3, low=1, elements=3000), dtype, "normal" if is_float(dtype) else "small"
    )
    dim = d.axis(x.ndim)
    n, k = x.shape[dim], dim % x.ndim
    if name in ("t.index_select", "take"):
        at = indices(d, (d.size(0, 60),), n)
        at = np.where(at < 0, at + n, at).astype(at.dtype)
        call: Any = lambda t, i: t.index_select(dim, i)
        call = (lambda t, i: T.take(t, i, axis=dim)) if name == "take" else call
        return of_tensors(name, call, x, at, want=lambda: exact(np.take(x, at, dim)))
    if name in ("t.gather", "t.scatter_add"):
        m = d.size(1, 40)
        where = d.numbers.integers(0, n, (*x.shape[:k], m, *x.shape[k + 1 :]))
        if name == "t.gather":
            call = lambda t, i: t.gather(dim, i)
            want: Any = lambda: exact(np.take_along_axis(x, where, k))
            return of_tensors(name, call, x, where, want=want)
        source = d.array(where.shape, dtype, "normal" if is_float(dtype) else "small")
        spread = lambda t, i, v: t.scatter_add(dim, i, v)
        axes = list(np.indices(where.shape))
        axes[k] = where
        return of_tensors(
            name, spread, x, where, source, want=lambda: added(x, tuple(axes), source)
        )
    count = min(n, d.between(0, 20))
    at = d.numbers.integers(0, n, count) if adds else d.numbers.permutation(n)[:count]
    source = d.array((*x.shape[:k], count, *x.shape[k + 1 :]), dtype, "normal" if is_float(dtype) else "small")  # fmt: skip
    place = (slice(None),) * k + (at,)
    if adds:
        call = lambda t, i, v: t.index_add(dim, i, v)
        return of_tensors(name, call, x, at, source, want=lambda: added(x, place, source))

    def copied() -> Want:
        made = x.copy()
        made[place] = source
        return exact(made)

    return of_tensors(name, lambda t, i, v: t.index_copy(dim, i, v), x, at, source, want=copied)


def added(x: np.ndarray, place: Any, source: np.ndarray) -> Want:
    """x with what is added at some places."""
    if not is_float(x.dtype):
        made = x.copy()
        np.add.at(made, place, source)
        return exact(made)
    value, size = x.astype(np.float64), np.abs(x.astype(np.float64))
    np.add.at(value, place, source.astype(np.float64))
    np.add.at(size, place, np.abs(source.astype(np.float64)))
    return Want(value, x.dtype, (depth(source.size) + 4) * sums(x.dtype) * size)


@draws("t.roll", "t.tril", "t.triu", "t.repeat", "t.repeat_interleave", "t.chunk", "stack", "diff")
def _(d: Draw, name: str) -> Call:
    dtype = number(d) if name == "diff" else any_dtype(d)
    x = d.array(d.shape(2, 3, low=1, elements=2000), dtype, "small")
    axis = d.axis(x.ndim)
    k = d.between(-5, 5)
    times = tuple(d.between(1, 3) for _ in range(x.ndim))
    if name == "diff":
        how: dict[str, Any] = {"axis": axis, "n": d.one((1, 1, 2))}
        call: Any = lambda t: T.diff(t, **how)

        def want() -> Want:
            if not is_float(dtype):
                return exact(np.diff(x, **how))
            wide = x.astype(np.float64)
            size = np.abs(wide).max() if wide.size else 0.0
            error = 4 * how["n"] * max(sums(dtype), unit(dtype)) * size
            return Want(np.diff(wide, **how), dtype, error)

        return of_tensors(name, call, x, want=want)
    if name == "stack":
        y = d.array(x.shape, x.dtype)
        where = d.one(range(-x.ndim - 1, x.ndim + 1))
        call = lambda a, b: T.stack([a, b], axis=where)
        return of_tensors(name, call, x, y, want=lambda: exact(np.stack([x, y], where)))
    if name == "t.chunk":
        parts = d.between(1, 4)
        size = -(-x.shape[axis] // parts)
        cuts = range(size, x.shape[axis], size)
        pieces = lambda: [exact(p.copy()) for p in np.split(x, list(cuts), axis)]
        return of_tensors(name, lambda t: t.chunk(parts, axis), x, want=pieces)
    made: dict[str, tuple[Any, Any]] = {
        "t.roll": (lambda t: t.roll(k, axis), lambda: np.roll(x, k, axis)),
        "t.tril": (lambda t: t.tril(k), lambda: np.tril(x, k)),
        "t.triu": (lambda t: t.triu(k), lambda: np.triu(x, k)),
        "t.repeat": (lambda t: t.repeat(*times), lambda: np.tile(x, times)),
        "t.repeat_interleave": (
            lambda t: t.repeat_interleave(times[0], axis),
            lambda: np.repeat(x, times[0], axis),
        ),
    }
    function, reference = made[name]
    return of_tensors(name, function, x, want=lambda: exact(reference()))


@draws("t.var", "t.std", "count_nonzero", "cumulative_sum")
def _(d: Draw, name: str) -> Call:
    dtype = number(d) if name == "count_nonzero" else d.one(FLOATS)
    x = d.array(d.shape(1, 3, low=1), dtype, "normal" if name != "count_nonzero" else "")
    axis, keep = d.one((None, *range(-x.ndim, x.ndim))), d.maybe(0.3)
    if name == "count_nonzero":
        call: Any = lambda t: T.count_nonzero(t, axis=axis, keepdims=keep)
        want: Any = lambda: exact(np.count_nonzero(x, axis=axis, keepdims=keep), np.int64)
        return of_tensors(name, call, x, want=want)
    wide = x.astype(np.float64)
    if name == "cumulative_sum":
        along = axis if axis is not None else 0
        if axis is None and x.ndim > 1:
            along = -1
        first = d.maybe(0.3)
        call = lambda t: T.cumulative_sum(t, axis=along, include_initial=first)

        def scanned() -> Want:
            value, size = (np.cumsum(v, along) for v in (wide, np.abs(wide)))
            if first:
                zeros = np.zeros_like(np.take(value, [0], along))
                value, size = (np.concatenate([zeros, v], along) for v in (value, size))
            return Want(value, dtype, depth(x.shape[along]) * sums(dtype) * size)

        return of_tensors(name, call, x, want=scanned)
    n = counted(x, axis)
    correction = d.one((0, 1)) if n > 1 else 0
    call = lambda t: getattr(t, name[2:])(dim=axis, correction=correction, keepdim=keep)

    def spread() -> Want:
        mean = wide.mean(axis, keepdims=True)
        value = ((wide - mean) ** 2).sum(axis, keepdims=keep) / (n - correction)
        off = (depth(n) * sums(dtype) * np.abs(wide).mean(axis, keepdims=keep)) ** 2 * 4
        error = (depth(n) + 4) * sums(dtype) * value + off
        if name == "t.std":
            value = np.sqrt(value)
            error = np.minimum(np.sqrt(error), error / np.where(value > 0, value, 1) + np.sqrt(off))
        return Want(value, dtype, error)

    return of_tensors(name, call, x, want=spread)


@draws("unique_all", "unique_values", "searchsorted", "t.sort")
def _(d: Draw, name: str) -> Call:
    dtype = np.dtype(d.one((F32, F64, d.one(INTS))))
    x = d.array(
        d.shape(1, 1 if name == "searchsorted" else 2, low=1), dtype, d.any(("ties", "normal"))
    )
    if name == "t.sort":
        dim, down = d.axis(x.ndim), d.maybe()
        call: Any = lambda t: t.sort(dim, descending=down)

        def ordered() -> list[Want]:
            key = -np.unique(x, return_inverse=True)[1].reshape(x.shape) if down else x
            at = np.argsort(key, dim, kind="stable")
            return [exact(np.take_along_axis(x, at, dim)), exact(at.astype(np.int64))]

        return of_tensors(name, call, x, want=ordered)
    if name == "searchsorted":
        x = d.placed(np.sort(x))
        y = d.array(d.shape(1, 2), dtype, d.any(("ties", "normal")))
        side = d.one(("left", "right"))
        call = lambda a, b: T.searchsorted(a, b, side=side)
        want = lambda: exact(np.searchsorted(x, y, side), np.int64)
        return of_tensors(name, call, x, y, want=want)
    if name == "unique_values":
        return of_tensors(name, lambda t: T.unique_values(t), x, want=lambda: exact(np.unique(x)))

    def all_of() -> list[Want]:
        values, first, inverse, counts = np.unique(x, True, True, True)
        rest = (first, inverse.reshape(x.shape), counts)
        return [exact(values), *(exact(v.astype(np.int64)) for v in rest)]

    return of_tensors(name, lambda t: T.unique_all(t), x, want=all_of)


@draws("einsum")
def _(d: Draw, name: str) -> Call:
    text = d.one(("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij,ij->", "i,j->ij", "bij->b",
                  "bhqd,bhkd->bhqk", "ij,kj,k->i", "...ij,...jk->...ik"))  # fmt: skip
    dtype, lengths = d.one(FLOATS), {letter: d.size(1, 12) for letter in "bhijkqd"}
    shapes = [
        tuple([lengths["b"]] * ("..." in t) + [lengths[c] for c in t.replace(".", "")])
        for t in text.split("->")[0].split(",")
    ]
    arrays = [d.array(s, dtype, "normal") for s in shapes]

    def want() -> Want:
        wide = [a.astype(np.float64) for a in arrays]
        size = np.einsum(text, *map(np.abs, wide))
        n = max(a.size for a in arrays)
        # what is between two products is rounded to the dtype
        units = (depth(n) + 4) * sums(dtype) + (len(arrays) - 2 > 0) * 2 * unit(dtype)
        return Want(np.einsum(text, *wide).copy(), dtype, units * size)

    return of_tensors(f"einsum {text}", lambda *t: T.einsum(text, *t), *arrays, want=want)


@draws("generator")
def _(d: Draw, name: str) -> Call:
    """A state gives its numbers again; dropout keeps or scales, a permutation permutes."""
    shape, dtype, seed = d.shape(1, 3, low=1), d.one(FLOATS), d.between(0, 1 << 30)
    kind = d.one(("uniform", "normal", "integers", "permutation", "dropout"))
    x = d.array(shape, dtype, "normal")

    def drawn(g: Any, t: Any) -> Any:
        if kind in ("permutation", "dropout"):
            return getattr(g, kind)(t)
        return g.integers(-5, 9, shape) if kind == "integers" else getattr(g, kind)(shape, dtype=dtype.name)  # fmt: skip

    def call(given: Any) -> Any:
        t = as_tensor(given)
        g = cb.Generator(seed, t.device)
        got = drawn(g, t)
        state = g.state
        more = drawn(g, t).numpy()
        g.state = state
        if not np.array_equal(more, drawn(g, t).numpy()):
            raise Wrong("a state gives other numbers again")
        kept = got.numpy().astype(np.float64)
        wide = x.astype(np.float64)
        good = {
            "uniform": lambda: (kept >= 0) & (kept <= 1),
            "normal": lambda: np.abs(kept) < 12,
            "integers": lambda: (kept >= -5) & (kept < 9),
            "permutation": lambda: np.sort(kept, 0) == np.sort(wide, 0),
            "dropout": lambda: (kept == 0) | (np.abs(kept - 2 * wide) <= 1e-6),
        }
        if kind == "permutation" and x.ndim > 1:
            rows = [
                sorted(map(bytes, np.ascontiguousarray(v).reshape(len(v), -1)))
                for v in (kept, wide)
            ]
            right = rows[0] == rows[1]
        else:
            right = bool(np.all(good[kind]()))
        if not right:
            raise Wrong(f"numbers of {kind} are not what they may be")
        again = drawn(cb.Generator(seed, t.device), t).numpy()
        return [got, again]

    call.__name__ = kind
    want = lambda: [exact(np.asarray(v)) for v in [drawn(cb.Generator(seed), as_tensor(x)).numpy()] * 2]  # fmt: skip
    return Call(call, (x,), want, out=False)
