"""Fourier transforms as products with matrices of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.tensor import Tensor


def transform(n: int, rows: int, columns: int, inverse: bool) -> tuple[Any, Any]:
    """Cosines and sines (rows, columns) of a transform of length n; those that are zero are so
    exactly, so that real signals have real numbers where theirs are.
    """
    step = np.arange(n)
    angle = step * (2 * np.pi / n)
    cos = np.where(4 * step % (2 * n) == n, 0.0, np.cos(angle))
    sin = np.where(2 * step % n == 0, 0.0, np.sin(angle) if inverse else -np.sin(angle))
    at = np.outer(np.arange(rows), np.arange(columns)) % n
    return cos[at], sin[at]


def cut_to(x: Tensor, axis: int, n: int) -> Tensor:
    """An axis cut, or with zeros behind it."""
    length = x.shape[axis]
    if length > n:
        return x[(slice(None),) * axis + (slice(0, n),)]
    if length == n:
        return x
    shape = list(x.shape)
    shape[axis] = n - length
    return T.concat([x, T.zeros(tuple(shape), dtype=x.dtype, device=x.device)], axis=axis)


def dft_of(x: Tensor, axis: int, n: int, inverse: bool, onesided: bool) -> Tensor:
    """x (..., 1 or 2) along an axis; (..., 2), or real numbers (..., 1) of half a spectrum."""
    dtype = x.dtype
    wide = x.astype("f32") if dtype.bits < 32 else x
    real, imaginary = wide[..., 0], wide[..., 1] if x.shape[-1] == 2 else None
    if inverse and onesided:
        return _real(real, imaginary, axis, n).unsqueeze(-1).astype(dtype)
    columns = n // 2 + 1 if onesided else n
    given = min(n, x.shape[axis])
    cos, sin = (
        T(m, dtype=wide.dtype, device=x.device) for m in transform(n, given, columns, inverse)
    )
    real = cut_to(real, axis, given).movedim(axis, -1)
    found_real, found_imaginary = real @ cos, real @ sin
    if imaginary is not None:
        other = cut_to(imaginary, axis, given).movedim(axis, -1)
        found_real, found_imaginary = found_real - other @ sin, found_imaginary + other @ cos
    if inverse:
        found_real, found_imaginary = found_real / n, found_imaginary / n
    parts = [p.movedim(-1, axis) for p in (found_real, found_imaginary)]
    return T.stack(parts, axis=-1).astype(dtype)


def _real(real: Tensor, imaginary: Tensor | None, axis: int, n: int) -> Tensor:
    """The signal of a half spectrum: the other half is its mirror."""
    bins = n // 2 + 1
    cos, sin = transform(n, bins, n, True)
    weight = np.full((bins, 1), 2.0 / n)
    weight[0] = 1.0 / n
    if n % 2 == 0:
        weight[-1] = 1.0 / n
    matrix = T(cos * weight, dtype=real.dtype, device=real.device)
    made = cut_to(real, axis, bins).movedim(axis, -1) @ matrix
    if imaginary is not None:
        other = cut_to(imaginary, axis, bins).movedim(axis, -1)
        made = made - other @ T(sin * weight, dtype=real.dtype, device=real.device)
    return made.movedim(-1, axis)
