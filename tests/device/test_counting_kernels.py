"""Random numbers, scans and sorting on a GPU: the same results as on the CPU, over sizes around
every edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array

F = np.float32
RNG = np.random.default_rng(0)


def put(x: np.ndarray) -> Any:
    """The array on the GPU."""
    return device_array.upload(x, devices.as_device("cuda"))


def on_gpu(function: Any, x: np.ndarray, *args: Any, **options: Any) -> np.ndarray:
    """What a function gives for an array on the GPU, brought back."""
    return function(put(x), *args, **options).numpy()


@pytest.mark.parametrize("n", [1, 3, 1023, 70001])
def test_random_numbers_are_those_of_the_cpu(n: int) -> None:
    for draw in (
        lambda **o: K.uniform(-1, 2, n, **o), lambda **o: K.normal(size=n, **o), lambda **o: K.randint(-5, 99, n, **o),
        lambda **o: K.uniform(size=n, dtype=cb.f64, **o), lambda **o: K.normal(size=n, dtype=cb.bf16, **o),
    ):  # fmt: skip
        here = draw(generator=K.Generator(11), device="cpu")
        there = draw(generator=K.Generator(11), device="cuda").numpy()
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize(
    "shape", [(1,), (300000,), (3, 33), (600, 5000), (2, 300, 40), (2, 5, 3)], ids=str
)
def test_scans(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape, dtype=F)
    d = x.astype(np.float64)
    for axis in (None, *range(len(shape))):
        for exclusive in (False, True):
            want = d.cumsum(axis)
            bound = 2e-6 * np.abs(d).cumsum(axis) + 1e-30
            if exclusive:
                want = want - (d if axis is not None else d.reshape(-1))
            got = on_gpu(K.cumsum, x, axis, exclusive=exclusive)
            assert (np.abs(got - want) <= bound).all()
    whole = RNG.integers(-9, 9, shape)
    np.testing.assert_array_equal(on_gpu(K.cumsum, whole, 0), whole.cumsum(0))
    signs = np.where(RNG.random(shape) < 0.5, -1, 1).astype(F)
    np.testing.assert_array_equal(on_gpu(K.cumprod, signs, -1), signs.cumprod(-1))


@pytest.mark.parametrize("n", [1, 33, 1000, 4096, 100003])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64], ids=lambda d: d.__name__)
def test_sorting(dtype: Any, n: int) -> None:
    x = (RNG.standard_normal((3, n)) * 40).astype(dtype)
    if x.dtype.kind == "f":
        for special in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
            x[RNG.random(x.shape) < 0.02] = special
    np.testing.assert_array_equal(on_gpu(K.sort, x), np.sort(x))
    np.testing.assert_array_equal(on_gpu(K.argsort, x), np.argsort(x, stable=True))
    np.testing.assert_array_equal(on_gpu(K.sort, x, 0), np.sort(x, 0))
    k = min(n, 5)
    values, indices = K.topk(put(x), k)
    with cb.use("cpu"):
        order = K.argsort(x, descending=True)[:, :k]
    np.testing.assert_array_equal(indices.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, order, 1))
