"""Error-compensated rounding (GPTQ): each rounded column's error is made good by the columns not
yet rounded.

With the inputs X of a layer seen in calibration, the error that matters is that of X W^T, and its
curvature is H = X^T X. Columns are rounded one by one; the error of each is spread over the later
ones as the Cholesky factor of H^-1 says (Frantar et al., 2022).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cubepy.quant.schemes.rounding import INT4_LEVELS, INT8_LIMIT, Grid, fit_int4

_BLOCK = 128


def curvature(moments: np.ndarray, count: int) -> np.ndarray:
    """X^T X, shrunk towards its diagonal by how few rows were seen, and damped.

    Args:
        moments: float64, (K, K): X^T X over `count` rows.
        count: how many rows were seen.

    Few rows leave H singular, and rounding then fits the sample instead of the task. On
    all-MiniLM-L6-v2 with 119 tokens of calibration, the mean cosine on text of another kind is
    0.983 without shrinking (below 0.987, that of rounding without data) and 0.989 with it.
    """
    columns = len(moments)
    keep = count / (count + columns)
    diagonal = np.diag(moments)
    shrunk = keep * moments
    damping = 0.01 * diagonal.mean()
    shrunk[np.diag_indices(columns)] = diagonal + (damping if damping > 0 else 1.0)
    return shrunk


def compensation(hessian: np.ndarray) -> np.ndarray:
    """The upper Cholesky factor of the inverse of `hessian`, float64 (K, K); damped more where that
    is needed.
    """
    damped = hessian.copy()
    damping = 1e-3 * float(np.diag(hessian).mean())
    while True:
        try:
            lower = np.linalg.cholesky(damped[::-1, ::-1])  # H = U U^T with U = lower, turned
            return inverse_of_upper(lower[::-1, ::-1])
        except np.linalg.LinAlgError:
            damped[np.diag_indices(len(damped))] += damping
            damping *= 10


def inverse_of_upper(upper: np.ndarray) -> np.ndarray:
    """The inverse of an upper triangular matrix, by halves: a third of a general one's work."""
    size = len(upper)
    if size <= _BLOCK:
        return np.triu(np.linalg.inv(upper))
    half = size // 2
    inverse = np.zeros_like(upper)
    inverse[:half, :half] = first = inverse_of_upper(upper[:half, :half])
    inverse[half:, half:] = last = inverse_of_upper(upper[half:, half:])
    inverse[:half, half:] = -first @ (upper[:half, half:] @ last)
    return inverse


def round_int8_compensated(
    weight: np.ndarray, scale: np.ndarray, hessian: np.ndarray
) -> np.ndarray:
    """Int8 codes (N, K) of a weight with one scale for each row, (N,)."""
    divisor = np.where(scale == 0, np.float32(1), scale)

    def quantize(column: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        codes = np.clip(np.rint(column / divisor), -INT8_LIMIT, INT8_LIMIT)
        return codes, codes * divisor

    return _sweep(weight, hessian, quantize, lambda at, columns: None, None).astype(np.int8)


def round_int4_compensated(
    weight: np.ndarray, group: int, symmetric: bool, hessian: np.ndarray
) -> tuple[np.ndarray, Grid]:
    """Int4 codes, uint8 (N, K), and their grid; each group's scale is searched when its
    turn comes.
    """
    rows, columns = weight.shape
    importance = np.diag(hessian).astype(np.float32)
    grid = Grid(
        np.empty((rows, columns // group), np.float32),
        np.empty((rows, columns // group), np.float32),
    )

    def start(at: int, part: np.ndarray) -> None:
        cost = importance[at : at + group]
        fitted = fit_int4(part.astype(np.float32), group, symmetric, cost / cost.mean())
        grid.scale[:, at // group], grid.minimum[:, at // group] = (
            fitted.scale[:, 0],
            fitted.minimum[:, 0],
        )

    def quantize(column: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scale, minimum = grid.scale[:, k // group], grid.minimum[:, k // group]
        safe = np.where(scale == 0, np.float32(1), scale)
        codes = np.where(scale == 0, 8, np.clip(np.rint((column - minimum) / safe), 0, INT4_LEVELS))
        return codes, codes * scale + minimum

    return _sweep(weight, hessian, quantize, start, group).astype(np.uint8), grid


def _sweep(
    weight: np.ndarray,
    hessian: np.ndarray,
    quantize: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]],
    start: Callable[[int, np.ndarray], None],
    group: int | None,
) -> np.ndarray:
    """Round the columns in order; returns the codes, (N, K). Works on W^T, where a column lies in
    one piece.
    """
    columns = weight.shape[1]
    factor = compensation(hessian).astype(np.float32)
    rest = np.ascontiguousarray(weight.T.astype(np.float32))
    codes = np.empty_like(rest)
    block = _BLOCK if group is None else max(group, _BLOCK // group * group)
    for at in range(0, columns, block):
        end = min(at + block, columns)
        errors = np.empty((end - at, weight.shape[0]), np.float32)
        for k in range(at, end):
            if group is not None and k % group == 0:
                start(k, rest[k : k + group].T)
            codes[k], rounded = quantize(rest[k], k)
            errors[k - at] = (rest[k] - rounded) / factor[k, k]
            rest[k + 1 : end] -= factor[k, k + 1 : end, None] * errors[k - at]
        rest[end:] -= factor[at:end, end:].T @ errors
    return codes.T
