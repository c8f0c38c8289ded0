"""Matrices that tests of products draw."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

BF16 = ml_dtypes.bfloat16
FLOATS = {"f32": (np.float32, 1e-5), "f16": (np.float16, 2e-3), "bf16": (BF16, 1e-2)}


def laid_out(rng: Any, shape: tuple[int, int], dtype: Any, layout: str) -> np.ndarray:
    """A matrix of small numbers, its rows or columns neighbours in memory, or neither."""

    def made(shape: tuple[int, ...]) -> np.ndarray:
        if np.dtype(dtype).kind in "iu":
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
        return rng.standard_normal(shape, np.float32).astype(dtype)

    m, n = shape
    return {
        "rows": lambda: made((m, n)),
        "columns": lambda: made((n, m)).T,
        "strided": lambda: made((m, 2 * n))[:, ::2],
    }[layout]()
