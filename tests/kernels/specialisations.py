"""How many specialisations calls with other shapes need, as JSON: nothing is compiled, and launches
do nothing.

A program of its own (`python -m tests.kernels.specialisations`), because kernels remember what was
made for them.
"""

from __future__ import annotations

import ctypes
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy import kernels as K
from cubepy.backends.cpu import backend
from cubepy.backends.cpu import compile as native
from cubepy.backends.cpu.backend import CpuBackend
from cubepy.backends.llvm.object_loader import Laid

CALLS = 8
nothing = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
    lambda first, last, block: None
)
backend.load_object = lambda code, symbol: Laid(ctypes.cast(nothing, ctypes.c_void_p).value or 0)
native.compile_object = lambda *_: (b"", "")

rng = np.random.default_rng(0)


def between(low: int, high: int) -> int:
    return int(rng.integers(low, high))


def some(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def rows(function: Callable, *rest: Any) -> Callable:
    return lambda: function(some(between(200, 3000), between(200, 3000)), *rest)


def product() -> Any:
    m, k, n = between(100, 900), between(100, 900), between(100, 900)
    return K.matmul(some(m, k), some(k, n))


def convolution(layout: str, window: int, depthwise: bool = False) -> Callable:
    def call() -> Any:
        channels, size = 8 * between(4, 12), between(9, 90)
        x = some(1, channels, size, size) if layout == "NCHW" else some(1, size, size, channels)
        filters, groups = ((channels, 1), channels) if depthwise else ((64, channels), 1)
        return K.conv2d(
            x, some(*filters, window, window), padding=window // 2, groups=groups, layout=layout
        )

    return call


def attention() -> Any:
    length = between(20, 900)
    return K.attention(*[some(2, between(1, 2) * 4, length, 64)] * 3)


CASES: dict[str, Callable] = {
    "sum of rows": rows(K.sum, 1),
    "sum of columns": rows(K.sum, 0),
    "sum in the middle": lambda: K.sum(some(between(2, 9), between(20, 300), between(20, 300)), 1),
    "largest of columns": rows(K.max, 0),
    "place of the largest of columns": rows(K.argmax, 0),
    "softmax": rows(K.softmax, -1),
    "transpose": rows(K.transpose, (1, 0)),
    "sort": rows(K.sort),
    "product": product,
    "convolution, channels first": convolution("NCHW", 3),
    "convolution, channels last": convolution("NHWC", 3),
    "depthwise, channels first": convolution("NCHW", 3, True),
    "depthwise, channels last": convolution("NHWC", 3, True),
    "attention": attention,
}


def count(cases: dict[str, Callable], calls: int) -> dict[str, Counter[str]]:
    """By case and kernel, what was made for so many calls."""
    made: dict[str, Counter[str]] = {name: Counter() for name in cases}
    now = ""
    executable = CpuBackend.executable

    def counted(self: CpuBackend, kernel: Any, *rest: Any) -> Any:
        made[now][kernel.__name__] += 1
        return executable(self, kernel, *rest)

    CpuBackend.executable = counted  # type: ignore[method-assign]
    for now, call in cases.items():
        for _ in range(calls):
            call()
    CpuBackend.executable = executable  # type: ignore[method-assign]
    return made


if __name__ == "__main__":
    print(json.dumps(count(CASES, CALLS)))
