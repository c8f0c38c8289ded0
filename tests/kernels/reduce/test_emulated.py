"""Reductions on an emulated GPU: along rows and down columns, of one walk and of several, whole and
in pieces; rows that units hold, and rows too long for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.kernels.reduce import reduce_gpu, statistics_gpu
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(3)

# what is reduced, and the axis
SHAPES: dict[str, tuple[tuple[int, ...], Any]] = {
    "rows": ((3, 300), 1),
    "short_rows": ((40, 7), 1),
    "columns": ((70, 37), 0),
    "few": ((1, 5), 1),
    "middle": ((2, 40, 12), 1),
    "whole": ((2500,), None),
    "tall": ((300, 3), 0),
}


def logsumexp(x: np.ndarray, axis: Any) -> np.ndarray:
    top = x.max(axis, keepdims=True)
    found: np.ndarray = np.log(np.exp(x - top).sum(axis)) + top.max(axis)
    return found


STATISTICS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (K.sum, np.sum),
    "mean": (K.mean, np.mean),
    "max": (K.max, np.max),
    "var": (K.var, np.var),
    "std": (lambda x, a: K.std(x, a, 1), lambda x, a: np.std(x, a, ddof=1)),
    "logsumexp": (K.logsumexp, logsumexp),
    "norm": (lambda x, a: K.norm(x, 2, a), lambda x, a: np.sqrt((x * x).sum(a))),
    "norm_inf": (lambda x, a: K.norm(x, np.inf, a), lambda x, a: abs(x).max(a)),
}


@pytest.fixture(params=["whole", "pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and columns as they are, and cut in pieces as only long ones are."""
    if request.param == "pieces":
        monkeypatch.setattr(reduce_gpu, "LEAST", 64)
        monkeypatch.setattr(reduce_gpu, "UNITS", 64)


@pytest.mark.turns(6)
@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", STATISTICS)
def test_reductions(name: str, shape: str) -> None:
    ours, numpy = STATISTICS[name]
    size, axis = SHAPES[shape]
    x = RNG.standard_normal(size).astype(np.float32) + 0.5
    with emulated() as gpu:
        got = np.asarray(ours(upload(x, gpu), axis).numpy())
    want = numpy(x.astype(np.float64), axis)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.turns(6)
@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BF16, np.dtype(np.int32)], ids=str)
def test_positions_are_of_the_first_of_equals_and_of_nan(dtype: Any, shape: str) -> None:
    size, axis = SHAPES[shape]
    plain = RNG.integers(-3, 4, size).astype(np.float32)
    lowest = np.full(size, -np.inf, np.float32)
    spoilt = np.where(RNG.random(size) < 0.02, np.float32(np.nan), plain)
    for x in (plain, lowest, spoilt) if dtype.kind != "i" else (plain,):
        given = x.astype(dtype)
        with emulated() as gpu:
            far = upload(given, gpu)
            largest, smallest = (np.asarray(f(far, axis).numpy()) for f in (K.argmax, K.argmin))
        np.testing.assert_array_equal(largest, np.argmax(x, axis))
        np.testing.assert_array_equal(smallest, np.argmin(x, axis))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BF16, np.dtype(np.float64)], ids=str)
@pytest.mark.parametrize("length", [64, 700, 4100])
def test_the_variance_of_held_rows(dtype: Any, length: int) -> None:
    x = (RNG.standard_normal((3, length)) + 2).astype(dtype)
    with emulated() as gpu:
        got = K.var(upload(x, gpu), 1).numpy().astype(np.float64)
    unit = {2: 1e-2, 8: 1e-13}[dtype.itemsize]
    np.testing.assert_allclose(got, x.astype(np.float64).var(1), rtol=unit)


def test_a_row_that_no_units_can_hold_is_walked_over_twice() -> None:
    x = RNG.standard_normal((1, 140_000)).astype(np.float32) + 3
    with emulated() as gpu:
        far = upload(x, gpu)
        np.testing.assert_allclose(K.var(far, 1).numpy(), x.astype(np.float64).var(1), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BF16], ids=str)
def test_long_rows_are_walked_along_once(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest element comes anywhere, infinities and NaN, too."""
    monkeypatch.setattr(statistics_gpu, "LEAST_ROWS", 1)
    n = int(RNG.integers(16400, 24000))
    x = (RNG.standard_normal((5, n)) * 3).astype(dtype)
    x[1] = -np.inf
    x[2, RNG.integers(n)] = np.inf
    x[3, RNG.integers(n)] = np.nan
    x[4, RNG.integers(n)] = 1e4
    x[4, : n // 2] = -np.inf
    with emulated() as gpu, force("reduce", "online_rows"):
        found = K.logsumexp(upload(x, gpu), axis=1).numpy().astype(np.float64)
    with np.errstate(invalid="ignore"):
        wide = np.logaddexp.reduce(x.astype(np.float64), axis=1)
    assert found[1] == -np.inf and found[2] == np.inf and np.isnan(found[3])
    np.testing.assert_allclose(found[[0, 4]], wide[[0, 4]], rtol=1e-6 if dtype != BF16 else 4e-3)
