"""`cubepy.tensor.linalg`: decompositions beside NumPy's, gradients, programs, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, DTypeError, GradientError, LinAlgError, ShapeError
from cubepy.tensor import Tensor, linalg
from cubepy.testing import gradcheck, gradgradcheck

RNG = np.random.default_rng(6)
LIMITS = {"f32": 2e-4, "f64": 1e-10}


def some(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def definite(*shape: int) -> np.ndarray:
    x = some(*shape, shape[-1])
    return x @ x.swapaxes(-1, -2) + np.eye(shape[-1])


N = np.linalg
CASES: list[tuple[str, Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]] = [
    ("cholesky", linalg.cholesky, N.cholesky, (definite(2, 4),)),
    ("upper", lambda x: linalg.cholesky(x, upper=True), lambda x: N.cholesky(x).T, (definite(4),)),
    ("cross", linalg.cross, np.cross, (some(4, 3), some(4, 3))),
    ("cross_0", lambda a, b: linalg.cross(a, b, axis=-2), lambda a, b: np.cross(a, b, axis=-2),
     (some(2, 3, 4), some(3, 4))),
    ("det", linalg.det, N.det, (some(3, 2, 2),)),
    ("diagonal", lambda x: linalg.diagonal(x, offset=1), lambda x: x.diagonal(1, -2, -1),
     (some(2, 3, 5),)),
    ("diagonal_below", lambda x: linalg.diagonal(x, offset=-2), lambda x: x.diagonal(-2), (some(3, 5),)),
    ("diagonal_outside", lambda x: linalg.diagonal(x, offset=9), lambda x: x.diagonal(9), (some(3, 5),)),
    ("eigvalsh", linalg.eigvalsh, N.eigvalsh, (definite(2, 3),)),
    ("inv", linalg.inv, N.inv, (definite(2, 3),)),
    *[(f"matrix_norm_{o}", lambda x, o=o: linalg.matrix_norm(x, ord=o, keepdims=o == 1),
       lambda x, o=o: N.norm(x, o, (-2, -1), keepdims=o == 1), (some(2, 3, 4),))
      for o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)],
    *[(f"matrix_power_{n}", lambda x, n=n: linalg.matrix_power(x, n),
       lambda x, n=n: N.matrix_power(x, n), (some(2, 3, 3),)) for n in (0, 1, 5, -2)],
    ("matrix_rank", linalg.matrix_rank, N.matrix_rank, (np.stack([some(4, 1) @ some(1, 4), some(4, 4)]),)),
    ("matrix_rank_rtol", lambda x: linalg.matrix_rank(x, rtol=0.5), lambda x: N.matrix_rank(x, rtol=0.5),
     (np.diag([4.0, 3.0, 1.0]),)),
    ("outer", linalg.outer, np.outer, (some(3), some(4))),
    ("pinv", linalg.pinv, N.pinv, (some(2, 4, 3),)),
    ("solve", linalg.solve, N.solve, (definite(2, 3), some(3, 2))),
    ("solve_vector", linalg.solve, N.solve, (definite(3), some(3))),
    ("svdvals", linalg.svdvals, N.svdvals, (some(2, 4, 3),)),
    ("trace", lambda x: linalg.trace(x, offset=1), lambda x: np.trace(x, 1, -2, -1), (some(2, 3, 3),)),
    *[(f"vector_norm_{o}", lambda x, o=o: linalg.vector_norm(x, axis=-1, ord=o),
       lambda x, o=o: N.norm(x, o, -1), (some(2, 5),)) for o in (0, 1, 2, 3.5, -1, np.inf, -np.inf)],
]  # fmt: skip


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_results_are_those_of_numpy(case: Any, dtype: str) -> None:
    _, ours, theirs, given = case
    want = theirs(*given)
    tensors = [cb.tensor(x, dtype) for x in given]
    program = cb.jit(ours)
    for found in (ours(*tensors), program(*tensors), program(*tensors), program(*tensors)):
        assert found.shape == want.shape
        assert not found.dtype.is_float or found.dtype is tensors[0].dtype
        np.testing.assert_allclose(found.numpy(), want, LIMITS[dtype], LIMITS[dtype])


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (2, 3, 5)])
def test_factors_make_the_matrix_again(shape: tuple[int, ...]) -> None:
    x = cb.tensor(some(*shape))
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(x, mode=mode)
        np.testing.assert_allclose((q @ r).numpy(), x.numpy(), atol=1e-12)
        np.testing.assert_array_equal(r.tril(-1).numpy(), np.zeros(r.shape))
    for full in (True, False):
        u, s, vh = linalg.svd(x, full_matrices=full)
        k = s.shape[-1]
        np.testing.assert_allclose(
            ((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :]).numpy(), x.numpy(), atol=1e-12
        )
    sign, log = linalg.slogdet(cb.tensor(definite(2, 3)))
    assert sign.tolist() == [1.0, 1.0] and log.shape == (2,)
    values, vectors = linalg.eigh(x := cb.tensor(definite(4)))
    np.testing.assert_allclose((x @ vectors).numpy(), (vectors * values).numpy(), atol=1e-10)


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "cholesky": (lambda x: linalg.cholesky(x @ x.mT + cb.tensor.eye(3, dtype="f64")), (3, 3)),
    "eigh": (lambda x: linalg.eigh(x @ x.mT), (3, 3)),
    "pinv": (linalg.pinv, (3, 2)),
    "nuc": (lambda x: linalg.matrix_norm(x, ord="nuc"), (3, 2)),
    "matrix_power": (lambda x: linalg.matrix_power(x, -2), (2, 3, 3)),
    "matrix_exp": (linalg.matrix_exp, (2, 3, 3)),
    "matrix_exp squared": (lambda x: linalg.matrix_exp(x * 3) * 1e-3, (3, 3)),
    "diagonal": (lambda x: linalg.diagonal(x, offset=-1), (3, 4)),
    "svdvals": (linalg.svdvals, (3, 2)),
    "slogdet": (lambda x: linalg.slogdet(x)[1], (2, 2, 2)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    function, shape = GRADIENTS[name]
    x = cb.tensor(some(*shape) + 2 * np.eye(*shape[-2:]), requires_grad=True)
    assert gradcheck(function, x, rtol=1e-5, atol=1e-6)
    assert gradgradcheck(function, x, rtol=1e-4, atol=1e-4)


def exponential(kind: str, rng: np.random.Generator, size: float) -> tuple[np.ndarray, np.ndarray]:
    """A matrix of a 1-norm of about a size, and its exponential in closed form."""
    if kind == "diagonal":
        d = rng.uniform(-size, size, 5)
        return np.diag(d), np.diag(np.exp(d))
    if kind == "rotation":
        turn = np.array([[np.cos(size), -np.sin(size)], [np.sin(size), np.cos(size)]])
        return np.array([[0, -size], [size, 0]]), turn
    if kind == "nilpotent":
        x = np.triu(rng.normal(size=(4, 4)), 1) * size / 4
        x2 = x @ x
        return x, np.eye(4) + x + x2 / 2 + x2 @ x / 6
    if kind == "one block":  # equal eigenvalues: nothing that is diagonal is like it
        a = rng.uniform(-1, 1) * min(size, 30)
        return np.array([[a, size], [0, a]]), np.exp(a) * np.array([[1, size], [0, 1]])
    q = N.qr(rng.normal(size=(6, 6)))[0]
    d = rng.uniform(-size, size, 6)
    return (q * d) @ q.T, (q * np.exp(d)) @ q.T


KINDS = ("diagonal", "rotation", "nilpotent", "one block", "symmetric")


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.3, 3.0, 20.0, 60.0])
@pytest.mark.parametrize("kind", KINDS)
def test_exponentials_are_those_in_closed_form(kind: str, size: float, dtype: str) -> None:
    rng = np.random.default_rng(int(size * 1000) + KINDS.index(kind))
    pairs = [exponential(kind, rng, size) for _ in range(3)]
    given, want = (np.stack(of) for of in zip(*pairs, strict=True))
    x = cb.tensor(given, dtype)
    found = linalg.matrix_exp(x)
    assert found.dtype is x.dtype
    off = abs(found.astype("f64").numpy() - want).max((-2, -1)) / abs(want).max((-2, -1))
    rounded = abs(x.astype("f64").numpy() - given).sum(-2).max(-1)
    assert (off <= 4 * rounded + (6e-8 if dtype == "f32" else 5e-15 * max(size, 1))).all()


def test_exponentials_of_batches_are_those_of_each() -> None:
    """Each is scaled by itself; what is no number stays among its own."""
    given = some(2, 3, 4, 4) * 10.0 ** RNG.uniform(-3, 1.5, (2, 3, 1, 1))
    given[0, 1, 2, 3], given[1, 0, 0, 0] = np.nan, np.inf
    found = linalg.matrix_exp(cb.tensor(given)).numpy()
    for at in np.ndindex(2, 3):
        alone = linalg.matrix_exp(cb.tensor(given[at])).numpy()
        np.testing.assert_allclose(found[at], alone, rtol=1e-12, atol=1e-13 * abs(alone).max())
        assert np.isfinite(alone).all() == np.isfinite(given[at]).all()
    assert linalg.matrix_exp(cb.tensor(np.zeros((3, 0, 0)))).shape == (3, 0, 0)
    assert linalg.matrix_exp(cb.tensor([[1e300]], "f64")).item() == np.inf
    assert linalg.matrix_exp(cb.tensor([[100.0]])).item() == np.inf
    program = cb.jit(lambda x: x.matrix_exp() @ (-x).matrix_exp())
    for _ in range(3):
        x = cb.tensor(some(2, 3, 3))
        np.testing.assert_allclose(program(x).numpy(), np.tile(np.eye(3), (2, 1, 1)), atol=1e-11)


def test_gradients_of_exponentials_of_large_seeds_are_as_exact() -> None:
    x = cb.tensor(some(4, 4), requires_grad=True)
    for size in (1e-12, 1.0, 1e12, 0.0):
        x.grad = None
        (linalg.matrix_exp(x) * size).sum().backward()
        if size == 1e-12:
            first = x.grad.numpy() / size
        np.testing.assert_allclose(x.grad.numpy(), first * size, rtol=1e-12)


def test_gradients_by_symmetric_matrices_are_symmetric() -> None:
    x = cb.tensor(definite(3), requires_grad=True)
    for function in (linalg.cholesky, lambda x: linalg.eigh(x)[1]):
        grad = cb.grad(lambda x, f=function: (f(x) ** 3).sum())(x).numpy()
        np.testing.assert_allclose(grad, grad.T, atol=1e-9)


def test_a_step_with_a_decomposition_trains() -> None:
    w = cb.tensor(some(3, 3), requires_grad=True)

    @cb.jit
    def step(b: Tensor) -> Tensor:
        w.grad = None
        loss = (linalg.solve(w @ w.T + cb.tensor.eye(3, dtype="f64"), b) ** 2).sum()
        loss.backward()
        with cb.no_grad():
            w.assign_(w + 0.05 * w.grad)
        return loss

    b = cb.tensor(some(3))
    losses = [step(b).item() for _ in range(20)]
    assert len({*losses}) == 20


def test_what_is_refused() -> None:
    x = cb.tensor(some(2, 3))
    for function in (linalg.inv, linalg.det, linalg.cholesky, linalg.eigh):
        with pytest.raises(ShapeError, match=r"square matrices .*not the shape \(2, 3\)"):
            function(x)
    for dtype in ("i32", "f16", "bf16"):
        with pytest.raises(DTypeError, match="takes f32 and f64"):
            linalg.svd(x.astype(dtype))
    with pytest.raises(LinAlgError, match="cholesky of a matrix") as error:
        linalg.cholesky(cb.tensor(-np.eye(2)))  # here
    assert "# here" in str(error.value)
    program = cb.jit(lambda x: linalg.inv(x) + 1)  # inside
    for _ in range(3):
        program(cb.tensor(np.eye(2)))
    with pytest.raises(LinAlgError, match="inv of a matrix") as error:
        program(cb.tensor(np.zeros((2, 2))))
    assert "# inside" in str(error.value)
    for call in (lambda: linalg.qr(x, mode="raw"), lambda: linalg.matrix_norm(x, ord=3)):
        with pytest.raises(ArgumentError):
            call()
    with pytest.raises(ShapeError, match="vectors of 3"):
        linalg.cross(x.T, x.T)
    with pytest.raises(ShapeError, match="b has 3 rows"):
        linalg.solve(cb.tensor(np.eye(3)), x)
    y = cb.tensor(some(3, 2), requires_grad=True)
    with pytest.raises(GradientError, match="full_matrices=True have no gradient"):
        linalg.svd(y)[0].sum().backward()
    with pytest.raises(GradientError, match="'complete' has no gradient"):
        linalg.qr(y, mode="complete")[0].sum().backward()
