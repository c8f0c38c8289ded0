"""Calls of every library function with arguments of usual kinds: what `python -m cubepy warm`
compiles for.

Sizes are no part of compiled code, but classes of sizes are (few rows or many, whole lines or a
tail): a call stands here for each that programs commonly meet, in f32 or another dtype, on the
current device. What a program needs exactly, the program itself tells.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from cubepy import kernels as K
from cubepy.kernels import functions as f
from cubepy.runtime.device import current, gpu_of
from cubepy.runtime.memory.device_array import upload

Call = Callable[[], Any]
_dtype: ContextVar[Any] = ContextVar("cubepy_typical_dtype", default=np.float32)


@contextlib.contextmanager
def arrays_of(dtype: Any) -> Iterator[None]:
    """Calls inside take arrays of this dtype."""
    token = _dtype.set(dtype)
    try:
        yield
    finally:
        _dtype.reset(token)


def some(*shape: int) -> Any:
    """An array on the current device, whose numbers do not matter."""
    return here(np.zeros(shape, _dtype.get()))


def inside(*shape: int) -> Any:
    """Indices that are inside of whatever they point into."""
    return here(np.zeros(shape, np.int64))


def here(array: np.ndarray) -> Any:
    """An array on the current device."""
    device = current()
    return array if gpu_of(device) is None else upload(array, device)


def over_rows(name: str) -> list[Call]:
    """A function along the last axis and the first."""
    function = getattr(K, name)
    return [lambda: function(some(64, 1000), -1), lambda: function(some(64, 1000), 0)]


def products() -> list[Call]:
    """One row, few, many; in batches."""
    weight = some(256, 512)
    return [
        *(lambda m=m: K.matmul(some(m, 256), weight) for m in (1, 8, 300)),
        lambda: K.matmul(some(300, 256), some(512, 256).T),
        lambda: K.matmul(some(8, 64, 64), some(8, 64, 64)),
    ]


def convolutions(axes: int, transposed: bool = False) -> list[Call]:
    """Windows of three and of one, with and without a stride, of few channels and of many."""
    function = getattr(K, f"conv_transpose{axes}d" if transposed else f"conv{axes}d")
    size = {1: 512, 2: 56, 3: 12}[axes]

    def call(inputs: int, outputs: int, window: int, stride: int) -> Call:
        filters = (inputs, outputs) if transposed else (outputs, inputs)
        return lambda: function(
            some(1, inputs, *[size] * axes),
            some(*filters, *[window] * axes),
            stride=stride,
            padding=window // 2,
        )

    calls = [call(64, 64, 3, 1), call(64, 128, 3, 2)]
    return calls if axes != 2 or transposed else [*calls, call(64, 128, 1, 1), call(3, 64, 7, 2)]


def pools(kind: str, axes: int) -> dict[str, list[Call]]:
    """Windows of three, and parts; the same backwards."""
    plain, adaptive = f"{kind}_pool{axes}d", f"adaptive_{kind}_pool{axes}d"
    x = some(1, 16, *[{1: 512, 2: 56, 3: 12}[axes]] * axes)
    half, parts = (x.shape[2] - 1) // 2 + 1, 2
    index = kind == "max"

    def back(name: str, side: int, *rest: int) -> Call:
        shape = (*x.shape[:2], *[side] * axes)
        indices = (inside(*shape),) if index else ()
        return lambda: getattr(K, name)(x.shape, some(*shape), *indices, *rest)

    return {
        plain: [lambda: getattr(K, plain)(x, 3, 2, 1)],
        adaptive: [lambda: getattr(K, adaptive)(x, 1), lambda: getattr(K, adaptive)(x, parts)],
        f"{plain}_input": [back(f"{plain}_input", half, 3, 2, 1)],
        f"{adaptive}_input": [back(f"{adaptive}_input", parts)],
    }


def attention(name: str) -> list[Call]:
    """One question and many."""
    q, k = some(1, 8, 128, 64), some(1, 8, 1, 64)
    if name == "attention_gradients":
        sums = here(np.zeros(q.shape[:3], np.float32))
        return [lambda: K.attention_gradients(q, q, q, q, q, sums)]
    function = getattr(K, name)
    return [lambda: function(q, q, q), lambda: function(k, q, q)]


def recurrent(gates: int) -> tuple[Any, Any, Any]:
    """A sequence, and the weights of a layer along it."""
    return some(8, 1, 64), some(1, gates * 64, 64), some(1, gates * 64, 64)


def calls() -> dict[str, list[Call]]:
    """The calls by the function's name."""
    x, one = some(64, 1000), some(1000)
    image, channels = some(1, 64, 56, 56), some(64)
    grad, filters = some(1, 64, 56, 56), some(64, 64, 3, 3)
    names = (
        "all any argmax argmin argsort cumprod cumsum flip log_softmax logsumexp max mean min prod "
        "softmax sort std sum var"
    )
    return {
        **{name: over_rows(name) for name in names.split()},
        "sort": [*over_rows("sort"), lambda: K.sort(some(1_000_000))],
        "norm": [lambda: K.norm(x, axis=1)],
        "copy": [lambda: K.copy(some(8, 30, 40).transpose(1, 0, 2))],
        "transpose": [lambda: K.transpose(x)],
        "gelu": [lambda: K.gelu(x)],
        "map": [lambda: K.map(f.add, x, x), lambda: K.map(f.mul, x, one)],
        "concat": [lambda: K.concat([x, x]), lambda: K.concat([x, x], 1)],
        "pad": [lambda: K.pad(x, (1, 1, 1, 1))],
        "topk": [lambda: K.topk(x, 8)],
        "matmul": products(),
        "prepack": [lambda: K.prepack(some(256, 512))],
        "prepack_filter": [lambda: K.prepack_filter(filters)],
        "embedding": [lambda: K.embedding(inside(32), x)],
        "select": [lambda: K.select(x, 0, inside(32))],
        "gather": [lambda: K.gather(x, 0, inside(32, 1000))],
        "scatter": [lambda: K.scatter(x, 0, inside(32, 1000), some(32, 1000))],
        "take_along_axis": [lambda: K.take_along_axis(x, inside(32, 1000), 0)],
        "index_put": [lambda: K.index_put(x, (inside(32),), some(32, 1000))],
        **{n: attention(n) for n in ("attention", "attention_forward", "attention_gradients")},
        "layer_norm": [lambda: K.layer_norm(x, 1000, one)],
        "rms_norm": [lambda: K.rms_norm(x, 1000, one)],
        "group_norm": [lambda: K.group_norm(image, 8)],
        "batch_norm": [
            lambda: K.batch_norm(image, channels, channels),
            lambda: K.batch_norm(image, channels, channels, training=True),
        ],
        **{f"conv{d}d": convolutions(d) for d in (1, 2, 3)},
        **{f"conv_transpose{d}d": convolutions(d, True) for d in (1, 2, 3)},
        "conv_input": [lambda: K.conv_input(image.shape, filters, grad, padding=1)],
        "conv_weight": [lambda: K.conv_weight(image, filters.shape, grad, padding=1)],
        "interpolate": [
            lambda: K.interpolate(image, (112, 112), mode="bilinear"),
            lambda: K.interpolate(image, (112, 112), mode="nearest"),
        ],
        "interpolate_input": [
            lambda: K.interpolate_input((1, 64, 112, 112), image, mode="bilinear")
        ],
        "lstm": [lambda: K.lstm(*recurrent(4))],
        "gru": [lambda: K.gru(*recurrent(3))],
        "rnn": [lambda: K.rnn(*recurrent(1))],
        "bernoulli": [lambda: K.bernoulli(x)],
        "normal": [lambda: K.normal(size=3000)],
        "uniform": [lambda: K.uniform(size=3000)],
        "randint": [lambda: K.randint(0, 9, 3000)],
        **{n: c for k in ("max", "avg") for d in (1, 2, 3) for n, c in pools(k, d).items()},
    }
