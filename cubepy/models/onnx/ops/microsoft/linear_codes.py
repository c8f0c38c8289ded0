"""Arithmetic, pools and products from codes to codes (`QLinear*`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cubepy import tensor as T
from cubepy.models.onnx.ops.images.pooling import (
    average_pool,
    counts,
    filled,
    max_pool,
    window_sums,
)
from cubepy.models.onnx.ops.images.windows import windows
from cubepy.models.onnx.ops.microsoft.heads import MS
from cubepy.models.onnx.ops.quantization import centered, integer_product, requantized
from cubepy.models.onnx.records import Call, dtype_of, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


def floats(codes: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Codes as the numbers that they mean."""
    return centered(codes, zero) * scale.astype("f32").reshape(())


def _of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def run(
        call: Call,
        a: Tensor,
        a_scale: Tensor,
        a_zero: Tensor,
        b: Tensor,
        b_scale: Tensor,
        b_zero: Tensor,
        y_scale: Tensor,
        y_zero: Tensor | None = None,
    ) -> Tensor:
        made = function(floats(a, a_scale, a_zero), floats(b, b_scale, b_zero))
        return codes_like(made, a, y_scale, y_zero)

    return run


def codes_like(x: Tensor, like: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Numbers as codes of a dtype."""
    zero = T.zeros((), dtype=like.dtype, device=like.device) if zero is None else zero
    return requantized(x, scale.astype("f32").reshape(()), zero.reshape(()), dtype_of(zero))


operator("QLinearAdd", domain=MS)(_of_two(lambda a, b: a + b))
operator("QLinearMul", domain=MS)(_of_two(lambda a, b: a * b))


def _of_one(function: Callable[[Call, Tensor], Tensor]) -> Callable[..., Tensor]:
    def run(
        call: Call,
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor | None,
        y_scale: Tensor,
        y_zero: Tensor | None = None,
    ) -> Tensor:
        return codes_like(function(call, floats(x, x_scale, x_zero)), x, y_scale, y_zero)

    return run


def _global_mean(call: Call, x: Tensor) -> Tensor:
    if call.get("channels_last", 0):
        return x.mean(axis=tuple(range(1, len(x.shape) - 1)), keepdims=True)
    return x.mean(axis=tuple(range(2, len(x.shape))), keepdims=True)


def _leaky(call: Call, x: Tensor) -> Tensor:
    return x.maximum(0) + x.minimum(0) * call.get("alpha", 0.01)


operator("QLinearSigmoid", domain=MS)(_of_one(lambda call, x: x.sigmoid()))
operator("QLinearLeakyRelu", domain=MS)(_of_one(_leaky))
operator("QLinearGlobalAveragePool", domain=MS)(_of_one(_global_mean))


@operator("QLinearSoftmax", domain=MS)
def qlinear_softmax(
    call: Call, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor
) -> Tensor:
    """Softmax of codes; before opset 13 over all axes from one on."""
    axis, given = call.get("axis", -1) % len(x.shape), floats(x, x_scale, x_zero)
    if call.get("opset", 13) < 13:
        flat = given.reshape(*x.shape[:axis], math.prod(x.shape[axis:]))
        made = apply("softmax", flat, axis=axis).reshape(*x.shape)
    else:
        made = apply("softmax", given, axis=axis)
    return codes_like(made, x, y_scale, y_zero)


@operator("QLinearAveragePool", domain=MS)
def qlinear_average_pool(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:
    """The mean of each window of codes."""
    pool = whole_windows if call.get("count_include_pad", 0) else average_pool
    made = first_channels(call, floats(x, x_scale, x_zero), pool)
    return codes_like(made, x, y_scale, y_zero)


def whole_windows(call: Call, x: Tensor) -> Tensor:
    """The mean of each window, whose part behind the pads counts, too."""
    w = windows(call, x.shape[2:], call["kernel_shape"])
    pads = filled(call, x.shape[2:], w, counts(call, x.shape[2:], w))
    return window_sums(x, w, pads) / math.prod(w.kernel)


def first_channels(call: Call, x: Tensor, pool: Callable[[Call, Tensor], Any]) -> Tensor:
    """What a pool gives of images whose channels are the last axis, where the node says so."""
    if call.get("channels_last", 0):
        return last_channels(call, x, pool)
    return pool(call, x)  # type: ignore[no-any-return]


def last_channels(call: Call, x: Tensor, pool: Callable[[Call, Tensor], Any]) -> Tensor:
    """What a pool gives of images whose channels are the last axis."""
    inner = range(1, len(x.shape) - 1)
    made: Tensor = pool(call, x.permute(0, len(x.shape) - 1, *inner))
    return made.permute(0, *(k + 1 for k in inner), 1)


@operator("NhwcMaxPool", domain=MS)
def last_channels_max_pool(call: Call, x: Tensor) -> Tensor:
    """The largest of each window of images whose channels are the last axis."""
    return last_channels(call, x, max_pool)


@operator("QLinearWhere", domain=MS)
def qlinear_where(
    call: Call,
    condition: Tensor,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    """Codes of one tensor where a condition holds, of another elsewhere."""
    made = T.where(condition, floats(a, a_scale, a_zero), floats(b, b_scale, b_zero))
    return codes_like(made, a, y_scale, y_zero)


@operator("QGemm", domain=MS)
def qgemm(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
) -> Tensor:
    """alpha A B + C of codes, as codes or as floats; C counts products of both scales."""
    left, right = centered(a, a_zero), centered(b, b_zero, 0 if call.get("transB", 0) else 1)
    left = left.T if call.get("transA", 0) else left
    right = right.T if call.get("transB", 0) else right
    total = integer_product(left, right)
    total = total if c is None else total + c
    factor = a_scale.astype("f32").reshape(()) * b_scale.astype("f32")
    factor = factor.reshape(()) if factor.size == 1 else factor
    made = total.astype("f32") * (factor * call.get("alpha", 1.0))
    return made if y_scale is None else codes_like(made, a, y_scale, y_zero)


@operator("QLinearConcat", domain=MS)
def qlinear_concat(call: Call, y_scale: Tensor, y_zero: Tensor, *given: Tensor) -> Tensor:
    """Codes of several scales joined."""
    groups = [given[k : k + 3] for k in range(0, len(given), 3)]
    made = T.concat([floats(*one) for one in groups], axis=call["axis"])
    return codes_like(made, given[0], y_scale, y_zero)
