"""What runs instead of nodes of a file: the domain `cubepy`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.ops.images.windows import windows
from cubepy.models.onnx.ops.quantization import dequantize_linear
from cubepy.models.onnx.ops.sequence.attention import LEAST
from cubepy.models.onnx.records import Call, axis_of, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


def corrected(
    made: Tensor, rows: Tensor, zero: Tensor | None, sums: Tensor, points: Tensor | None
) -> Tensor:
    """A product of codes (..., M, N) less what the zero points of both sides add to it."""
    if zero is not None:
        made = made - zero.astype("i32").reshape(()) * sums
    if points is not None:
        made = made - rows.astype("i32").sum(axis=-1, keepdims=True).astype("i32") * points
    return made


@operator("IntegerProduct", domain="cubepy")
def integer_matrix(
    call: Call,
    x: Tensor,
    zero: Tensor | None,
    codes: Tensor,
    sums: Tensor,
    points: Tensor | None = None,
) -> Tensor:
    """`MatMulInteger` by a matrix whose columns were summed before."""
    if zero is not None and len(zero.shape) and zero.shape[0] > 1:
        raise call.refuse("zero points by row")
    return corrected(apply("matmul_codes", x, codes), x, zero, sums, points)


@operator("IntegerWindows", domain="cubepy")
def integer_windows(
    call: Call,
    x: Tensor,
    zero: Tensor | None,
    codes: Tensor,
    sums: Tensor,
    points: Tensor | None = None,
) -> Tensor:
    """`ConvInteger` as a product of the codes of all windows, channels last in each, with the
    filters.
    """
    w = windows(call, x.shape[2:], call["kernel_shape"])
    rank = len(w.kernel)
    x = x.permute(0, *range(2, 2 + rank), 1).contiguous()
    for axis, (before, after) in enumerate(w.widths()[2:], 1):
        parts = [x]
        for n, behind in ((before, False), (after, True)):
            if n:
                shape = tuple(n if k == axis else m for k, m in enumerate(x.shape))
                empty = T.zeros(shape, dtype=x.dtype, device=x.device)
                value = empty if zero is None else zero.reshape(()).expand(*shape)
                parts.insert(len(parts) if behind else 0, value)
        x = parts[0] if len(parts) == 1 else T.concat(parts, axis=axis)
    spans = zip(x.shape[1:], w.spans(), w.stride, strict=False)
    size = [(n - e) // s + 1 for n, e, s in spans]
    taps = []
    for at in np.ndindex(*w.kernel):
        cut = zip(at, w.dilation, size, w.stride, strict=True)
        spots = (slice(k * d, k * d + (m - 1) * s + 1, s) for k, d, m, s in cut)
        taps.append(x[(slice(None), *spots)])
    columns = taps[0] if len(taps) == 1 else T.concat(taps, axis=-1)
    made = corrected(apply("matmul_codes", columns, codes), columns, zero, sums, points)
    return made.permute(0, rank + 1, *range(1, rank + 1))


@operator("CodesProduct", domain="cubepy")
def codes_product(
    call: Call,
    x: Tensor,
    zero: Tensor | None,
    codes: Tensor,
    sums: Tensor,
    factors: Tensor,
    points: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`MatMul` or `Gemm` of dequantized codes, in f32."""
    made = integer_matrix(call, x, zero, codes, sums, points).astype("f32") * factors
    return made if bias is None else made + bias


@operator("CodesWindows", domain="cubepy")
def codes_windows(
    call: Call,
    x: Tensor,
    zero: Tensor | None,
    codes: Tensor,
    sums: Tensor,
    factors: Tensor,
    points: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`Conv` of dequantized codes, in f32."""
    made = integer_windows(call, x, zero, codes, sums, points)
    ones = (1,) * (len(x.shape) - 2)
    made = made.astype("f32") * factors.reshape(-1, *ones)
    return made if bias is None else made + bias.reshape(-1, *ones)


@operator("GatherCodes", domain="cubepy")
def gather_codes(call: Call, table: Tensor, at: Tensor, scale: Any, zero: Any = None) -> Tensor:
    """Rows of a table of codes, dequantized."""
    at = at.astype("i64")
    at = T.where(at < 0, at + table.shape[0], at)
    codes = apply("take", table, at, axis=0)
    return dequantize_linear(call, codes, scale, zero)  # type: ignore[no-any-return]


@operator("Gelu", domain="cubepy")
def gelu(call: Call, x: Tensor) -> Tensor:
    """GELU (Hendrycks and Gimpel, 2016)."""
    return x.gelu(call["approximate"])


@operator("LayerNorm", domain="cubepy")
def layer_norm(
    call: Call, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """x less its mean over axes, by its deviation (Ba, Kiros and Hinton, 2016)."""
    shape = _ends(call, x)
    if shape is None:
        x = x - x.mean(axis=call["axes"], keepdims=True)
        return _scaled(_by_root(call, x), weight, bias)
    whole = _fits(x, weight, shape) and (bias is None or _fits(x, bias, shape))
    given = (weight, bias) if whole else (None, None)
    made = apply("layer_norm", x, *given, normalized_shape=shape, eps=call["epsilon"])
    return made if whole else _scaled(made, weight, bias)  # type: ignore[no-any-return]


@operator("RMSNorm", domain="cubepy")
def rms_norm(
    call: Call, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """x by the root of its mean square over axes (Zhang and Sennrich, 2019)."""
    shape = _ends(call, x)
    if shape is None:
        return _scaled(_by_root(call, x), weight, bias)
    given = weight if _fits(x, weight, shape) else None
    made = apply("rms_norm", x, given, normalized_shape=shape, eps=call["epsilon"])
    return _scaled(made, None if given is not None else weight, bias)


def _ends(call: Call, x: Tensor) -> tuple[int, ...] | None:
    """The lengths of the axes of a norm, if they are the last ones."""
    rank = len(x.shape)
    axes = sorted(axis_of(a, rank) for a in call["axes"])
    return x.shape[axes[0] :] if axes == [*range(axes[0], rank)] else None


def _fits(x: Tensor, part: Tensor | None, shape: tuple[int, ...]) -> bool:
    """Whether a weight is one that norms take."""
    return part is not None and part.shape == shape and part.dtype is x.dtype


def _by_root(call: Call, x: Tensor) -> Tensor:
    return x / ((x * x).mean(axis=call["axes"], keepdims=True) + call["epsilon"]).sqrt()


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@operator("Attention", domain="cubepy", plain=True)
def attention(
    call: Call, q: Any, k: Any, v: Any, scale: Any = None, mask: Any = None, condition: Any = None
) -> Tensor:
    """softmax(scale q k^T + mask) v of k (..., D, S), as one op where it can be."""
    q, k, v, mask, condition = (
        T(x, device=call.device) if isinstance(x, np.ndarray) else x
        for x in (q, k, v, mask, condition)
    )
    if condition is not None:
        hidden = condition if call["hidden"] else ~condition
        mask = hidden.astype(q.dtype) * LEAST
    axis = axis_of(call["axis"], len(q.shape))
    factor = call["factor"]
    if not whole(q, k, v, mask, axis) or not (scale is None or isinstance(scale, np.ndarray)):
        made = (q if factor == 1 else q * factor) @ k
        if scale is not None:
            made = made / scale if call["divides"] else made * scale
        made = apply("softmax", made if mask is None else made + mask, axis=axis)
        return (T.where(made.isnan(), 0, made) if call["zeros"] else made) @ v
    if scale is not None:
        number = float(scale.item())
        factor = factor / number if call["divides"] else factor * number
    flat = len(q.shape) == 3
    if flat:
        q, k, v = (x.unsqueeze(1) for x in (q, k, v))
        mask = mask.unsqueeze(1) if mask is not None and len(mask.shape) == 3 else mask
    turned = k.permute(0, 1, 3, 2)
    least = mask if mask is None or condition is not None else mask.maximum(LEAST)
    made = apply("attention", q, turned, v, least, is_causal=False, scale=factor)
    if mask is not None and call["zeros"]:
        some = (mask > (-math.inf if condition is None else LEAST)).any(axis=-1, keepdims=True)
        made = T.where(some, made, T.zeros_like(made))
    return made.squeeze(1) if flat else made  # type: ignore[no-any-return]


def whole(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, axis: int) -> bool:
    """Whether queries, keys (..., D, S), values and a mask are those of the op of attention."""
    rank = len(q.shape)
    if rank not in (3, 4) or rank != len(k.shape) or rank != len(v.shape) or axis != rank - 1:
        return False
    same = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.dtype == k.dtype == v.dtype
    if not same or q.dtype.name != "f32" or 0 in (*q.shape, *k.shape, *v.shape):
        return False
    full = (*q.shape[:-1], k.shape[-1])
    if mask is None:
        return True
    if mask.dtype.name != "f32" or len(mask.shape) > rank:
        return False
    return np.broadcast_shapes(mask.shape, full) == full
