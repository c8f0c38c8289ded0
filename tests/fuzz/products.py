"""Matrix products, attention and recurrent layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import kernels as K
from cubepy.lang.dtypes import as_dtype, promote
from tests.fuzz.check import Want, depth, exact
from tests.fuzz.draws import BF16, F32, FLOATS, INTS, Call, Draw, draws, is_float, sums, unit
from tests.fuzz.elementwise import ACTIVATIONS

LARGE = 300_000  # products of elements, so that references stay quick


def extents(d: Draw) -> tuple[int, int, int]:
    m, k, n = d.size(), d.size(), d.size()
    while m * k * n > LARGE:
        m, k, n = (max(1, v * 2 // 3) for v in (m, k, n))
    return m, k, n


@draws("matmul", also=("prepack",))
def _(d: Draw, name: str) -> Call:
    m, k, n = extents(d)
    dtype = d.one(FLOATS) if d.maybe(0.8) else d.one(INTS)
    batch = (d.between(1, 3),) if d.maybe(0.25) else ()
    a = d.array(
        (*batch, m, k) if m or d.maybe(0.9) else (k,), dtype, "" if d.maybe(0.3) else "normal"
    )
    turned = d.maybe(0.4)
    b = d.array(
        (*(batch if d.maybe() else ()), n, k) if turned else (k, n),
        dtype,
        "normal" if is_float(dtype) else "",
    )
    b = b.swapaxes(-1, -2) if turned else b
    options: dict[str, Any] = {}
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n) if a.ndim > 1 else (n,)
    plain = not is_float(dtype) or dtype.itemsize == 8
    result = dtype
    if a.ndim > 1 and not plain:
        if d.maybe(0.3):
            options["bias"] = d.array(
                (n,), d.one((dtype, F32)) if d.maybe(0.2) else dtype, "normal"
            )
        if d.maybe(0.3):
            options["activation"] = d.one(tuple(ACTIVATIONS))
        if d.maybe(0.2):
            options["residual"] = d.array(shape, dtype, "normal")
        if d.maybe(0.2):
            options["alpha"] = 0.5
        if dtype.itemsize == 2 and d.maybe(0.3):
            options["dtype"], result = cb.f32, F32
    if a.ndim > 1 and d.maybe(0.1):
        options["mask"] = d.array(d.broadcastable(shape), np.bool_)
        options["fill"] = d.one((0.0, 1.0))
    if dtype.itemsize == 1 and d.maybe():
        options["dtype"], result = cb.i32, np.dtype(np.int32)
    packs = b.ndim == 2 and a.ndim > 1 and d.maybe(0.15)

    def call(a: Any, b: Any, **options: Any) -> Any:
        return K.matmul(a, K.prepack(b) if packs else b, **options)

    def want() -> Want:
        if not is_float(dtype):
            value = a.astype(result) @ b.astype(result)
            if "mask" in options:
                value = np.where(options["mask"], value, np.array(options["fill"]).astype(result))
            return exact(value, result)
        alpha = options.get("alpha", 1.0)
        wide, deep = a.astype(np.float64), b.astype(np.float64)
        value, size = alpha * (wide @ deep), alpha * (np.abs(wide) @ np.abs(deep))
        if "bias" in options:
            bias = options["bias"].astype(np.float64)
            value, size = value + bias, size + np.abs(bias)
        if "activation" in options:
            value = ACTIVATIONS[options["activation"]](value)
            size = size + np.abs(value)  # its own rounding
        if "residual" in options:
            residual = options["residual"].astype(np.float64)
            value, size = value + residual, size + np.abs(residual)
        error = (depth(k) + 8) * sums(dtype) * size
        if "mask" in options:
            value = np.where(options["mask"], value, options["fill"])
        return Want(value, result, error)

    call.__name__ = name
    return Call(call, (a, b), want, options)


class Problem:
    """Queries, keys, values, a mask, and float64 results of attention."""

    def __init__(self, d: Draw, square: bool = False) -> None:
        self.dtype = d.one(FLOATS[:-1])
        batch, groups, heads = d.between(1, 3), d.one((1, 1, 2, 3)), d.one((1, 1, 2, 4))
        length, keys, self.depth = (
            d.size(1, 130),
            d.size(1, 130),
            d.one((1, 5, 16, 24, 32, 64, d.one(range(1, 80)))),
        )
        width = self.depth if d.maybe(0.6) else d.one((1, 17, 33, 49, 65, d.one(range(1, 80))))
        while batch * heads * groups * length * keys * (self.depth + width) > 10 * LARGE:
            length, keys, batch = max(1, length // 2), max(1, keys // 2), max(1, batch // 2)
        heads *= groups
        kind = "normal" if d.maybe(0.9) else "ties"
        self.q = d.array((batch, heads, length, self.depth), self.dtype, kind)
        self.k = d.array((batch, groups, keys, self.depth), self.dtype, kind)
        self.v = d.array((batch, groups, keys, width), self.dtype, kind)
        self.causal = d.maybe(0.3)
        self.scale = d.one((None, None, 0.3, 1.0))
        self.mask = None
        if d.maybe(0.35):
            shape = d.broadcastable((batch, heads, length, keys))
            shape = (1,) * (4 - len(shape)) + shape
            self.mask = d.array(
                shape, np.bool_ if d.maybe() else d.one((F32, self.dtype)), "normal"
            )
        self.repeat = heads // groups

    def scores(self) -> tuple[np.ndarray, ...]:
        """Scores (-inf: may not look), and what each is the sum of."""
        q, k, v = (x.astype(np.float64) for x in (self.q, self.k, self.v))
        k, v = np.repeat(k, self.repeat, 1), np.repeat(v, self.repeat, 1)
        scale = 1 / math.sqrt(self.depth) if self.scale is None else self.scale
        s = scale * (q @ k.swapaxes(-1, -2))
        size = scale * (np.abs(q) @ np.abs(k).swapaxes(-1, -2))
        if self.mask is not None:
            s = (
                np.where(self.mask, s, -np.inf)
                if self.mask.dtype == np.bool_
                else s + self.mask.astype(np.float64)
            )
        if self.causal:
            s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
        return s, size, q, k, v

    def forward(self) -> tuple[np.ndarray, ...]:
        """The result, the log of the sums of exponentials, and the weights."""
        s, size, _, _, v = self.scores()
        top = s.max(-1, keepdims=True)
        base = np.where(np.isfinite(top), top, 0.0)
        e = np.exp(s - base)
        total = e.sum(-1, keepdims=True)
        weights = np.where(total > 0, e / np.where(total > 0, total, 1), 0.0)
        return weights @ v, (np.log(total) + base)[..., 0], weights, np.abs(s - base), size

    def units(self) -> float:
        """Weights may be rounded to the values' dtype before they are summed."""
        return 1.5 * unit(self.dtype) + 8 * unit(F32)

    def wants(self) -> list[Want]:
        value, lse, weights, far, size = self.forward()
        v = np.abs(np.repeat(self.v.astype(np.float64), self.repeat, 1))
        spread = np.where(weights > 0, np.where(np.isfinite(far), far, 0) + size, 0)
        error = self.units() * (weights @ v) + (depth(self.depth) + depth(self.q.shape[-2])) * unit(
            F32
        ) * ((weights * (2 + spread)) @ v)
        error = error + unit(F32) * 4 * (weights * spread).sum(-1, keepdims=True) * (weights @ v)
        off = depth(self.depth) * unit(F32) * (np.abs(lse) + 2 + spread.max(-1))
        return [Want(value, self.dtype, error), Want(lse, F32, np.where(np.isfinite(off), off, 0))]


@draws("attention", "attention_forward")
def _(d: Draw, name: str) -> Call:
    p = Problem(d)
    if name == "attention":
        return Call(K.attention, (p.q, p.k, p.v, p.mask, p.causal, p.scale), lambda: p.wants()[0])
    return Call(K.attention_forward, (p.q, p.k, p.v, p.causal, p.scale, p.mask), p.wants, out=False)


@draws("attention_gradients")
def _(d: Draw, name: str) -> Call:
    p = Problem(d)
    value, lse, weights, far, size = p.forward()
    grad = d.array(value.shape, p.dtype, "normal")
    result = d.placed(value.astype(p.dtype))
    scale = 1 / math.sqrt(p.depth) if p.scale is None else p.scale

    def want() -> list[Want]:
        _, _, q, k, v = p.scores()
        g, r = grad.astype(np.float64), result.astype(np.float64)
        grouped = lambda x: x.reshape(x.shape[0], -1, p.repeat, *x.shape[2:]).sum(2)
        dp = g @ v.swapaxes(-1, -2)
        ds = weights * (dp - (g * r).sum(-1, keepdims=True)) * scale
        spread = np.where(weights > 0, np.where(np.isfinite(far), far, 0) + size, 0)
        units = p.units() + (2 * depth(p.depth) + depth(p.v.shape[-1])) * unit(F32)
        near = units * (2 + unit(F32) / units * 8 * spread)
        ds_size = (
            near
            * weights
            * (
                np.abs(g) @ np.abs(v).swapaxes(-1, -2)
                + (np.abs(g) * np.abs(r)).sum(-1, keepdims=True)
            )
            * scale
        )
        more = (depth(g.shape[-2]) + depth(v.shape[-2])) * unit(F32)
        dq_error = ds_size @ np.abs(k) + more * (np.abs(ds) @ np.abs(k))
        dk_error = grouped(
            ds_size.swapaxes(-1, -2) @ np.abs(q) + more * (np.abs(ds).swapaxes(-1, -2) @ np.abs(q))
        )
        dv_error = grouped(
            (near * weights).swapaxes(-1, -2) @ np.abs(g)
            + more * weights.swapaxes(-1, -2) @ np.abs(g)
        )
        return [
            Want(ds @ k, p.dtype, dq_error),
            Want(grouped(ds.swapaxes(-1, -2) @ q), p.dtype, dk_error),
            Want(grouped(weights.swapaxes(-1, -2) @ g), p.dtype, dv_error),
        ]

    args = (grad, p.q, p.k, p.v, result, lse.astype(np.float32), p.causal, p.scale, p.mask)
    return Call(K.attention_gradients, args, want, out=False)


assert BF16 in FLOATS and as_dtype(F32) is promote(cb.f32, cb.bf16)


GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


class State:
    """h and c of a sequence, and how far off each may be."""

    def __init__(self, h: np.ndarray, c: np.ndarray) -> None:
        self.h, self.c = h, c
        self.off_h, self.off_c = np.zeros_like(h), np.zeros_like(c)

    def step(self, name: str, x: Any, off: Any, u: Any, off_u: Any) -> None:
        """x: products of the input, and u: of the states, each with its error; (G, H)."""
        small = 8 * unit(F32)
        if name == "lstm":
            total, off = x + u, off + off_u
            i, f, o = (sigmoid(total[k]) for k in (0, 1, 3))
            n = np.tanh(total[2])
            gain = np.abs(n) * off[0] / 4 + off[2] + np.abs(self.c) * off[1] / 4
            self.off_c = f * self.off_c + gain + small * (1 + np.abs(self.c))
            self.c = f * self.c + i * n
            self.off_h = off[3] / 4 + self.off_c + small
            self.h = o * np.tanh(self.c)
        elif name == "gru":
            reset, update = sigmoid(x[0] + u[0]), sigmoid(x[1] + u[1])
            off_r, off_z = (off[k] + off_u[k] for k in (0, 1))
            n = np.tanh(x[2] + reset * u[2])
            off_n = off[2] + off_u[2] + np.abs(u[2]) * (off_r / 4 + small) + small
            gap = np.abs(self.h - n)
            self.off_h = off_n + self.off_h + gap * (off_z / 4 + small) + small
            self.h = n + update * (self.h - n)
        else:
            self.off_h = off[0] + off_u[0] + small
            self.h = np.tanh(x[0] + u[0])


@draws("lstm", "gru", "rnn")
def _(d: Draw, name: str) -> Call:
    dtype, gates = d.one(FLOATS), GATES[name]
    length, batch, features = d.between(0, 6), d.between(1, 5), d.between(1, 40)
    directions, width = d.any((1, 2)), d.between(1, 50)
    rows = gates * width
    x = d.array((length, batch, features), dtype, "normal")
    w = d.array((directions, rows, features), dtype, "normal")
    v = d.array((directions, rows, width), dtype, "normal")
    b, c = (d.array((directions, rows), dtype, "normal") if d.maybe() else None for _ in range(2))
    h = d.array((directions, batch, width), dtype, "normal") if d.maybe() else None
    lengths = (
        d.placed(np.array([d.between(0, length) for _ in range(batch)])) if d.maybe() else None
    )
    reverse = d.maybe()

    def wants() -> list[Want]:
        xs, ws, vs = (a.astype(np.float64) for a in (x, w, v))
        bs, cs = (
            np.zeros((directions, rows)) if a is None else a.astype(np.float64) for a in (b, c)
        )
        y, off_y = (np.zeros((length, batch, directions, width)) for _ in range(2))
        ends = [[np.zeros((directions, batch, width)) for _ in range(2)] for _ in range(2)]
        for k in range(directions):
            apart = name == "gru"  # the bias of states stays with them
            own, more = (bs[k], cs[k]) if apart else (bs[k] + cs[k], 0 * cs[k])
            given = xs @ ws[k].T + own
            size = np.abs(xs) @ np.abs(ws[k]).T + np.abs(bs[k]) + np.abs(cs[k])
            off = (depth(features) + 4) * sums(dtype) * size + 2 * unit(dtype) * size
            for row in range(batch):
                first = np.zeros(width) if h is None else h[k, row].astype(np.float64)
                state = State(first, np.zeros(width))
                count = length if lengths is None else int(lengths[row])
                for s in range(count):
                    t = count - 1 - s if reverse or k == 1 else s
                    u = vs[k] @ state.h + more
                    rounding = (depth(width) + 4) * sums(dtype)
                    off_u = np.abs(vs[k]) @ (state.off_h + rounding * np.abs(state.h))
                    off_u = off_u + rounding * np.abs(more)
                    parts = (
                        a.reshape(gates, width) for a in (given[t, row], off[t, row], u, off_u)
                    )
                    state.step(name, *parts)
                    y[t, row, k], off_y[t, row, k] = state.h, state.off_h
                ends[0][0][k, row], ends[0][1][k, row] = state.h, state.off_h
                ends[1][0][k, row], ends[1][1][k, row] = state.c, state.off_c
        shape = (length, batch, directions * width)
        found = [Want(y.reshape(shape), dtype, off_y.reshape(shape))]
        return found + [
            Want(*(end[0], dtype, end[1])) for end in ends[: 2 if name == "lstm" else 1]
        ]

    options = {"h": h, "lengths": lengths, "reverse": reverse}
    return Call(getattr(K, name), (x, w, v, b, c), wants, options, out=False)
