"""Methods of PyTorch beside what NumPy computes of drawn arrays, gradients beside differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, GradientError
from cubepy.tensor import linalg

Draw = np.random.Generator


def t(a: Any) -> cb.Tensor:
    return cb.tensor(np.array(a))


def with_nan(rng: Draw, *shape: int) -> np.ndarray:
    x = rng.normal(size=shape)
    x[rng.random(shape) < 0.2] = np.nan
    return x


def lower_median(x: np.ndarray) -> np.ndarray:
    order, there = np.sort(x, axis=1), (x == x).sum(1)
    return order[np.arange(len(x)), np.maximum(there - 1, 0) // 2]


def reduced(rng: Draw, how: str, own: bool) -> tuple[Any, Any]:
    x, src, at = rng.normal(size=(4, 3)), rng.normal(size=(6, 3)), rng.integers(0, 4, (6, 3))
    expected = x.copy()
    join = {"sum": sum, "prod": math.prod, "amax": max, "amin": min, "mean": np.mean}[how]
    for i in range(4):
        for j in range(3):
            some = [*([x[i, j]] if own else []), *src[at[:, j] == i, j]]
            expected[i, j] = join(some) if (at[:, j] == i).any() else x[i, j]
    return t(x).scatter_reduce(0, t(at), t(src), how, include_self=own), expected


def embedded(rng: Draw, k: int) -> tuple[Any, Any]:
    x = rng.normal(size=(2, 3))
    return t(x).diag_embed(k), np.stack([np.diag(row, k) for row in x])


def put(rng: Draw, accumulate: bool) -> tuple[Any, Any]:
    x, at = rng.normal(size=(4, 3, 2)), (rng.permutation(4)[:3], rng.integers(0, 3, 3))
    if accumulate:
        at = rng.integers(0, 4, 5), rng.integers(0, 3, 5)
    values, expected = rng.normal(size=(len(at[0]), 2)), x.copy()
    (np.add.at if accumulate else np.ndarray.__setitem__)(expected, at, values)
    return t(x).index_put(tuple(map(t, at)), t(values), accumulate), expected


def unique_slices(rng: Draw, x: np.ndarray, axis: int) -> tuple[Any, Any]:
    """The values, and which of the three."""
    found = t(x).unique(True, True, True, axis)
    wanted = np.unique(x, axis=axis, return_inverse=True, return_counts=True)
    which = int(rng.integers(3))
    return found[which], wanted[which].reshape(-1) if which == 1 else wanted[which]


CASES: dict[str, Callable[[Draw], tuple[Any, Any]]] = {
    "nanmedian": lambda r: (lambda x: (t(x).nanmedian(1)[0], lower_median(x)))(with_nan(r, 5, 6)),
    "nanquantile": lambda r: (lambda x, q: (t(x).nanquantile(q, 0), np.nanquantile(x, q, 0)))(
        with_nan(r, 9, 4), float(r.random())
    ),
    "nanquantiles": lambda r: (
        lambda x, q: (t(x).nanquantile(t(q), 1, True), np.nanquantile(x, q, 1, keepdims=True))
    )(with_nan(r, 3, 9), r.random(4)),
    "msort": lambda r: (lambda x: (t(x).msort(), np.sort(x, 0)))(r.normal(size=(5, 3))),
    "cummax": lambda r: (lambda x: (t(x).cummax(1)[0], np.maximum.accumulate(x, 1)))(
        with_nan(r, 3, 7)
    ),
    "cummin": lambda r: (lambda x: (t(x).cummin(0)[0], np.minimum.accumulate(x, 0)))(
        r.integers(0, 9, (7, 3))
    ),
    "logcumsumexp": lambda r: (lambda x: (t(x).logcumsumexp(0), np.logaddexp.accumulate(x, 0)))(
        r.normal(size=(6, 2)) * 50
    ),
    "cdist": lambda r: (lambda a, b: (t(a).cdist(t(b)), np.linalg.norm(a[:, None] - b, axis=-1)))(
        r.normal(size=(int(r.integers(1, 40)), 3)), r.normal(size=(int(r.integers(1, 40)), 3))
    ),
    "cdist 3": lambda r: (
        lambda a, b: (t(a).cdist(t(b), 3.0), np.linalg.norm(a[:, None] - b, 3, axis=-1))
    )(r.normal(size=(4, 3)), r.normal(size=(5, 3))),
    "cov": lambda r: (lambda x: (t(x).cov(), np.cov(x)))(r.normal(size=(3, 8))),
    "cov weighted": lambda r: (
        lambda x, f, a, c: (
            t(x).cov(fweights=t(f), aweights=t(a), correction=c),
            np.cov(x, fweights=f, aweights=a, ddof=c),
        )
    )(
        r.normal(size=(int(r.integers(1, 4)), 8)),
        r.integers(1, 5, 8),
        r.random(8),
        int(r.integers(2)),
    ),
    "unique slices": lambda r: unique_slices(r, r.integers(0, 2, (5, 4, 3)), int(r.integers(3))),
    "unique long slices": lambda r: unique_slices(r, r.integers(0, 2, (40, 4)) * 1.5, 0),
    "masked_scatter broadcast": lambda r: (
        lambda x, m, s: (
            t(x).masked_scatter(t(m), t(s)),
            _placed(np.broadcast_to(x, m.shape), m, s),
        )
    )(r.normal(size=4), r.random((3, 4)) < 0.5, r.normal(size=12)),
    "cdist by differences": lambda r: (
        lambda a, b: (
            t(a).cdist(t(b), compute_mode="donot_use_mm_for_euclid_dist"),
            np.linalg.norm(a[:, None] - b, axis=-1),
        )
    )(r.normal(size=(40, 3)), r.normal(size=(30, 3))),
    "corrcoef": lambda r: (lambda x: (t(x).corrcoef(), np.corrcoef(x)))(r.normal(size=(3, 8))),
    "take": lambda r: (lambda x, i: (t(x).take(t(i)), x.reshape(-1)[i]))(
        r.normal(size=(3, 4)), r.integers(-12, 12, (2, 5))
    ),
    "index_put": lambda r: put(r, False),
    "index_put added": lambda r: put(r, True),
    "masked_scatter": lambda r: (
        lambda x, m, s: (t(x).masked_scatter(t(m), t(s)), _placed(x, m, s))
    )(r.normal(size=(3, 4)), r.random((3, 4)) < 0.5, r.normal(size=12)),
    "unique": lambda r: (lambda x: (t(x).unique(), np.unique(x)))(r.integers(0, 9, (4, 5))),
    "bincount": lambda r: (lambda x: (t(x).bincount(minlength=12), np.bincount(x, minlength=12)))(
        r.integers(0, 9, 20)
    ),
    "isin": lambda r: (lambda x, y: (t(x).isin(t(y)), np.isin(x, y)))(
        r.integers(0, 9, (3, 4)), r.integers(0, 9, 3)
    ),
    "bucketize": lambda r: (lambda x, b: (t(x).bucketize(t(b)), np.searchsorted(b, x)))(
        r.integers(0, 9, (3, 4)).astype(np.float64), np.array([1.0, 3.0, 7.0])
    ),
    "diag_embed": lambda r: embedded(r, int(r.integers(-3, 4))),
    "kron": lambda r: (lambda a, b: (t(a).kron(t(b)), np.kron(a, b)))(
        r.normal(size=(2, 3)), r.normal(size=(3, 2))
    ),
    "fmax": lambda r: (lambda a, b: (t(a).fmax(t(b)), np.fmax(a, b)))(
        with_nan(r, 3, 4), with_nan(r, 3, 4)
    ),
    "fmin": lambda r: (lambda a, b: (t(a).fmin(t(b)), np.fmin(a, b)))(
        with_nan(r, 3, 4), with_nan(r, 3, 4)
    ),
    "heaviside": lambda r: (lambda a: (t(a).heaviside(0.5), np.heaviside(a, 0.5)))(
        r.integers(-1, 2, 9).astype(np.float64)
    ),
    "sinc": lambda r: (lambda a: (t(a).sinc(), np.sinc(a)))(r.integers(-2, 3, 9) / 2),
    "var_mean": lambda r: (lambda a: (t(a).var_mean(1)[0], a.var(1, ddof=1)))(
        r.normal(size=(3, 4))
    ),
    "lstsq": lambda r: (lambda a, b: (linalg.lstsq(t(a), t(b)).solution, np.linalg.lstsq(a, b)[0]))(
        r.normal(size=(6, 3)), r.normal(size=(6, 2))
    ),
    "multi_dot": lambda r: (lambda *m: (linalg.multi_dot(list(map(t, m))), np.linalg.multi_dot(m)))(
        r.normal(size=(2, 5)), r.normal(size=(5, 3)), r.normal(size=(3, 4)), r.normal(size=4)
    ),
    "cond": lambda r: (lambda a: (linalg.cond(t(a)), np.linalg.cond(a)))(r.normal(size=(3, 3))),
    "norm": lambda r: (lambda a: (linalg.norm(t(a)), np.linalg.norm(a)))(r.normal(size=(3, 3))),
    "solve_triangular": lambda r: (
        lambda a, b: (
            linalg.solve_triangular(t(a), t(b), upper=True),
            np.linalg.solve(np.triu(a), b),
        )
    )(r.normal(size=(3, 3)) + 3 * np.eye(3), r.normal(size=(3, 2))),
    "vander": lambda r: (lambda a: (linalg.vander(t(a), N=3), np.vander(a, 3, increasing=True)))(
        r.normal(size=4)
    ),
    **{
        f"scatter_reduce {how} {own}": lambda r, how=how, own=own: reduced(r, how, own)
        for how in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    },
}


def _placed(x: np.ndarray, mask: np.ndarray, source: np.ndarray) -> np.ndarray:
    made = x.copy()
    made[mask] = source[: mask.sum()]
    return made


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numpy(name: str, seed: int) -> None:
    found, expected = CASES[name](np.random.default_rng(seed))
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)


SMOOTH: dict[str, Callable[[Any], Any]] = {
    "nanmedian": lambda x: x.nanmedian(1)[0],
    "nanquantile": lambda x: x.nanquantile(0.4, 0),
    "cummax": lambda x: x.cummax(0)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "cdist": lambda x: x.cdist(x * 2 + 1),
    "cdist of many": lambda x: x.expand(9, 4, 4).reshape(36, 4).cdist(x * 2 + 1),
    "corrcoef": lambda x: x.corrcoef(),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "index_put": lambda x: x.index_put((t([0, 2]), t([1, 1])), x[3, :2] * 3),
    "masked_scatter": lambda x: x.masked_scatter(t(np.eye(4) > 0), x[0] * 2),
    "scatter_reduce": lambda x: x.scatter_reduce(0, t([[0, 1, 1, 0]]), x[1:2] * 2, "prod"),
    "diag_embed": lambda x: x.diag_embed(1),
    "kron": lambda x: x.kron(x),
    "sinc": lambda x: x.sinc(),
    "std_mean": lambda x: x.std_mean(1)[0],
    "lstsq": lambda x: linalg.lstsq(x, x[:, :2] * 2 + 1).solution,
    "solve_triangular": lambda x: linalg.solve_triangular(x + 3, x, upper=False),
    "in place": lambda x: (
        (x * 1).exp_().masked_fill_(t(np.eye(4) > 0), 2.0).index_add_(0, t([1, 1]), x[:2])
    ),
    "roots": lambda x: (x * x + 1) ** 0.5 + (x * x + 1) ** -0.5 + (x * x + 1) ** -1.0,
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_those_of_differences(name: str) -> None:
    rng = np.random.default_rng(11)
    x, direction = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    f = SMOOTH[name]
    weights = rng.normal(size=f(t(x)).shape)
    leaf = cb.tensor(x, requires_grad=True)
    (f(leaf) * t(weights)).sum().backward()
    step = 1e-6
    ends = [(f(t(x + s * direction)).numpy() * weights).sum() for s in (step, -step)]
    np.testing.assert_allclose(
        (leaf.grad.numpy() * direction).sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-5
    )


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("order", [-math.inf, -2.5, -1, 0, 0.5, 0.9, 1, 1.5, 2, 3.5, math.inf])
def test_norms_of_vectors_with_zeros_have_finite_gradients(order: float, keepdim: bool) -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(6, 4)) * (rng.random((6, 4)) < 0.6)
    x[0], x[1] = 0, rng.random(4) + 0.5
    leaf = cb.tensor(x, requires_grad=True)
    y = linalg.vector_norm(leaf, axis=1, keepdims=keepdim, ord=order)
    with np.errstate(divide="ignore"):
        expected = np.linalg.norm(x, order, 1, keepdim)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12)
    if y.requires_grad:
        y.sum().backward()
        found = leaf.grad.numpy()
        assert np.isfinite(found).all()
        step = 1e-6
        ends = [np.linalg.norm(x[1] + s * np.eye(4), order, 1) for s in (step, -step)]
        np.testing.assert_allclose(found[1], (ends[0] - ends[1]) / (2 * step), 1e-5, 1e-8)


def test_draws_of_a_named_generator() -> None:
    weights = t([[1.0, 0.0, 3.0], [0.0, 2.0, 2.0]])
    drawn = cb.Generator(1).multinomial(weights, 4000, replacement=True).numpy()
    shares = np.stack([np.bincount(row, minlength=3) for row in drawn]) / 4000
    np.testing.assert_allclose(shares, [[0.25, 0, 0.75], [0, 0.5, 0.5]], atol=0.04)
    for seed in range(20):
        pair = weights.multinomial(2, generator=cb.Generator(seed)).numpy()
        assert sorted(pair[0]) == [0, 2] and sorted(pair[1]) == [1, 2]
    first = np.array([t([1.0, 3.0]).multinomial(1, generator=g).item() for g in _generators(400)])
    assert abs(first.mean() - 0.75) < 0.08
    shares = t(np.linspace(0, 1, 5)).expand(2000, 5).bernoulli(generator=cb.Generator(3)).mean(0)
    np.testing.assert_allclose(shares.numpy(), np.linspace(0, 1, 5), atol=0.05)
    x = cb.tensor(np.zeros((50, 50)))
    handle = x.normal_(1.0, 2.0, generator=cb.Generator(4))
    assert handle is x and abs(x.numpy().mean() - 1) < 0.2 and abs(x.numpy().std() - 2) < 0.2
    assert abs(x.exponential_(2.0, generator=cb.Generator(5)).numpy().mean() - 0.5) < 0.05
    low = x.uniform_(-1, 1, generator=cb.Generator(6)).numpy()
    assert low.min() < -0.9 and low.max() > 0.9 and abs(low.mean()) < 0.1
    with pytest.raises(ArgumentError, match="nobody named"):
        weights.multinomial(1)


def _generators(count: int) -> list[cb.Generator]:
    return [cb.Generator(seed) for seed in range(count)]


def test_gradients_of_tensors_by_tensors() -> None:
    x = cb.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    (by_y,) = cb.grad_of((y * y).sum(), y, retain_graph=True)
    assert by_y.tolist() == [6, 12] and x.grad is None
    other = cb.tensor([1.0], requires_grad=True)
    with pytest.raises(GradientError, match="input 1 of shape"):
        cb.grad_of((x * x).sum(), [x, other])
    assert cb.grad_of((x * x).sum(), [x, other], allow_unused=True)[1] is None
    (first,) = cb.grad_of((x**3).sum(), x, create_graph=True)
    penalty = (first * first).sum()  # 9 x**4
    penalty.backward()
    assert x.grad.tolist() == [36, 288]
    (weighted,) = cb.grad_of(x * x, x, cb.tensor([1.0, 0.5]))
    assert weighted.tolist() == [2, 2]
