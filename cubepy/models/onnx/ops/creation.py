"""Tensors of nothing: ranges, constants, windows, random numbers."""

from __future__ import annotations

import math
import secrets
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.formats.onnx_schema import DTYPES
from cubepy.models.formats.onnx_tensor import Weight
from cubepy.models.onnx.records import Call, dtype_of, ints, operator, shape_of
from cubepy.models.onnx.runner import host_of, liftable
from cubepy.tensor import Generator, Tensor

MOST_HOST = 4096
"""Elements up to which what shapes decide is a host array."""


@operator("ConstantOfShape", plain=True)
def constant_of_shape(call: Call, lengths: Any) -> Any:
    """A shape full of one number."""
    lengths = ints(host_of(lengths))
    value = call.get("value")
    array = np.zeros(1, np.float32) if value is None else value.array()
    number = array.reshape(-1)[0]
    if math.prod(lengths) <= MOST_HOST or not liftable(array):
        return np.full(lengths, number, array.dtype)
    return T.full(lengths, number.item(), dtype=array.dtype, device=call.device)


def _range(call: Call, first: Any, limit: Any, step: Any) -> Any:
    first, limit, step = (v.reshape(-1)[0] for v in (first, limit, step))
    if step == 0:
        raise call.refuse("a range with steps of zero")
    count = max(0, math.ceil((float(limit) - float(first)) / float(step)))
    if first.dtype.kind in "iu":
        count = max(0, -((int(first) - int(limit)) // int(step)))
    return (first + np.arange(count).astype(first.dtype) * step).astype(first.dtype)


operator("Range", reads=(0, 1, 2), host=_range)(_range)


@operator("EyeLike", plain=True)
def eye_like(call: Call, x: Any) -> Any:
    """Ones on a diagonal."""
    rows, columns = shape_of(x)
    dtype = DTYPES[call["dtype"]] if "dtype" in call.node.attributes else dtype_of(x)
    return np.eye(rows, columns, call.get("k", 0)).astype(dtype)


def _dtype(call: Call, like: Any = None) -> Any:
    default = 1 if like is None else None
    code = call.get("dtype", default)
    return dtype_of(like) if code is None else DTYPES[code]


def _generator(call: Call) -> Generator:
    """Random numbers of a seed; of a node without one from run to run others."""
    if call.state is None:
        seed = call.get("seed")
        call.state = Generator(secrets.randbits(32) if seed is None else int(seed) & 0xFFFFFFFF)
    return call.state  # type: ignore[no-any-return]


def _normal(call: Call, lengths: tuple[int, ...], dtype: Any) -> Tensor:
    drawn = _generator(call).normal(lengths)
    return (drawn * call.get("scale", 1.0) + call.get("mean", 0.0)).astype(dtype)


def _uniform(call: Call, lengths: tuple[int, ...], dtype: Any) -> Tensor:
    low, high = call.get("low", 0.0), call.get("high", 1.0)
    return (_generator(call).uniform(lengths) * (high - low) + low).astype(dtype)


@operator("RandomNormal", splits=True)
def random_normal(call: Call) -> Tensor:
    """Normal numbers."""
    return _normal(call, ints(call["shape"]), _dtype(call))


@operator("RandomUniform", splits=True)
def random_uniform(call: Call) -> Tensor:
    """Numbers between two limits."""
    return _uniform(call, ints(call["shape"]), _dtype(call))


@operator("RandomNormalLike", splits=True)
def random_normal_like(call: Call, x: Tensor) -> Tensor:
    """Normal numbers in the shape of a tensor."""
    return _normal(call, x.shape, _dtype(call, x))


@operator("RandomUniformLike", splits=True)
def random_uniform_like(call: Call, x: Tensor) -> Tensor:
    """Numbers between two limits in the shape of a tensor."""
    return _uniform(call, x.shape, _dtype(call, x))


@operator("Bernoulli", splits=True)
def bernoulli(call: Call, x: Tensor) -> Tensor:
    """One with the probability that an element is."""
    return (_generator(call).uniform(x.shape) < x.astype("f32")).astype(_dtype(call, x))


@operator("Multinomial", splits=True)
def multinomial(call: Call, x: Tensor) -> Tensor:
    """Classes drawn by the logarithms of their probabilities (Gumbel's maximum)."""
    count = call.get("sample_size", 1)
    drawn = _generator(call).uniform((x.shape[0], count, x.shape[1]))
    noise = -(-(drawn.maximum(1e-38).log())).log()
    best = (x.astype("f32").unsqueeze(1) + noise).argmax(axis=-1)
    return best.astype(DTYPES[call.get("dtype", 6)])


def _window(call: Call, size: Any, weights: tuple[float, ...]) -> Any:
    count = int(size.reshape(-1)[0])
    ends = count if call.get("periodic", 1) else max(count - 1, 1)
    angle = np.arange(count) * (2 * np.pi / ends)
    made = sum(w * np.cos(k * angle) * (-1) ** k for k, w in enumerate(weights))
    return np.asarray(made).astype(DTYPES[call.get("output_datatype", 1)])


@operator("HannWindow", reads=(0,))
def hann_window(call: Call, size: Any) -> Any:
    """0.5 - 0.5 cos."""
    return _window(call, size, (0.5, 0.5))


@operator("HammingWindow", reads=(0,))
def hamming_window(call: Call, size: Any) -> Any:
    """25/46 - 21/46 cos."""
    return _window(call, size, (25 / 46, 21 / 46))


@operator("BlackmanWindow", reads=(0,))
def blackman_window(call: Call, size: Any) -> Any:
    """0.42 - 0.5 cos + 0.08 cos."""
    return _window(call, size, (0.42, 0.5, 0.08))


@operator("Constant", plain=True)
def constant(call: Call) -> Any:
    """The value of a function's attribute."""
    ((name, value),) = call.node.attributes.items()
    if isinstance(value, Weight):
        return value.array()
    dtype: Any = {"f": np.float32, "i": np.int64, "s": object}[name.removeprefix("value_")[0]]
    return np.array(value, dtype)
