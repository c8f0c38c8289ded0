"""`nn.functional` and random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import kernels as K
from cubepy.nn import functional as F
from tests.fuzz.check import Want, Wrong, depth, exact
from tests.fuzz.draws import F16, F32, F64, FLOATS, Call, Draw, draws, sums, unit
from tests.fuzz.elementwise import ACTIVATIONS, f, indices, of_one
from tests.fuzz.norms import normalised, parameters, softmax, wide
from tests.fuzz.products import Problem

ELEMENTS = {"relu": f.relu, "silu": f.silu, "sigmoid": f.sigmoid, "tanh": f.tanh}


@draws(
    *(
        f"F.{n}"
        for n in ("relu", "silu", "sigmoid", "tanh", "gelu", "softmax", "dropout", "normalize")
    )
)
def _(d: Draw, name: str) -> Call:
    function, dtype = name[2:], d.one(FLOATS)
    x = d.array(d.shape(1, 3), dtype)
    options: dict[str, Any] = {}
    if function in ELEMENTS:
        want = lambda: of_one(ELEMENTS[function], x, dtype)
    elif function == "gelu":
        options["approximate"] = d.one(("none", "tanh"))
        want = lambda: of_one(
            f.gelu_erf if options["approximate"] == "none" else f.gelu_tanh, x, dtype
        )
    elif function == "dropout":
        options |= d.one(({"training": False}, {"p": 0.0}))
        want = lambda: exact(x.copy())
    else:
        x = d.array(x.shape, dtype, "normal")
        axis = options["dim"] = d.axis(x.ndim)

        def want() -> Want:
            w = x.astype(np.float64)
            n = depth(x.shape[axis])
            if function == "softmax":
                value = softmax(w, axis)
                return Want(value, dtype, (n + 40) * sums(dtype) * value)
            value = w / np.maximum(np.sqrt((w * w).sum(axis, keepdims=True)), 1e-12)
            # three operations, each of which rounds to the dtype; squares of 16-bit floats may be
            # subnormal
            total = np.maximum((w * w).sum(axis, keepdims=True), 1e-12)
            least = x.shape[axis] * 2.0**-25 / total if dtype == F16 else 0.0
            return Want(value, dtype, (4 * unit(dtype) + n * sums(dtype) + least) * np.abs(value))

    return Call(getattr(F, function), (x,), want, options, out=False)


@draws("F.linear")
def _(d: Draw, name: str) -> Call:
    dtype, n, m = d.one(FLOATS[:-1]), d.size(1, 130), d.size(1, 130)
    x = d.array((*d.shape(1, 2, 1, 60), n), dtype, "normal")
    w = d.array((m, n), dtype, "normal")
    options: dict[str, Any] = {}
    if d.maybe():
        options["bias"] = d.array((m,), dtype, "normal")
    if d.maybe(0.3):
        options["activation"] = d.one(F.ACTIVATIONS)
    if d.maybe(0.3):
        options["residual"] = d.array((*x.shape[:-1], m), dtype, "normal")

    def want() -> Want:
        value, size = wide(x) @ wide(w).T, np.abs(wide(x)) @ np.abs(wide(w)).T
        if "bias" in options:
            value, size = value + wide(options["bias"]), size + np.abs(wide(options["bias"]))
        if "activation" in options:
            value = ACTIVATIONS[options["activation"]](value)
            size = size + np.abs(value)  # its own rounding
        if "residual" in options:
            value, size = (
                value + wide(options["residual"]),
                size + np.abs(wide(options["residual"])),
            )
        return Want(value, dtype, (depth(n) + 8) * sums(dtype) * size)

    return Call(F.linear, (x, w), want, options, out=False)


@draws("F.embedding", "F.layer_norm", "F.scaled_dot_product_attention")
def _(d: Draw, name: str) -> Call:
    dtype = d.one(FLOATS)
    if name == "F.embedding":
        table = d.array(d.shape(2, 2, 1), dtype)
        rows = indices(d, d.shape(1, 2, elements=200), table.shape[0])
        return Call(F.embedding, (rows, table), lambda: exact(table[rows]), out=False)
    if name == "F.layer_norm":
        x = d.array(d.shape(1, 3, low=1), dtype, "normal")
        w, b = parameters(d, x.shape[-1:], dtype, 2)
        want = lambda: normalised(
            x.astype(np.float64), (x.ndim - 1,), 1e-5, wide(w), wide(b), dtype
        )
        return Call(F.layer_norm, (x, x.shape[-1], w, b), want, out=False)
    p = Problem(d)
    options = {"attn_mask": p.mask, "is_causal": p.causal, "scale": p.scale}
    return Call(
        F.scaled_dot_product_attention, (p.q, p.k, p.v), lambda: p.wants()[0], options, out=False
    )


@draws("uniform", "normal", "bernoulli", "randint", also=("Generator", "manual_seed"))
def _(d: Draw, name: str) -> Call:
    """The numbers are those that an array of its own gets from the same seed, and lie where they
    may.
    """
    shape, seed, stream = d.shape(0, 3), d.between(0, 1 << 40), d.between(0, 3)
    dtype = d.one(FLOATS)
    options: dict[str, Any] = {}
    if name == "bernoulli":
        args: tuple[Any, ...] = (
            d.placed(np.abs(np.sin(d.floats(shape, F64, "normal"))).astype(dtype)),
        )
    elif name == "randint":
        low, high = sorted((d.between(-100, 100), d.between(101, 120)))
        dtype = np.dtype(d.one((np.int64, np.int32, np.int16, np.int8)))
        args, options = (low, high), {"size": shape, "dtype": dtype}
    else:
        low, spread = d.one((0.0, -2.0, 1.0)), d.one((1.0, 3.0, 0.5))
        args = (low, low + spread if name == "uniform" else spread)
        options = {"size": shape, "dtype": dtype}
    function = getattr(K, name)
    seeded = d.maybe()

    def call(*args: Any, **options: Any) -> Any:
        if seeded and not stream:
            K.manual_seed(seed)
            return function(*args, **options)
        return function(*args, generator=K.Generator(seed, stream), **options)

    def want() -> Want:
        given = [
            np.ascontiguousarray(a) if isinstance(a, np.ndarray) and a.ndim else a for a in args
        ]
        value = np.array(call(*given, **options))
        w = value.astype(np.float64)
        if name == "bernoulli":
            good = bool(np.isin(w, (0, 1)).all())
        elif name == "normal":
            good = bool(np.isfinite(w).all() and (np.abs(w - args[0]) < 12 * args[1]).all())
        else:
            good = bool(
                (w >= args[0]).all()
                and (w <= args[1]).all()
                and (name != "randint" or (w < args[1]).all())
            )
        if not good:
            raise Wrong(f"numbers lie between {w.min()} and {w.max()}")
        if value.size > 500:
            probabilities = np.asarray(args[0]).astype(np.float64)
            ends = {"uniform": args, "randint": (args[0], args[-1] - 1)}
            middle = sum(ends[name]) / 2 if name in ends else float(probabilities.mean())
            if abs(w.mean() - middle) > 8 * (w.std() + 1) / math.sqrt(value.size):
                raise Wrong(f"the mean of {value.size} numbers is {w.mean()}, not {middle}")
        return exact(value)

    call.__name__ = name
    return Call(call, args, want, options)


assert cb.f32.numpy == F32
