"""Activations, softmax and dropout."""

from __future__ import annotations

import math
from typing import Any

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, axis_of, operator
from cubepy.tensor import Generator, Tensor
from cubepy.tensor.array import apply

operator("Relu")(lambda call, x: x.relu() if x.dtype.is_float else x.maximum(0))
operator("Sigmoid")(lambda call, x: x.sigmoid())
operator("Softsign")(lambda call, x: x / (x.abs() + 1))
operator("Softplus")(lambda call, x: x.maximum(0) + (-x.abs()).exp().log1p())
operator("LeakyRelu")(lambda call, x: T.where(x < 0, x * call.get("alpha", 0.01), x))
operator("HardSwish")(lambda call, x: x * (x * (1 / 6) + 0.5).maximum(0).minimum(1))
operator("Mish")(lambda call, x: x * (x.maximum(0) + (-x.abs()).exp().log1p()).tanh())
operator("ThresholdedRelu")(lambda call, x: T.where(x > call.get("alpha", 1.0), x, T.zeros_like(x)))
operator("Swish")(lambda call, x: x * (x * call.get("alpha", 1.0)).sigmoid())
operator("Gelu")(lambda call, x: x.gelu(call.get("approximate", "none")))


@operator("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    """x, below zero slope x; before opset 7 a vector of slopes is one of channels."""
    if call.version < 7 and len(slope.shape) == 1 < len(x.shape):
        slope = slope.reshape(-1, *(1,) * (len(x.shape) - 2))
    return T.where(x < 0, x * slope, x)


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    """alpha x + beta between 0 and 1."""
    return (x * call.get("alpha", 0.2) + call.get("beta", 0.5)).maximum(0).minimum(1)


@operator("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    """x, below zero alpha (exp(x) - 1)."""
    return T.where(x < 0, x.minimum(0).expm1() * call.get("alpha", 1.0), x)


@operator("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    alpha = call.get("alpha", 1.0)
    return x.maximum(0) + (x.minimum(0) / alpha).expm1() * alpha


@operator("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    """gamma x, below zero gamma alpha (exp(x) - 1)."""
    alpha = call.get("alpha", 1.67326319217681884765625)
    gamma = call.get("gamma", 1.05070102214813232421875)
    return T.where(x > 0, x, x.minimum(0).expm1() * alpha) * gamma


@operator("SwiGLU")
def swiglu(call: Call, x: Tensor, gate: Tensor | None = None) -> Tensor:
    """silu of one half times the other."""
    if gate is None:
        x, gate = T.stack(x.chunk(2, -1), axis=0).unbind(0)
    return (x * (x * call.get("alpha", 1.0)).sigmoid()) * gate


def _flat(x: Tensor, axis: int, function: Any) -> Tensor:
    """What operators before opset 13 do: all axes from one on are one."""
    shape = x.shape
    rows = math.prod(shape[:axis])
    return function(x.reshape(rows, math.prod(shape[axis:]))).reshape(shape)  # type: ignore[no-any-return]


def _along(op: str) -> Any:
    def run(call: Call, x: Tensor) -> Tensor:
        old = call.version < 13
        axis = axis_of(call.get("axis", 1 if old else -1), len(x.shape))
        if old and axis != len(x.shape) - 1:
            return _flat(x, axis, lambda y: apply(op, y, axis=1))
        return apply(op, x, axis=axis) if x.shape else T.exp(x - x)

    return run


operator("Softmax")(_along("softmax"))
operator("LogSoftmax")(_along("log_softmax"))


@operator("Hardmax")
def hardmax(call: Call, x: Tensor) -> Tensor:
    """One at the first maximum along an axis, zero elsewhere."""
    old = call.version < 13
    axis = axis_of(call.get("axis", 1 if old else -1), len(x.shape))
    if old:
        return _flat(x, axis, lambda y: _hardmax(y, 1))
    return _hardmax(x, axis)


def _hardmax(x: Tensor, axis: int) -> Tensor:
    if 0 in x.shape:
        return T.zeros_like(x)
    best = x.argmax(axis=axis, keepdims=True)
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    return (best == T.arange(x.shape[axis], device=x.device).reshape(*shape)).astype(x.dtype)


@operator("Dropout", reads=(1, 2))
def dropout(call: Call, x: Tensor, ratio: Any = None, training: Any = None) -> Any:
    """Its input: what is dropped, and scaled, in training alone."""
    ratio = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    if training is not None and training.reshape(-1)[0] and ratio > 0:
        from_seed = Generator(int(call.get("seed", 0)))
        kept = from_seed.uniform(x.shape).astype(x.dtype) >= ratio
        return T.where(kept, x / (1 - ratio), T.zeros_like(x)), kept
    return (x, T.ones(x.shape, dtype="bool_")) if call.wants(1) else x


@operator("Identity", host=lambda call, x: x, plain=True)
def identity(call: Call, x: Any) -> Any:
    """Its input."""
    return x
