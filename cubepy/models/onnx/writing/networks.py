"""Layers: products, attention, convolutions, pools, norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.lang.dtypes import bool_
from cubepy.models.onnx.writing.elementwise import activation
from cubepy.models.onnx.writing.graph import Op, Unwritable, Writer, form

MODES = {"nearest": "nearest", "bilinear": "linear", "linear": "linear", "trilinear": "linear"}
CUBIC = -0.75
"""The coefficient of bicubic interpolation that torch has, and we."""


@form("matmul")
def matmul(w: Writer, op: Op, a: str, b: str) -> Any:
    a, b = (w.cast(name, op.spec(k).dtype, op.dtype) for k, name in enumerate((a, b)))
    return w.add("MatMul", a, b)


@form("linear")
def linear(w: Writer, op: Op, x: str, weight: str, bias: str, residual: str) -> Any:
    """Rows: one Gemm. Others: a product with the matrix written the other way round."""
    x, weight, bias, residual = (
        name if not name else w.cast(name, op.spec(k).dtype, op.dtype)
        for k, name in enumerate((x, weight, bias, residual))
    )
    if len(op.spec(0).shape) == 2:
        found = w.add("Gemm", x, weight, bias, transB=1)
    else:
        found = w.add("MatMul", x, transposed(w, weight))
        found = w.add("Add", found, bias) if bias else found
    found = activation(w, op.attrs["activation"], found)
    return w.add("Add", found, residual) if residual else found


def transposed(w: Writer, weight: str) -> str:
    """A matrix the other way round; a weight that only linear layers read is written so."""
    key = ("transposed", weight)
    if key not in w.known:
        array = w.arrays.get(weight)
        if array is not None and weight in w.only_linear:
            w.known[key] = w.weight(f"{weight}.T", np.ascontiguousarray(array.T))
        else:
            w.known[key] = w.add("Transpose", weight, perm=[1, 0])
    return w.known[key]


@form("attention")
def attention(w: Writer, op: Op, q: str, k: str, v: str, mask: str) -> Any:
    """softmax(scale * q k^T + mask) v, with the heads that share keys side by side."""
    (b, heads, length, depth), (_, groups, keys, _) = op.spec(0).shape, op.spec(1).shape
    scale = op.attrs["scale"]
    scale = 1 / math.sqrt(depth) if scale is None else scale
    if heads != groups:
        k, v = (
            _repeated(w, name, (b, groups, heads // groups, keys, op.spec(n).shape[3]))
            for n, name in ((1, k), (2, v))
        )
    scores = w.add("MatMul", q, w.add("Transpose", k, perm=[0, 1, 3, 2]))
    scores = w.add("Mul", scores, w.constant(scale, op.dtype))
    low = w.constant(-np.inf, op.dtype)
    if op.attrs["is_causal"]:
        before = np.arange(length)[:, None] >= np.arange(keys)
        scores = w.add("Where", w.constant(before, np.bool_), scores, low)
    if mask and op.spec(3).dtype is bool_:
        scores = w.add("Where", mask, scores, low)
    elif mask:
        scores = w.add("Add", scores, w.cast(mask, op.spec(3).dtype, op.dtype))
    return w.add("MatMul", w.add("Softmax", scores, axis=-1), v)


def _repeated(w: Writer, x: str, shape: tuple[int, ...]) -> str:
    b, groups, times, keys, depth = shape
    x = w.reshape(x, (b, groups, 1, keys, depth))
    x = w.add("Expand", x, w.integers(shape))
    return w.reshape(x, (b, groups * times, keys, depth))


@form("conv")
def conv(w: Writer, op: Op, x: str, weight: str, bias: str) -> Any:
    return w.add("Conv", *_same(w, op, x, weight, bias), **_windows(op), group=op.attrs["groups"])


@form("conv_transpose")
def conv_transpose(w: Writer, op: Op, x: str, weight: str, bias: str) -> Any:
    how = _windows(op)
    stride, padding, dilation = (op.attrs[k] for k in ("stride", "padding", "dilation"))
    window = op.spec(1).shape[2:]
    rows = zip(
        op.attrs["size"], op.spec(0).shape[2:], window, stride, padding, dilation, strict=True
    )
    more = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in rows]
    given = _same(w, op, x, weight, bias)
    return w.add("ConvTranspose", *given, **how, group=op.attrs["groups"], output_padding=more)


def _same(w: Writer, op: Op, *names: str) -> list[str]:
    return [w.cast(n, op.spec(k).dtype, op.dtype) if n else n for k, n in enumerate(names)]


def _windows(op: Op) -> dict[str, Any]:
    padding = list(op.attrs["padding"])
    said = {"strides": list(op.attrs["stride"]), "pads": padding + padding}
    return {**said, "dilations": list(op.attrs["dilation"])}


@form("max_pool")
def max_pool(w: Writer, op: Op, x: str) -> Any:
    how = {**_windows(op), "kernel_shape": list(op.attrs["kernel"])}
    how["ceil_mode"] = int(op.attrs["ceil_mode"])
    if not op.attrs["indices"]:
        return w.add("MaxPool", x, **how)
    raise Unwritable(f"{op.node.op}: a pool that gives positions, which ONNX counts otherwise")


@form("avg_pool")
def avg_pool(w: Writer, op: Op, x: str) -> Any:
    if op.attrs["divisor"] is not None:
        raise Unwritable("avg_pool with a divisor")
    padding = list(op.attrs["padding"])
    said: dict[str, Any] = {"strides": list(op.attrs["stride"]), "pads": padding + padding}
    said |= {"kernel_shape": list(op.attrs["kernel"]), "ceil_mode": int(op.attrs["ceil_mode"])}
    return w.add("AveragePool", x, **said, count_include_pad=int(op.attrs["count_include_pad"]))


@form("adaptive_avg_pool adaptive_max_pool")
def adaptive_pool(w: Writer, op: Op, x: str) -> Any:
    """Equal parts: one for the whole, or windows where lengths are divisible."""
    size, given = op.attrs["size"], op.spec(0).shape[2:]
    kind = "MaxPool" if op.node.op == "adaptive_max_pool" else "AveragePool"
    if op.attrs.get("indices"):
        raise Unwritable(f"{op.node.op}: a pool that gives positions, which ONNX counts otherwise")
    if all(n == 1 for n in size):
        return w.add(f"Global{kind}", x)
    if any(m % n for n, m in zip(size, given, strict=True)):
        raise Unwritable(f"{op.node.op} of {given} to {size}: windows of several lengths")
    step = [m // n for n, m in zip(size, given, strict=True)]
    return w.add(kind, x, kernel_shape=step, strides=step)


@form("interpolate")
def interpolate(w: Writer, op: Op, x: str) -> Any:
    mode, align = op.attrs["mode"], op.attrs["align_corners"]
    if mode != "bicubic" and mode not in MODES:
        raise Unwritable(f"interpolate: the mode {mode!r}")
    how: dict[str, Any] = {"mode": MODES.get(mode, "cubic")}
    if mode == "nearest":
        how |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        corners = "align_corners" if align else "half_pixel"
        how |= {"coordinate_transformation_mode": corners}
        if mode == "bicubic":
            how["cubic_coeff_a"] = CUBIC
    factors = op.attrs["factors"]
    if factors is not None and not align:  # corners: of lengths, which factors give not exactly
        values = (1.0, 1.0, *map(float, factors))
        return w.add("Resize", x, "", w.constant(values, np.float32), **how)
    return w.add("Resize", x, "", "", w.integers(op.shape), **how)


@form("grid_sample")
def grid_sample(w: Writer, op: Op, x: str, grid: str) -> Any:
    mode, padding, align = (op.attrs[name] for name in ("mode", "padding", "align"))
    return w.add("GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=int(align))


@form("unfold")
def unfold(w: Writer, op: Op, x: str) -> Any:
    """Pixels of padded planes, by where windows see them."""
    (kernel, steps, pads, strides), counts = op.attrs["how"], op.attrs["counts"]
    n, c, *size = op.spec(0).shape
    if any(pads):
        widths = w.integers([0, 0, *pads] * 2)
        x = w.add("Pad", x, widths, w.constant(0, op.dtype), mode="constant")
    rows, columns = (
        np.arange(k)[:, None] * d + np.arange(count) * s
        for k, d, s, count in zip(kernel, steps, strides, counts, strict=True)
    )
    width = size[1] + 2 * pads[1]
    seen = rows[:, None, :, None] * width + columns[None, :, None, :]
    flat = w.reshape(x, (n, c, (size[0] + 2 * pads[0]) * width))
    found = w.add("Gather", flat, w.integers(seen.reshape(-1).tolist()), axis=2)
    return w.reshape(found, op.shape)


@form("fold")
def fold(w: Writer, op: Op, x: str) -> Any:
    kernel, steps, pads, strides = op.attrs["how"]
    how: Any = {"dilations": list(steps), "pads": [*pads] * 2, "strides": list(strides)}
    return w.add("Col2Im", x, w.integers(op.attrs["size"]), w.integers(kernel), **how)


# Norms


@form("layer_norm")
def layer_norm(w: Writer, op: Op, x: str, weight: str, bias: str) -> Any:
    shape = op.attrs["normalized_shape"]
    weight = weight or w.constant(np.ones(shape), op.dtype)
    given = _same(w, op, x, weight, bias) if op.given[1] else [x, weight, bias]
    return w.add("LayerNormalization", *given, axis=-len(shape), epsilon=float(op.attrs["eps"]))


@form("rms_norm")
def rms_norm(w: Writer, op: Op, x: str, weight: str) -> Any:
    axes = w.integers(range(-len(op.attrs["normalized_shape"]), 0))
    x = w.cast(x, op.spec(0).dtype, op.dtype)
    mean = w.add("ReduceMean", w.add("Mul", x, x), axes, keepdims=1)
    root = w.add("Sqrt", w.add("Add", mean, w.constant(op.attrs["eps"], op.dtype)))
    found = w.add("Div", x, root)
    return w.add("Mul", found, w.cast(weight, op.spec(1).dtype, op.dtype)) if weight else found


@form("group_norm")
def group_norm(w: Writer, op: Op, x: str, weight: str, bias: str) -> Any:
    channels = op.shape[1]
    weight = weight or w.constant(np.ones(channels), op.dtype)
    bias = bias or w.constant(np.zeros(channels), op.dtype)
    how = {"num_groups": op.attrs["groups"], "epsilon": float(op.attrs["eps"])}
    return w.add("GroupNormalization", x, weight, bias, **how)


@form("channel_norm")
def channel_norm(w: Writer, op: Op, x: str, mean: str, var: str, weight: str, bias: str) -> Any:
    channels = op.shape[1]
    weight = weight or w.constant(np.ones(channels), op.dtype)
    bias = bias or w.constant(np.zeros(channels), op.dtype)
    given = (x, weight, bias, mean, var)
    return w.add("BatchNormalization", *given, epsilon=float(op.attrs["eps"]))
