"""Families of the library's kernels on emulated AMD GPUs, with planes of 64 and of 32 units: small
cases, whose results are those of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array
from tests.backends.hip.emulator.device import emulated
from tests.kernels.entry.test_device_arrays import CALLS as DEVICE_CALLS

F, H = np.float32, np.float16
PROCESSORS = ("gfx942", "gfx1100")


def draw(*shape: int, dtype: Any = F, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(*shape: int, dtype: Any = np.int32) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 1000, shape).astype(dtype)


@cb.func
def larger_twice(a, b):
    return cb.max(a, b) * 2


IMAGE = draw(1, 3, 12, 10)
EXACT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "map": (lambda x, y: K.map(larger_twice, x, y), (draw(3, 70), draw(3, 70))),
    "cumsum": (lambda x: K.cumsum(x, 1), (whole(3, 700),)),
    "sort": (lambda x: K.sort(x), (draw(2, 150),)),
    "argsort": (lambda x: K.argsort(x), (whole(2, 90),)),
    "sort of halves": (lambda x: K.sort(x), (draw(2, 80, dtype=H),)),
    "topk": (lambda x: K.topk(x, 5)[0], (draw(2, 700),)),
    "argmax": (lambda x: K.argmax(x, 1), (draw(3, 300),)),
    "sum of integers": (lambda x: K.sum(x, 1), (whole(3, 300),)),
    "max": (lambda x: K.max(x, 0), (draw(90, 7),)),
    "transpose": (lambda x: K.copy(x.T), (draw(40, 33),)),
    "max_pool2d": (lambda x: K.max_pool2d(x, 3, 2, 1), (IMAGE,)),
    "uniform": (lambda x: K.bernoulli(x, generator=K.Generator(1)), (np.full((3, 70), 0.5, F),)),
}
CLOSE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sum": (lambda x: K.sum(x, 1), (draw(3, 500),)),
    "mean of halves": (lambda x: K.mean(x, 1), (draw(3, 200, dtype=H),)),
    "var": (lambda x: K.var(x, 1), (draw(3, 200),)),
    "softmax": (lambda x: K.softmax(x), (draw(3, 150),)),
    "layer_norm": (lambda x, w: K.layer_norm(x, 130, w), (draw(3, 130), draw(130))),
    "matmul": (lambda a, b: K.matmul(a, b), (draw(20, 24), draw(24, 36))),
    "matmul of halves": (
        lambda a, b: K.matmul(a, b),
        (draw(20, 24, dtype=H), draw(24, 36, dtype=H)),
    ),
    "vector": (lambda a, b: K.matmul(a, b), (draw(1, 130), draw(130, 20))),
    "vector along columns": (lambda a, b: K.matmul(a, b.T), (draw(1, 130), draw(20, 130))),
    "vector along more columns": (lambda a, b: K.matmul(a, b.T), (draw(2, 64), draw(96, 64))),
    "attention": (lambda q: K.attention(q, q, q), (draw(1, 2, 5, 8),)),
    "avg_pool2d": (lambda x: K.avg_pool2d(x, 2), (IMAGE,)),
    "gelu": (lambda x: K.gelu(x), (draw(3, 70),)),
    "lstm": (
        lambda x, w, r, b: K.lstm(x, w, r, b)[0],
        (draw(3, 2, 5), draw(2, 40, 5), draw(2, 40, 10), draw(2, 40)),
    ),
}  # fmt: skip
CASES = [
    *((name, call, 0.0) for name, call in EXACT.items()),
    *((name, call, 1e-5) for name, call in CLOSE.items()),
    *((f"device {name}", call, 1e-5) for name, call in DEVICE_CALLS.items()),
]


@pytest.mark.parametrize("n", [577, 1119])
def test_rows_are_shared_by_whole_planes(n: int) -> None:
    """Of which 96 and 192 units would hold the fewest elements: no whole planes of 64."""
    x = draw(n) + 1
    with emulated("gfx942"), cb.use("gfx942"):
        there = device_array.upload(x, devices.current())
        found = float(K.var(there, 0).numpy())
    np.testing.assert_allclose(found, x.astype(np.float64).var(), rtol=1e-5)


ALL = [(*case, processor) for case in CASES for processor in PROCESSORS]


@pytest.mark.turns(6)  # every second case on the one or on the other
@pytest.mark.parametrize(
    ("name", "call", "off", "processor"), ALL, ids=[f"{c[0]}-{c[-1]}" for c in ALL]
)
def test_results_are_those_of_the_cpu(name: str, call: Any, off: float, processor: str) -> None:
    function, arrays = call
    want = function(*arrays)
    half = any(a.dtype == H for a in arrays)
    with emulated(processor), cb.use(processor):
        where = devices.current()
        there = [device_array.upload(np.ascontiguousarray(a), where) for a in arrays]
        got = function(*there).numpy()
    assert got.dtype == want.dtype and got.shape == want.shape
    if off == 0.0:
        np.testing.assert_array_equal(got, want)
    else:
        off = 2e-3 if half else off
        np.testing.assert_allclose(got.astype(F), want.astype(F), rtol=off, atol=off)
