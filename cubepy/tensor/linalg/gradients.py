"""Gradients of decompositions, after Giles, "Collected matrix derivative results for forward and
reverse mode algorithmic differentiation" (2008), Townsend, "Differentiating the singular value
decomposition" (2016), and for qr Liao et al., "Differentiable programming tensor networks" (2019).
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import GradientError
from cubepy.tensor.array import apply
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import mode
from cubepy.tensor.namespace.creation import eye, zeros_like


def lower_of(full: Any) -> Any:
    """The gradient by a triangle that stands for a symmetric matrix, of that by the matrix."""
    both = full + full.mT
    return both.tril(-1) + _diagonal(both) * 0.5


def _diagonal(x: Any) -> Any:
    """The diagonal of matrices, zeros elsewhere."""
    return x.tril() - x.tril(-1)


def _eye(x: Any) -> Any:
    return eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _behind(a: Any, b: Any) -> Any:
    """a @ inv(b)"""
    return apply("solve", b.mT, a.mT).mT


def _results(seen: Backward, op: str) -> list[Any]:
    """The results, with their own past where gradients have gradients."""
    found: list[Any] = list(seen.results)
    if mode.enabled and any(t.value.call is None for t in found):
        found = apply(op, *seen.inputs, **seen.attrs)
    return found


def _differences(values: Any) -> Any:
    """1 / (v_j - v_i), with zeros on the diagonal."""
    one = eye(values.shape[-1], dtype=values.dtype, device=values.device)
    return (1 - one) / (values.unsqueeze(-2) - values.unsqueeze(-1) + one)


@vjp("cholesky")
def _cholesky(seen: Backward, grad: Any) -> Any:
    """inv(L).T @ P @ inv(L), of which P is the lower triangle of L.T @ G with half its diagonal."""
    factor = seen.result
    inner = factor.mT @ grad
    inner = inner.tril() - _diagonal(inner) * 0.5
    return lower_of(_behind(apply("solve", factor.mT, inner), factor))


@vjp("inv")
def _inv(seen: Backward, grad: Any) -> Any:
    y = seen.result
    return -(y.mT @ grad @ y.mT)


@vjp("matrix_exp")
def _matrix_exp(seen: Backward, grad: Any) -> Any:
    """exp of [[x.T, grad], [0, x.T]] has it above its diagonal (Mathias, 1996); grad is scaled, so
    that it adds no squarings.
    """
    x = seen.inputs[0].mT
    if not x.size:
        return zeros_like(x)
    most = grad.detach().abs().amax((-2, -1), True)
    scale = most.masked_fill(most == 0, 1)
    above = apply("concat", x, grad / scale, axis=-1)
    below = apply("concat", zeros_like(x), x, axis=-1)
    n = x.shape[-1]
    made = apply("matrix_exp", apply("concat", above, below, axis=-2))
    return made[..., :n, n:] * scale


@vjp("det")
def _det(seen: Backward, grad: Any) -> Any:
    scale = (grad * seen.result).unsqueeze(-1).unsqueeze(-1)
    return scale * apply("inv", seen.inputs[0]).mT


@vjp("slogdet")
def _slogdet(seen: Backward, by_sign: Any, by_logarithm: Any) -> Any:
    """The sign does not change with small changes."""
    x = seen.inputs[0]
    if by_logarithm is None:
        return zeros_like(x)
    return by_logarithm.unsqueeze(-1).unsqueeze(-1) * apply("inv", x).mT


@vjp("solve")
def _solve(seen: Backward, grad: Any) -> Any:
    by_b = apply("solve", seen.inputs[0].mT, grad)
    return -(by_b @ seen.result.mT) if seen.needs[0] else None, by_b


@vjp("eigh")
def _eigh(seen: Backward, by_values: Any, by_vectors: Any) -> Any:
    values, vectors = _results(seen, "eigh")
    inner = zeros_like(vectors)
    if by_values is not None:
        inner = inner + by_values.unsqueeze(-1) * _eye(vectors)
    if by_vectors is not None:
        inner = inner + _differences(values) * (vectors.mT @ by_vectors)
    return lower_of(vectors @ inner @ vectors.mT)


@vjp("qr")
def _qr(seen: Backward, by_q: Any, by_r: Any) -> Any:
    q, r = _results(seen, "qr")
    m, n = q.shape[-2], r.shape[-1]
    if seen.attrs["complete"] and m > n:
        raise GradientError(
            f"qr of {m} x {n} matrices in the mode 'complete' has no gradient",
            hint="the mode 'reduced' has one",
        )
    by_q = zeros_like(q) if by_q is None else by_q
    by_r = zeros_like(r) if by_r is None else by_r
    if m >= n:
        return _through_qr(q, r, by_q, by_r)
    # the first m columns make Q, the others are Q.T @ x
    rest = seen.inputs[0][..., m:]
    first = _through_qr(q, r[..., :m], by_q + rest @ by_r[..., m:].mT, by_r[..., :m])
    return apply("concat", first, q @ by_r[..., m:], axis=-1)


def _through_qr(q: Any, r: Any, by_q: Any, by_r: Any) -> Any:
    inner = r @ by_r.mT - by_q.mT @ q
    symmetric = inner.tril() + inner.tril(-1).mT
    return _behind(by_q + q @ symmetric, r.mT)


@vjp("svd")
def _svd(seen: Backward, by_u: Any, by_s: Any, by_v: Any) -> Any:
    u, s, v = _results(seen, "svd")
    m, n, k = u.shape[-2], v.shape[-1], s.shape[-1]
    if seen.attrs["full"] and m != n and not (by_u is None and by_v is None):
        raise GradientError(
            f"the vectors of svd of {m} x {n} matrices with full_matrices=True have no gradient",
            hint="full_matrices=False has one",
        )
    u, v = u[..., :k], v[..., :k, :].mT
    inner = zeros_like(u.mT @ u)
    if by_s is not None:
        inner = inner + by_s.unsqueeze(-1) * _eye(inner)
    between = None if by_u is None and by_v is None else _differences(s * s)
    columns, rows = s.unsqueeze(-2), s.unsqueeze(-1)
    outside = None
    if by_u is not None:
        by_u = by_u[..., :k]
        skew = u.mT @ by_u
        inner = inner + between * (skew - skew.mT) * columns
        if m > k:
            outside = ((by_u - u @ skew) / columns) @ v.mT
    if by_v is not None:
        by_v = by_v[..., :k, :].mT
        skew = v.mT @ by_v
        inner = inner + rows * (between * (skew - skew.mT))
        if n > k:
            beside = u @ ((by_v - v @ skew) / columns).mT
            outside = beside if outside is None else outside + beside
    result = u @ inner @ v.mT
    return result if outside is None else result + outside
