"""The functions of linalg: decompositions, and what is made of them. All have gradients."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.lang.dtypes import promote
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.linalg.ops import matrices
from cubepy.tensor.namespace.choice import where
from cubepy.tensor.namespace.creation import eye, zeros_like
from cubepy.tensor.namespace.manipulation import moveaxis, stack
from cubepy.tensor.namespace.products import matmul, matrix_transpose, tensordot, vecdot
from cubepy.tensor.namespace.statistics import max as greatest
from cubepy.tensor.namespace.statistics import min as least
from cubepy.tensor.namespace.statistics import sum as total
from cubepy.tensor.ops.op import Spec


class EighResult(NamedTuple):
    """What `eigh` gives."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """What `qr` gives."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """What `slogdet` gives."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """What `svd` gives."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _matrices(x: Any, op: str, *, square: bool = False) -> Tensor:
    found = as_tensor(x)
    matrices(Spec(found.shape, found.dtype), op, square=square)
    return found


def _symmetric(x: Any, op: str) -> Tensor:
    """A symmetric matrix, as it is; gradients by it are symmetric."""
    found = _matrices(x, op, square=True)
    return (found + found.mT) * 0.5


def cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    """L with L @ L.T = x, of symmetric positive definite matrices; L.T with `upper`.

    Raises:
        LinAlgError: a matrix that is not positive definite.
    """
    factor: Tensor = apply("cholesky", _symmetric(x, "cholesky"))
    return factor.mT if upper else factor


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along an axis."""
    a, b = as_tensor(x1), as_tensor(x2)
    for t in (a, b):
        if not -t.ndim <= axis < t.ndim or t.shape[axis] != 3:
            raise ShapeError(f"cross takes vectors of 3 along axis {axis}, not the shape {t.shape}")
    (a0, a1, a2), (b0, b1, b2) = ([moveaxis(t, axis, 0)[n] for n in range(3)] for t in (a, b))
    return stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=axis)


def det(x: Any, /) -> Tensor:
    """Determinants of square matrices."""
    return apply("det", _matrices(x, "det", square=True))  # type: ignore[no-any-return]


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices, `offset` above the main one."""
    t = as_tensor(x)
    if t.ndim < 2:
        raise ShapeError(f"diagonal takes matrices (..., m, n), not the shape {t.shape}")
    m, n = t.shape[-2:]
    count = max(0, min(m + min(offset, 0), n - max(offset, 0)))
    begin = offset if offset >= 0 else -offset * n
    flat = t.reshape((*t.shape[:-2], m * n))
    if not count:
        return flat[..., :0]
    return flat[..., begin : begin + (count - 1) * (n + 1) + 1 : n + 1]


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues, the smallest first, and eigenvectors (columns) of symmetric matrices. Gradients
    by eigenvectors exist where no two eigenvalues are equal.
    """
    return EighResult(*apply("eigh", _symmetric(x, "eigh")))


def eigvalsh(x: Any, /) -> Tensor:
    """Eigenvalues of symmetric matrices, the smallest first."""
    return eigh(x).eigenvalues


def inv(x: Any, /) -> Tensor:
    """Inverses of square matrices.

    Raises:
        LinAlgError: a singular matrix.
    """
    return apply("inv", _matrices(x, "inv", square=True))  # type: ignore[no-any-return]


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norms of matrices: "fro", "nuc", 1, -1, 2, -2, inf, -inf."""
    t = _matrices(x, "matrix_norm")
    if ord == "fro":
        return vector_norm(t, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        s = svdvals(t)
        of: Any = {"nuc": total, 2: greatest, -2: least}[ord]
        found = of(s, axis=-1)
        return found.unsqueeze(-1).unsqueeze(-1) if keepdims else found
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f"matrix_norm: ord is 'fro', 'nuc', 1, 2, inf or -, not {ord!r}")
    summed, other = (-2, -1) if abs(ord) == 1 else (-1, -2)
    sums = total(abs(t), axis=summed, keepdims=True)
    made: Tensor = (greatest if ord > 0 else least)(sums, axis=other, keepdims=True)
    return made if keepdims else made.reshape(t.shape[:-2])


def matrix_power(x: Any, n: int, /) -> Tensor:
    """x @ x @ ... @ x; of a negative n that of the inverse."""
    t = _matrices(x, "matrix_power", square=True)
    if not hasattr(n, "__index__"):
        raise ArgumentError(f"matrix_power takes a whole number, not {n!r}")
    n = operator.index(n)
    if n < 0:
        t, n = inv(t), -n
    made = None
    while n:
        if n % 2:
            made = t if made is None else made @ t
        n //= 2
        t = t @ t if n else t
    if made is None:
        return zeros_like(t) + eye(t.shape[-1], dtype=t.dtype, device=t.device)
    return made


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are more than `rtol` of the largest; by default as many times the
    dtype's eps as the longer side.
    """
    t = _matrices(x, "matrix_rank")
    s = svdvals(t.detach())
    limit = _limit(t, rtol) * greatest(s, axis=-1, keepdims=True)
    return total((s > limit).astype("i64"), axis=-1)


def outer(x1: Any, x2: Any, /) -> Tensor:
    """The products of all elements of two vectors."""
    a, b = as_tensor(x1), as_tensor(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer takes two vectors, not the shapes {a.shape} and {b.shape}")
    return a.unsqueeze(1) * b.unsqueeze(0)


def pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    """Pseudoinverses (Moore, Penrose); singular values up to `rtol` of the largest count as 0."""
    t = _matrices(x, "pinv")
    u, s, vh = svd(t, full_matrices=False)
    counts = s > _limit(t, rtol) * greatest(s, axis=-1, keepdims=True)
    inverse = where(counts, 1 / where(counts, s, 1.0), 0.0)
    return vh.mT @ (inverse.unsqueeze(-1) * u.mT)


def _limit(x: Tensor, rtol: Any) -> Any:
    """The share of the largest singular value up to which others count as zero."""
    if rtol is None:
        return max(x.shape[-2:]) * float(np.finfo(x.dtype.numpy).eps)
    return as_tensor(rtol).astype(x.dtype).unsqueeze(-1) if isinstance(rtol, Tensor) else rtol


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Orthogonal columns Q and an upper triangle R with Q @ R = x; "reduced" or "complete"."""
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr: the mode is 'reduced' or 'complete', not {mode!r}")
    return QRResult(*apply("qr", _matrices(x, "qr"), complete=mode == "complete"))


def slogdet(x: Any, /) -> SlogdetResult:
    """The sign and the logarithm of the absolute value of determinants."""
    return SlogdetResult(*apply("slogdet", _matrices(x, "slogdet", square=True)))


def solve(x1: Any, x2: Any, /) -> Tensor:
    """x with x1 @ x = x2: of a vector x2 (of one axis) a vector, else matrices.

    Raises:
        LinAlgError: a singular matrix.
    """
    a, b = _matrices(x1, "solve", square=True), as_tensor(x2)
    wide = promote(a.dtype, b.dtype)
    a, b = a.astype(wide), b.astype(wide)
    if b.ndim == 1:
        return apply("solve", a, b.unsqueeze(-1)).squeeze(-1)  # type: ignore[no-any-return]
    return apply("solve", a, b)  # type: ignore[no-any-return]


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """U, singular values (the largest first) and the transpose of V. Gradients by U and V exist
    where no two singular values are equal.
    """
    return SVDResult(*apply("svd", _matrices(x, "svd"), full=bool(full_matrices)))


def svdvals(x: Any, /) -> Tensor:
    """Singular values, the largest first."""
    return svd(x, full_matrices=False).S


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of diagonals."""
    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """Norms of vectors along axes (None: all): any order, inf and -inf, 0 for how many are not
    zero.
    """
    t = as_tensor(x)
    if not t.dtype.is_float:
        raise DTypeError(f"vector_norm takes floats, not {t.dtype.name}")
    if ord in (math.inf, -math.inf):
        return (greatest if ord > 0 else least)(abs(t), axis=axis, keepdims=keepdims)
    if ord == 0:
        return total((t != 0).astype(t.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return total(abs(t), axis=axis, keepdims=keepdims)
    axes = tuple(axis) if isinstance(axis, list) else axis
    if ord < 0:  # 0 of a vector with a 0, as is its gradient
        none = (t == 0).any(axis=axes, keepdims=True)
        sums = total(abs(t.masked_fill(none, 1)) ** ord, axis=axes, keepdims=keepdims)
        none = none if keepdims else none.reshape(sums.shape)
        return (sums ** (1 / ord)).masked_fill(none, 0)  # type: ignore[no-any-return]
    return apply("norm", t, ord=float(ord), axis=axes, keepdims=keepdims)  # type: ignore[no-any-return]


__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
