"""`interpolate(antialias=True)`, one position after the other, and its gradient; "nearest-exact"."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import ShapeError
from cubepy.nn import functional as F


def weight(d: float, mode: str) -> float:
    d = abs(d)
    if mode == "bilinear":
        return max(0.0, 1 - d)
    if d < 1:
        return 1.5 * d**3 - 2.5 * d**2 + 1
    return -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2 if d < 2 else 0.0


def matrix(n: int, m: int, scale: float, mode: str) -> np.ndarray:
    """What each of m positions takes of n."""
    wide, found = max(scale, 1.0), np.zeros((m, n))
    reach = wide * (1 if mode == "bilinear" else 2)
    for j in range(m):
        centre = scale * (j + 0.5)
        for i in range(n):
            if max(int(centre - reach + 0.5), 0) <= i < min(int(centre + reach + 0.5), n):
                found[j, i] = weight((i - centre + 0.5) / wide, mode)
    return found / found.sum(1, keepdims=True)


@pytest.mark.parametrize("seed", range(24))
def test_random_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mode, corners = ("bilinear", "bicubic")[seed % 2], seed % 3 == 0
    size, wanted = rng.integers(3, 24, 2), rng.integers(2, 24, 2)
    by_factor = seed % 4 == 1
    factors = tuple(float(k) for k in rng.uniform(0.4, 0.9, 2))
    if by_factor:
        wanted = np.array([math.floor(n * k) for n, k in zip(size, factors, strict=True)])
    x = rng.standard_normal((2, 3, *size))
    scales = [(n - 1) / (m - 1) if corners and m > 1 else 0.0 if corners else
              1 / factors[d] if by_factor else n / m
              for d, (n, m) in enumerate(zip(size, wanted, strict=True))]  # fmt: skip
    rows, columns = (
        np.eye(n) if n == m else matrix(n, m, s, mode)
        for n, m, s in zip(size, wanted, scales, strict=True)
    )
    exact = np.einsum("ai,bj,ncij->ncab", rows, columns, x)
    to: dict[str, Any] = (
        {"scale_factor": factors} if by_factor else {"size": tuple(wanted.tolist())}
    )
    how = {**to, "mode": mode, "align_corners": corners, "antialias": True}
    np.testing.assert_allclose(K.interpolate(x, **how), exact, 1e-12, 1e-13)
    last = K.interpolate(x.transpose(0, 2, 3, 1).astype(np.float32), **how, layout="NHWC")
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), exact, 1e-4, 1e-5)
    leaf, g = cb.tensor(x, requires_grad=True), rng.standard_normal(exact.shape)
    program = cb.jit(lambda x: F.interpolate(x, **how))
    for function in (lambda x: F.interpolate(x, **how), program, program):
        found = function(leaf)
        np.testing.assert_allclose(found.detach().numpy(), exact, 1e-12, 1e-13)
        leaf.grad = None
        found.backward(cb.tensor(g))
        back = np.einsum("ai,bj,ncab->ncij", rows, columns, g)
        np.testing.assert_allclose(leaf.grad.numpy(), back, 1e-12, 1e-13)


@pytest.mark.parametrize(("n", "m"), [(5, 12), (12, 5), (7, 7), (3, 10), (10, 3), (1, 4)])
def test_the_nearest_by_middles(n: int, m: int) -> None:
    x = np.arange(n, dtype=np.float32).reshape(1, 1, n)
    found = K.interpolate(x, m, mode="nearest-exact")
    assert found.ravel().tolist() == [math.floor((j + 0.5) * n / m) for j in range(m)]


def test_factors_that_are_computed_again() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 7, 9))
    found = F.interpolate(x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True)
    np.testing.assert_array_equal(found.numpy(), K.interpolate(x, (9, 11), mode="bilinear"))


def test_other_modes_are_refused() -> None:
    with pytest.raises(ShapeError, match="antialias is for"):
        K.interpolate(np.ones((1, 1, 4)), 2, mode="linear", antialias=True)
