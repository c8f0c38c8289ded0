"""What drawn programs are computed with: functions of tensors, and the same ones of NumPy."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np

import cubepy.tensor as ours
from cubepy.nn import functional as F
from cubepy.tensor.calls import shapes


class OfTensors:
    """Functions of cubepy.tensor and of its layers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(ours, name)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.astype(dtype)

    def copy(self, x: Any) -> Any:
        return x.clone()

    def activation(self, x: Any, name: str) -> Any:
        return getattr(F, name)(x)

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return F.linear(x, weight, bias)

    def softmax(self, x: Any, axis: int) -> Any:
        return x.softmax(axis)

    def log_softmax(self, x: Any, axis: int) -> Any:
        return F.log_softmax(x, axis)

    def layer_norm(self, x: Any, axes: int) -> Any:
        return F.layer_norm(x, x.shape[-axes:], eps=1e-2)

    def chunk(self, x: Any, many: int, axis: int) -> Any:
        return x.chunk(many, axis)

    def split(self, x: Any, size: int, axis: int) -> Any:
        return x.split(size, axis)

    def pad(self, x: Any, before: int, after: int, value: float) -> Any:
        return shapes.pad(x, (before, after), "constant", value)

    def any(self, x: Any, axis: Any, keepdims: bool) -> Any:
        return ours.any(x, axis=axis, keepdims=keepdims)


class OfNumPy:
    """The same functions, written in NumPy."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def cast(self, x: Any, dtype: str) -> Any:
        kinds = {"bf16": np.float32, "f16": np.float16, "f32": np.float32, "f64": np.float64}
        return x.astype({**kinds, "i32": np.int32, "bool": np.bool_}[dtype])

    def copy(self, x: Any) -> Any:
        return np.array(x)

    def activation(self, x: Any, name: str) -> Any:
        if name == "relu":
            return np.maximum(x, 0)
        if name == "gelu":
            return x * 0.5 * (1 + _erf(x / np.sqrt(2)))
        return x / (1 + np.exp(-x)) if name == "silu" else 1 / (1 + np.exp(-x))

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError("a bias of another length")
        made = x @ weight.T
        return made if bias is None else made + bias

    def softmax(self, x: Any, axis: int) -> Any:
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)

    def log_softmax(self, x: Any, axis: int) -> Any:
        y = x - x.max(axis=axis, keepdims=True)
        return y - np.log(np.exp(y).sum(axis=axis, keepdims=True))

    def layer_norm(self, x: Any, axes: int) -> Any:
        along = tuple(range(-axes, 0))
        y = x - x.mean(axis=along, keepdims=True)
        return y / np.sqrt((y * y).mean(axis=along, keepdims=True) + 1e-2)

    def chunk(self, x: Any, many: int, axis: int) -> Any:
        return self.split(x, max(-(-x.shape[axis] // many), 1), axis)

    def split(self, x: Any, size: int, axis: int) -> Any:
        return np.split(x, range(size, x.shape[axis], size), axis)

    def pad(self, x: Any, before: int, after: int, value: float) -> Any:
        width = [(0, 0)] * (x.ndim - 1) + [(before, after)]
        return np.pad(x, width, constant_values=value)

    def any(self, x: Any, axis: Any, keepdims: bool) -> Any:
        return np.any(x, axis=axis, keepdims=keepdims)


def _erf(x: Any) -> Any:
    return np.vectorize(erf, otypes=[np.float64])(x)
