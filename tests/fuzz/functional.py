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
from tests.fuzz.elementwise import ACTIVATIONS, f, indices, of_one, sigmoid
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


def softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


CURVES: dict[str, tuple[tuple[Any, ...], Any]] = {
    # options, and the formula of float64 numbers and these options
    "celu": ((0.5, 1.0), lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0) / a))),
    "elu": ((0.5, 1.0), lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))),
    "hardshrink": ((0.5, 1.0), lambda x, k: np.where(np.abs(x) <= k, 0, x)),
    "hardsigmoid": ((), lambda x: np.clip(x + 3, 0, 6) / 6),
    "hardswish": ((), lambda x: x * (np.clip(x + 3, 0, 6) / 6)),
    "hardtanh": ((-1.0, -0.5), lambda x, k: np.clip(x, k, 1)),
    "leaky_relu": ((0.25, 0.5), lambda x, a: np.where(x > 0, x, a * x)),
    "logsigmoid": ((), lambda x: -softplus(-x)),
    "mish": ((), lambda x: x * np.tanh(softplus(x))),
    "relu6": ((), lambda x: np.clip(x, 0, 6)),
    "selu": (
        (),
        lambda x: (
            1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
        ),
    ),
    "softplus": ((1.0, 2.0), lambda x, b: np.where(b * x > 20, x, softplus(b * x) / b)),
    "softshrink": ((0.5, 1.0), lambda x, k: np.where(np.abs(x) <= k, 0, x - k * np.sign(x))),
    "softsign": ((), lambda x: x / (1 + np.abs(x))),
    "tanhshrink": ((), lambda x: x - np.tanh(x)),
}


@draws(*(f"F.{n}" for n in CURVES), "F.threshold", "F.prelu")
def _(d: Draw, name: str) -> Call:
    """Functions of one number; what they compute in pieces may be off by some units of them."""
    function, dtype = name[2:], d.one(FLOATS)
    x = d.array(d.shape(2, 3), dtype, d.kind("ties", "wide", "zeros", "nan"))
    args: tuple[Any, ...] = (x,)
    if function == "threshold":
        formula: Any = lambda v: np.where(v <= 0.5, -2.0, v)
        args = (x, 0.5, -2.0)
    elif function == "prelu":
        slopes = d.array((x.shape[1] if d.maybe() else 1,), dtype, "normal")
        args = (x, slopes)
        wide = slopes.astype(np.float64).reshape(-1, *(1,) * (x.ndim - 2))
        formula = lambda v: np.where(v > 0, v, v * (wide if slopes.size != 1 else wide.reshape(())))
    else:
        options, curve = CURVES[function]
        given = (d.one(options),) if options else ()
        args, formula = (x, *given), lambda v: curve(v, *given)

    def want() -> Want:
        v = x.astype(np.float64)
        value = formula(v)
        size = np.abs(value) + np.minimum(np.abs(v), 8)
        return Want(value, dtype, 8 * sums(dtype) * size + 2 * unit(dtype) * np.abs(value))

    return Call(getattr(F, function), args, want, out=False)


@draws("F.log_softmax", "F.softmin", "F.glu", "F.cosine_similarity")
def _(d: Draw, name: str) -> Call:
    dtype = d.one(FLOATS)
    shape = list(d.shape(2, 3, low=1))
    axis = d.axis(len(shape))
    if name == "F.glu":
        shape[axis] += shape[axis] % 2
    x = d.array(tuple(shape), dtype, "normal")
    v, n = x.astype(np.float64), shape[axis]
    units = (depth(n) + 40) * sums(dtype)
    if name == "F.cosine_similarity":
        y = d.array(tuple(shape), dtype, "normal")
        w = y.astype(np.float64)

        def similar() -> Want:
            norms = [np.maximum(np.sqrt((u * u).sum(axis)), 1e-8) for u in (v, w)]
            value = (v * w).sum(axis) / norms[0] / norms[1]
            size = np.abs(v * w).sum(axis) / norms[0] / norms[1]
            return Want(value, dtype, (units + 6 * unit(dtype)) * size)

        return Call(F.cosine_similarity, (x, y, axis), similar, out=False)

    def want() -> Want:
        if name == "F.glu":
            a, b = np.split(v, 2, axis)
            value = a * sigmoid(b)
            return Want(value, dtype, (units + 2 * unit(dtype)) * np.abs(value))
        if name == "F.softmin":
            value = softmax(-v, axis)
            return Want(value, dtype, units * value)
        value = np.log(softmax(v, axis))
        return Want(value, dtype, units * (1 + np.abs(value)))

    return Call(getattr(F, name[2:]), (x, axis), want, out=False)


LOSSES: dict[str, Any] = {
    "mse_loss": lambda x, t: (x - t) ** 2,
    "l1_loss": lambda x, t: np.abs(x - t),
    "huber_loss": lambda x, t: np.where(np.abs(x - t) < 1, 0.5 * (x - t) ** 2, np.abs(x - t) - 0.5),
    "smooth_l1_loss": lambda x, t: np.where(
        np.abs(x - t) < 1, 0.5 * (x - t) ** 2, np.abs(x - t) - 0.5
    ),
    "binary_cross_entropy_with_logits": lambda x, t: softplus(x) - t * x,
    "kl_div": lambda x, t: np.where(t > 0, t * (np.log(np.where(t > 0, t, 1)) - x), 0),
}


@draws(*(f"F.{n}" for n in LOSSES), "F.cross_entropy", "F.nll_loss")
def _(d: Draw, name: str) -> Call:
    """Sums and means of losses, of f32 and f64."""
    function, dtype = name[2:], np.dtype(d.one((F32, F32, F64)))
    reduction = d.one(("mean", "sum", "none"))
    shape = d.shape(2, 3, low=1, elements=3000)
    x = d.array(shape, dtype, "normal")
    v = x.astype(np.float64)
    options: dict[str, Any] = {"reduction": reduction}
    if function in LOSSES:
        t = d.array(shape, dtype, "normal")
        if function in ("kl_div", "binary_cross_entropy_with_logits"):
            t = d.placed(d.numbers.random(shape).astype(dtype))

        def want() -> Want:
            wide = t.astype(np.float64)
            return total(LOSSES[function](v, wide), 8 + np.abs(v) + np.abs(wide) ** 2 + v**2)

    else:
        t = indices(d, (shape[0], *shape[2:]), shape[1])
        t = np.where(t < 0, t + shape[1], t).astype(np.int64)

        def want() -> Want:
            logs = v if function == "nll_loss" else np.log(softmax(v, 1))
            value = -np.take_along_axis(logs, t[:, None], 1)[:, 0]
            return total(value, np.abs(value) + 4 + np.abs(v).max())

    def total(value: np.ndarray, size: Any) -> Want:
        size = np.broadcast_to(size, value.shape) if np.ndim(size) else np.full(value.shape, size)
        units = (depth(value.size) + depth(shape[1]) + 16) * sums(dtype)
        if reduction == "none":
            return Want(value, dtype, units * size)
        over = value.size if reduction == "mean" else 1
        return Want(value.sum() / over, dtype, units * size.sum() / over)

    return Call(getattr(F, function), (x, t), want, options, out=False)


@draws("F.pixel_shuffle", "F.pixel_unshuffle", "F.one_hot")
def _(d: Draw, name: str) -> Call:
    if name == "F.one_hot":
        n = d.between(1, 20)
        t = d.placed(d.numbers.integers(0, n, d.shape(1, 2, low=1, elements=500)))
        return Call(F.one_hot, (t, n), lambda: exact(np.eye(n, dtype=np.int64)[t]), out=False)
    r, dtype = d.one((1, 2, 3)), d.one(FLOATS)
    n, c, h, w = d.between(1, 3), d.between(1, 5), d.between(1, 9), d.between(1, 9)
    if name == "F.pixel_shuffle":
        x = d.array((n, c * r * r, h, w), dtype)
        parts = lambda: x.reshape(n, c, r, r, h, w).transpose(0, 1, 4, 2, 5, 3)
        return Call(F.pixel_shuffle, (x, r), lambda: exact(parts().reshape(n, c, h * r, w * r)), out=False)  # fmt: skip
    x = d.array((n, c, h * r, w * r), dtype)
    back = lambda: x.reshape(n, c, h, r, w, r).transpose(0, 1, 3, 5, 2, 4)
    return Call(F.pixel_unshuffle, (x, r), lambda: exact(back().reshape(n, c * r * r, h, w)), out=False)  # fmt: skip


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
