"""Decompositions of matrices as ops, of the last two axes; batches stand before them.

They run on the host in NumPy's LAPACK, wherever the tensor is: small matrices are what they are
for. So no program has them among its launches; it runs op by op then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, LinAlgError, ShapeError
from cubepy.runtime import recording
from cubepy.runtime.memory.device_array import DeviceArray, host, upload
from cubepy.tensor.ops.op import Run, Spec, broadcast, define


def on_host(function: Callable[..., Any]) -> Run:
    """What computes an op by a function of NumPy, of arrays and attributes."""

    def run_there(dtype: np.dtype, *arrays: Any, **attrs: Any) -> Any:
        recording.spoil()
        try:
            made = function(*map(host, arrays), **attrs)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(
                f"{function.__name__.strip('_')} of a matrix: {error}",
                hint="add a little to the diagonal, as in x + 1e-6 * cb.tensor.eye(n)",
            ) from None
        like = arrays[0]
        if isinstance(made, (tuple, list)):
            return [_back(one, like) for one in made]
        return _back(made, like)

    return run_there


def _back(made: Any, like: Any) -> Any:
    """A result where the matrix is."""
    array = np.ascontiguousarray(made) if np.ndim(made) else np.asarray(made)
    return upload(array, like.device) if isinstance(like, DeviceArray) else array


def matrices(x: Spec, op: str, *, square: bool = False) -> tuple[int, int]:
    """The rows and columns of matrices that LAPACK takes.

    Raises:
        ShapeError: no matrices, or none that are square.
        DTypeError: neither f32 nor f64.
    """
    if len(x.shape) < 2 or square and x.shape[-1] != x.shape[-2]:
        kind = "square matrices (..., n, n)" if square else "matrices (..., m, n)"
        raise ShapeError(f"{op} takes {kind}, not the shape {x.shape}")
    if not x.dtype.is_float or x.dtype.storage_only or x.dtype.numpy.itemsize < 4:
        raise DTypeError(f"{op} takes f32 and f64, not {x.dtype.name}", hint='x.astype("f32")')
    return x.shape[-2], x.shape[-1]


def _cholesky(x: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(x)


def _inv(x: np.ndarray) -> np.ndarray:
    return np.linalg.inv(x)


PADE = [
    float(math.factorial(26 - k) // (math.factorial(k) * math.factorial(13 - k))) for k in range(14)
]
"""The numerator of the Pade approximant of exp of degree 13; the denominator has other signs."""
PADE_LIMIT = 5.371920351148152
"""Up to this 1-norm of a matrix it is exact to a rounding of f64."""


def _matrix_exp(x: np.ndarray) -> np.ndarray:
    """Scaled by powers of two, a Pade approximant, squared as often: Higham, "The scaling and
    squaring method for the matrix exponential revisited" (2005). In f64 for f32, too.
    """
    if not x.size:
        return x
    a = x.reshape(-1, *x.shape[-2:]).astype(np.float64)
    known = np.isfinite(a).all((-2, -1))
    a[~known] = 0
    norms = np.abs(a / PADE_LIMIT).sum(-2).max(-1)
    times = np.ceil(np.log2(np.clip(norms, 1, np.finfo(np.float64).max))).astype(int)
    a = np.ldexp(a, -times[:, None, None])
    one, a2 = np.eye(a.shape[-1]), a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2

    def half(first: int) -> np.ndarray:
        """The terms of even or odd powers, without the first power of the odd ones."""
        b = PADE[first::2]
        return a6 @ (b[6] * a6 + b[5] * a4 + b[4] * a2) + (
            b[3] * a6 + b[2] * a4 + b[1] * a2 + b[0] * one
        )

    even, odd = half(0), a @ half(1)
    made = np.linalg.solve(even - odd, even + odd)
    with np.errstate(over="ignore", invalid="ignore"):
        for n in range(times.max()):
            some = times > n
            made[some] = made[some] @ made[some]
        made[~known] = math.nan
        return made.astype(x.dtype).reshape(x.shape)


_SQUARES = {"cholesky": _cholesky, "inv": _inv, "matrix_exp": _matrix_exp}


@define("opaque", {name: on_host(function) for name, function in _SQUARES.items()})
def _square_of_square(x: Spec) -> Spec:
    """cholesky: L of L @ L.T, of the lower triangle of x; inv: the inverse; matrix_exp: the sum of
    x**k / k!.
    """
    matrices(x, "cholesky, inv and matrix_exp", square=True)
    return x


def _det(x: np.ndarray) -> np.ndarray:
    return np.linalg.det(x)


@define("opaque", {"det": on_host(_det)})
def _number_of_square(x: Spec) -> Spec:
    matrices(x, "det", square=True)
    return Spec(x.shape[:-2], x.dtype)


def _slogdet(x: np.ndarray) -> Sequence[np.ndarray]:
    sign, log = np.linalg.slogdet(x)
    return sign, log.astype(x.dtype)


@define("opaque", {"slogdet": on_host(_slogdet)})
def _sign_and_logarithm(x: Spec) -> list[Spec]:
    """The sign of the determinant, and the logarithm of its absolute value."""
    matrices(x, "slogdet", square=True)
    return [Spec(x.shape[:-2], x.dtype)] * 2


def _solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(a, b)


@define("opaque", {"solve": on_host(_solve)})
def _solution(a: Spec, b: Spec) -> Spec:
    """x of a @ x = b, of matrices."""
    n, _ = matrices(a, "solve", square=True)
    rows, columns = matrices(b, "solve")
    if rows != n or a.dtype is not b.dtype:
        raise ShapeError(
            f"solve of {a.dtype.name}{a.shape} and {b.dtype.name}{b.shape}: b has {n} rows and the "
            "dtype of a"
        )
    batch = broadcast(Spec(a.shape[:-2], a.dtype), Spec(b.shape[:-2], b.dtype))
    return Spec((*batch, n, columns), a.dtype)


def _eigh(x: np.ndarray) -> Sequence[np.ndarray]:
    return np.linalg.eigh(x)


@define("opaque", {"eigh": on_host(_eigh)}, keeps=True)
def _eigenvalues_and_vectors(x: Spec) -> list[Spec]:
    """Of symmetric matrices, of which the lower triangle is read."""
    matrices(x, "eigh", square=True)
    return [Spec(x.shape[:-1], x.dtype), x]


def _qr(x: np.ndarray, complete: bool) -> Sequence[np.ndarray]:
    return np.linalg.qr(x, "complete" if complete else "reduced")


@define("opaque", {"qr": on_host(_qr)}, keeps=True)
def _factors(x: Spec, complete: bool) -> list[Spec]:
    """Q and R."""
    m, n = matrices(x, "qr")
    k = m if complete else min(m, n)
    return [Spec((*x.shape[:-2], m, k), x.dtype), Spec((*x.shape[:-2], k, n), x.dtype)]


def _svd(x: np.ndarray, full: bool) -> Sequence[np.ndarray]:
    return np.linalg.svd(x, full_matrices=full)


@define("opaque", {"svd": on_host(_svd)}, keeps=True)
def _singular(x: Spec, full: bool) -> list[Spec]:
    """U, singular values, and the transpose of V."""
    m, n = matrices(x, "svd")
    k, batch = min(m, n), x.shape[:-2]
    shapes = ((m, m if full else k), (k,), (n if full else k, n))
    return [Spec((*batch, *shape), x.dtype) for shape in shapes]
