"""Operators of linear algebra, and products that few modules ask for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.exported.promotion import promoted, result_dtype
from cubepy.models.exported.records import target
from cubepy.models.exported.targets.products import addmm
from cubepy.models.exported.targets.reductions import norm, summable
from cubepy.tensor import Tensor, linalg


@target("det linalg_det")
def det(x: Tensor) -> Tensor:
    return linalg.det(x)


@target("logdet")
def logdet(x: Tensor) -> Tensor:
    sign, size = linalg.slogdet(x)
    return T.where(sign < 0, float("nan"), size)


@target("slogdet linalg_slogdet")
def slogdet(x: Tensor) -> list[Tensor]:
    return list(linalg.slogdet(x))


@target("inverse linalg_inv")
def inverse(x: Tensor) -> Tensor:
    return linalg.inv(x)


@target("linalg_solve")
def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Tensor:
    if not left:
        return solve(a.mT, b.mT).mT
    if b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]):
        return linalg.solve(a, b.unsqueeze(-1)).squeeze(-1)
    return linalg.solve(a, b)


@target("cholesky linalg_cholesky")
def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    return linalg.cholesky(x, upper=upper)


target("linalg_cholesky")(lambda x, *, upper=False: linalg.cholesky(x, upper=upper))


@target("linalg_qr")
def qr(x: Tensor, mode: str = "reduced") -> list[Tensor]:
    if mode == "r":
        return [T.zeros((0,), dtype=x.dtype), linalg.qr(x).R]
    return list(linalg.qr(x, mode=mode))


@target("linalg_svdvals")
def svdvals(x: Tensor, *, driver: str | None = None) -> Tensor:
    return linalg.svdvals(x)


@target("linalg_eigvalsh")
def eigvalsh(x: Tensor, UPLO: str = "L") -> Tensor:
    """Of the lower or the upper triangle; the other one is not read."""
    lower = x if UPLO == "L" else x.mT
    return linalg.eigvalsh(lower.tril() + lower.tril(-1).mT)


target("matrix_exp linalg_matrix_exp")(linalg.matrix_exp)


@target("matrix_power linalg_matrix_power")
def matrix_power(x: Tensor, n: int) -> Tensor:
    return linalg.matrix_power(x, n)


@target("linalg_cross")
def cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    return linalg.cross(*T.broadcast_arrays(*promoted(a, b)), axis=dim)


@target("cross")
def cross_of_three(a: Tensor, b: Tensor, dim: int | None = None) -> Tensor:
    """Without an axis the first one of three."""
    return cross(a, b, dim=a.shape.index(3) if dim is None else dim)


@target("linalg_norm.default")
def linalg_norm(
    x: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    if ord is not None and (x.ndim if dim is None else np.size(dim)) == 2:
        return matrix_norm(x, ord, dim or (-2, -1), keepdim, dtype=dtype)
    return norm(x, ord, dim, keepdim, dtype=dtype)


@target("linalg_matrix_norm.default linalg_matrix_norm.str_ord linalg_norm.ord_str")
def matrix_norm(
    x: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    x = x if dtype is None else x.astype(dtype)
    axes = tuple(d % x.ndim for d in ((-2, -1) if dim is None else dim))
    found = linalg.matrix_norm(x.movedim(axes, (-2, -1)), ord=ord)
    if not keepdim:
        return found
    for axis in sorted(axes):
        found = found.unsqueeze(axis)
    return found


@target("trace")
def trace(x: Tensor) -> Tensor:
    return linalg.trace(summable(x, None))


@target("vdot")
def vdot(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@target("linalg_vecdot")
def vecdot(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    return (a * b).sum(dim)


@target("inner")
def inner(a: Tensor, b: Tensor) -> Tensor:
    if not a.ndim or not b.ndim:
        return a * b
    return T.tensordot(a, b, axes=([-1], [-1]))


@target("chain_matmul linalg_multi_dot")
def multi_dot(matrices: Sequence[Tensor]) -> Tensor:
    """In the order that multiplies least (the textbook's table of chains)."""
    sizes = [1 if matrices[0].ndim == 1 else matrices[0].shape[0]]
    sizes += [m.shape[0] if m is matrices[-1] and m.ndim == 1 else m.shape[-1] for m in matrices]
    sizes[-1] = 1 if matrices[-1].ndim == 1 else sizes[-1]
    full = [m.unsqueeze(0 if k == 0 else 1) if m.ndim == 1 else m for k, m in enumerate(matrices)]
    best: dict[tuple[int, int], tuple[int, int]] = {(k, k): (0, k) for k in range(len(full))}
    for width, low in itertools.product(range(1, len(full)), range(len(full))):
        high = low + width
        if high < len(full):
            best[low, high] = min(
                (
                    best[low, k][0]
                    + best[k + 1, high][0]
                    + sizes[low] * sizes[k + 1] * sizes[high + 1],
                    k,
                )
                for k in range(low, high)
            )

    def multiplied(low: int, high: int) -> Tensor:
        if low == high:
            return full[low]
        k = best[low, high][1]
        return multiplied(low, k) @ multiplied(k + 1, high)

    found = multiplied(0, len(full) - 1)
    shape = [n for n, m in ((-2, matrices[0]), (-1, matrices[-1])) if m.ndim == 2]
    return found.reshape(tuple(found.shape[n] for n in shape))


@target("addr")
def addr(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return addmm(x, a.unsqueeze(1), b.unsqueeze(0), beta=beta, alpha=alpha)


@target("addbmm")
def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    total = (a @ b).sum(0)
    total = total if alpha == 1 else total * alpha
    return total if beta == 0 else total + (x if beta == 1 else x * beta)


@target("kron")
def kron(a: Tensor, b: Tensor) -> Tensor:
    rank = max(a.ndim, b.ndim)
    a = a.reshape((*(1,) * (rank - a.ndim), *a.shape))
    b = b.reshape((*(1,) * (rank - b.ndim), *b.shape))
    a, b = promoted(a, b)
    shape = tuple(n * m for n, m in zip(a.shape, b.shape, strict=True))
    for k in range(rank):
        a, b = a.unsqueeze(2 * k + 1), b.unsqueeze(2 * k)
    return (a * b).reshape(shape)


@target("block_diag")
def block_diag(matrices: Sequence[Tensor]) -> Tensor:
    dtype = result_dtype(*matrices)
    blocks = [m.reshape((1,) * (2 - m.ndim) + m.shape).astype(dtype) for m in matrices]
    width, rows, left = sum(b.shape[1] for b in blocks), [], 0
    for block in blocks:
        n, wide = block.shape
        right = width - left - wide
        zeros = [T.zeros((n, k), dtype=dtype) for k in (left, right)]
        rows.append(T.concat([zeros[0], block, zeros[1]], axis=1))
        left += wide
    return T.concat(rows, axis=0)


@target("cartesian_prod")
def cartesian_prod(tensors: Sequence[Tensor]) -> Tensor:
    if len(tensors) == 1:
        return tensors[0]
    grids = T.meshgrid(*tensors, indexing="ij")
    return T.stack([g.reshape(-1) for g in grids], axis=1)


@target("vander")
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    x = summable(x, None)
    count = x.shape[-1] if N is None else N
    powers = T.arange(count, dtype=x.dtype)
    found = x.unsqueeze(-1) ** powers
    return found if increasing else found.flip(-1)


target("linalg_vander")(lambda x, *, N=None: vander(x, N, True))
