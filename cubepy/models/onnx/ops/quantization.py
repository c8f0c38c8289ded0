"""Codes and their scales: quantize, dequantize, and integer products and convolutions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from cubepy import tensor as T
from cubepy.lang.dtypes import as_dtype
from cubepy.models.formats.onnx_schema import DTYPES
from cubepy.models.onnx.ops.casts import back, cast, cast_host
from cubepy.models.onnx.ops.images.convolution import convolved
from cubepy.models.onnx.records import Call, axis_of, dtype_of, operator, shape_of
from cubepy.models.onnx.runner import host_of, liftable
from cubepy.tensor import Tensor

PLAIN = ("int8", "uint8", "int16", "uint16")


def limits_of(dtype: np.dtype) -> tuple[int, int]:
    """The least and largest code."""
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def spread(call: Call, scale: Any, shape: tuple[int, ...]) -> Any:
    """Scales or zero points in a shape that broadcasts: one, one by axis, or one by block."""
    if scale is None or not shape_of(scale) or (shape_of(scale) == (1,) and len(shape) != 1):
        return scale if scale is None else scale.reshape(())
    axis = min(call.get("axis", 1), len(shape) - 1)
    axis = axis_of(axis, len(shape))
    block = call.get("block_size", 0)
    if not block:
        lengths = [1] * len(shape)
        lengths[axis] = -1
        return scale.reshape(tuple(lengths))
    made: Any
    if isinstance(scale, Tensor):
        made = scale.repeat_interleave(block, axis)
    else:
        made = np.repeat(scale, block, axis)
    return made[(slice(None),) * axis + (slice(0, shape[axis]),)]


@operator("QuantizeLinear", plain=True)
def quantize_linear(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    """round(x / scale) + zero point, within the codes' limits."""
    dtype = dtype_of(zero) if zero is not None else np.dtype(np.uint8)
    if call.get("output_dtype", 0):
        dtype = DTYPES[call["output_dtype"]]
    shape = shape_of(x)
    if isinstance(x, Tensor) and dtype.name in PLAIN and liftable(scale):
        by = spread(call, _tensor(scale, x), shape)
        wide = _precision(call, x, by)
        codes = (x.astype(wide) / by.astype(wide)).round()
        if zero is not None:
            codes = codes.astype("f32") + spread(call, _tensor(zero, x, "f32"), shape)
        low, high = limits_of(dtype)
        return cast(codes.maximum(low).minimum(high).astype("i32"), dtype)
    x, scale, zero = host_of(x), host_of(scale), host_of(zero)
    by = spread(call, scale, shape).astype(np.float32)
    codes = x.astype(np.float32) / by
    if "int" not in dtype.name:
        point = 0 if zero is None else spread(call, zero, shape).astype(np.float32)
        made = cast_host((codes + point).astype(np.float32), dtype, bool(call.get("saturate", 1)))
        return back(made, None)
    point = 0 if zero is None else spread(call, zero, shape).astype(np.float32)
    low, high = limits_of(dtype)
    made = np.clip(np.round(codes) + point, low, high).astype(np.int32)
    return back(made.astype(np.int8 if dtype.kind == "V" else dtype).astype(dtype), None)


def _precision(call: Call, x: Tensor, scale: Tensor) -> Any:
    code = call.get("precision", 0)
    if code:
        return DTYPES[code]
    return scale.dtype.numpy if scale.dtype.is_float else np.float32


def _tensor(value: Any, like: Tensor, dtype: str | None = None) -> Tensor:
    """A value where another one is; numbers of the file are converted here and now."""
    if isinstance(value, Tensor):
        return value if dtype is None else value.astype(dtype)
    array = np.array(value, None if dtype is None else as_dtype(dtype).numpy)
    return T(array, device=like.device)


@operator("DequantizeLinear", plain=True)
def dequantize_linear(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    """(codes - zero point) scale, in the dtype of the scale."""
    shape = shape_of(x)
    code = call.get("output_dtype", 0)
    out = DTYPES[code] if code else dtype_of(scale)
    tensors = isinstance(x, Tensor) or isinstance(scale, Tensor)
    if tensors and all(v is None or liftable(v) for v in (x, scale, zero)):
        like = x if isinstance(x, Tensor) else scale
        x, by = _tensor(x, like), spread(call, _tensor(scale, like), shape)
        wide = "f32" if x.dtype.bits <= 16 else "f64"
        codes = x.astype(wide)
        if zero is not None:
            codes = codes - spread(call, _tensor(zero, like, wide), shape)
        return (codes.astype(by.dtype) * by).astype(out)
    x, scale, zero = host_of(x), host_of(scale), host_of(zero)
    codes = x.astype(np.float64)
    if zero is not None:
        codes = codes - spread(call, zero, shape).astype(np.float64)
    by = spread(call, scale, shape).astype(np.float64)
    return back((codes * by).astype(np.float32).astype(out), None)


def dynamic(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of 8 bits, their scale and zero point, from the range of a tensor with zero in it."""
    low, high = x.min().minimum(0), x.max().maximum(0)
    scale = (high - low) / 255
    scale = T.where(scale == 0, T.ones_like(scale), scale)
    zero = (-low / scale).round().maximum(0).minimum(255)
    codes = ((x / scale).round() + zero).maximum(0).minimum(255)
    return codes.astype("i32").astype("u8"), scale, zero.astype("i32").astype("u8")


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scale and zero point of a tensor."""
    return dynamic(x)


def centered(x: Tensor, zero: Any, axis: int | None = None, rank: int | None = None) -> Tensor:
    """Codes less their zero point, as numbers that products of 24 bits are exact with."""
    wide = x.astype("f32")
    if zero is None:
        return wide
    point = zero.astype("f32")
    if axis is not None and len(point.shape) == 1 and point.shape[0] > 1:
        lengths = [1] * len(x.shape)
        lengths[axis] = -1
        point = point.reshape(*lengths)
    elif len(point.shape) == 1 and point.shape[0] == 1:
        point = point.reshape(())
    return wide - point


def integer_product(a: Tensor, b: Tensor) -> Tensor:
    """The product of codes less their zero points, exact in 32 bits.

    Sums of products of 9 bits are exact in f32 up to 256 of them (2^24 / 2^16); K is cut so.
    """
    k = a.shape[-1]
    if k <= 256:
        return (a @ b).astype("i32")
    total = None
    for first in range(0, k, 256):
        part = (a[..., first : first + 256] @ b[..., first : first + 256, :]).astype("i32")
        total = part if total is None else total + part
    assert total is not None
    return total


@operator("MatMulInteger")
def matmul_integer(
    call: Call, a: Tensor, b: Tensor, a_zero: Any = None, b_zero: Any = None
) -> Tensor:
    """A product of codes less their zero points, as i32."""
    left = centered(a, a_zero, len(a.shape) - 2 if len(a.shape) > 1 else None)
    right = centered(b, b_zero, len(b.shape) - 1 if len(b.shape) == 2 else None)
    return integer_product(left, right)


@operator("ConvInteger")
def conv_integer(
    call: Call, x: Tensor, weight: Tensor, x_zero: Any = None, w_zero: Any = None
) -> Tensor:
    """A convolution of codes less their zero points, as i32."""
    left, right = centered(x, x_zero), centered(weight, w_zero, 0)
    if int(np.prod(weight.shape[1:])) > 256:  # sums beyond 24 bits: exact in f64
        left, right = left.astype("f64"), right.astype("f64")
    return convolved(call, left, right).round().astype("i32")


def requantized(x: Tensor, scale: Any, zero: Any, dtype: Any) -> Tensor:
    """Floats as codes of a scale and zero point."""
    low, high = limits_of(dtype)
    codes = (x / scale).round() + zero.astype("f32")
    return cast(codes.maximum(low).minimum(high).astype("i32"), dtype)  # type: ignore[no-any-return]


@operator("QLinearMatMul")
def qlinear_matmul(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    """A product of codes, as codes."""
    dtype = dtype_of(y_zero)
    left = _dequantized(a, a_scale, a_zero, -2)
    right = _dequantized(b, b_scale, b_zero, -1)
    return requantized(left @ right, y_scale.astype("f32"), y_zero, dtype)


def _dequantized(x: Tensor, scale: Tensor, zero: Tensor, axis: int) -> Tensor:
    at = axis % len(x.shape)
    by = scale.astype("f32")
    if len(by.shape) == 1 and by.shape[0] > 1:
        lengths = [1] * len(x.shape)
        lengths[at] = -1
        by = by.reshape(*lengths)
    elif len(by.shape) == 1:
        by = by.reshape(())
    if dtype_of(x).kind == "V":
        return (x.astype("f32") - zero.astype("f32")) * by
    return centered(x, zero, at) * by


@operator("QLinearConv")
def qlinear_conv(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """A convolution of codes, as codes."""
    made = convolved(call, centered(x, x_zero), centered(w, w_zero, 0))
    if bias is not None:
        made = made + bias.astype("f32").reshape(-1, *(1,) * (len(x.shape) - 2))
    factor = x_scale.astype("f32").reshape(()) * w_scale.astype("f32")
    if len(factor.shape) == 1 and factor.shape[0] > 1:
        factor = factor.reshape(-1, *(1,) * (len(x.shape) - 2))
    return requantized(made * factor, y_scale.astype("f32"), y_zero, dtype_of(y_zero))
