"""What `torch.linalg` has besides the array API."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from cubepy.errors import ShapeError
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.linalg.functions import inv, matrix_norm, pinv, qr, solve, svdvals, vector_norm
from cubepy.tensor.namespace import eye, stack, where


class LstsqResult(NamedTuple):
    """What `lstsq` gives.

    Attributes:
        solution: (..., n, k).
        residuals: sums of squares of what is left, (..., k); of no more rows than columns none.
    """

    solution: Tensor
    residuals: Tensor


def norm(
    x: Any, /, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of a vector or a matrix, by torch's names: without an order that of all elements.

    Example:
        >>> import cubepy as cb
        >>> norm(cb.tensor([3.0, 4.0]))
        tensor(5.)
    """
    given = as_tensor(x) if dtype is None else as_tensor(x).astype(dtype)
    axes = (dim,) if isinstance(dim, int) else None if dim is None else tuple(dim)
    if ord is None:
        return vector_norm(given, axis=axes, keepdims=keepdim)
    if axes is None:
        if given.ndim not in (1, 2):
            raise ShapeError(f"norm of an order takes a vector or a matrix, not {given.shape}")
        axes = tuple(range(given.ndim))
    if len(axes) == 1:
        return vector_norm(given, axis=axes, keepdims=keepdim, ord=ord)
    found = matrix_norm(given.movedim(axes, (-2, -1)), keepdims=keepdim, ord=ord)
    return found.movedim((-2, -1), axes) if keepdim else found


def multi_dot(tensors: Any) -> Tensor:
    """The product of several matrices, in the order that takes the fewest steps; the first and the
    last one may be vectors.

    Example:
        >>> import cubepy as cb
        >>> a = cb.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> multi_dot([a, a, cb.tensor([1.0, 0.0])])
        tensor([ 7., 15.])
    """
    given = [as_tensor(t) for t in tensors]
    if len(given) < 2:
        raise ShapeError("multi_dot takes two matrices or more")
    first, last = given[0].ndim == 1, given[-1].ndim == 1
    given[0] = given[0].unsqueeze(0) if first else given[0]
    given[-1] = given[-1].unsqueeze(1) if last else given[-1]
    for a, b in itertools.pairwise(given):
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise ShapeError(f"multi_dot: {a.shape} and {b.shape} do not go together")
    lengths = [given[0].shape[0], *(t.shape[1] for t in given)]
    best: dict[tuple[int, int], tuple[int, int]] = {(n, n): (0, n) for n in range(len(given))}
    for span in range(1, len(given)):
        for i in range(len(given) - span):
            j = i + span
            best[i, j] = min(
                (
                    best[i, k][0]
                    + best[k + 1, j][0]
                    + lengths[i] * lengths[k + 1] * lengths[j + 1],
                    k,
                )
                for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        if i == j:
            return given[i]
        k = best[i, j][1]
        return product(i, k) @ product(k + 1, j)

    found = product(0, len(given) - 1)
    found = found.squeeze(0) if first else found
    return found.squeeze(-1) if last else found


def cond(x: Any, /, p: Any = None) -> Tensor:
    """How much a matrix may stretch errors: the largest singular value over the smallest, or with a
    norm, the norm of the matrix times that of its inverse.

    Example:
        >>> import cubepy as cb
        >>> cond(cb.tensor([[4.0, 0.0], [0.0, 2.0]])).item().__round__(5)
        2.0
    """
    given = as_tensor(x)
    if p in (None, 2, -2):
        values = svdvals(given)
        most, least = values[..., 0], values[..., -1]
        return least / most if p == -2 else most / least
    return matrix_norm(given, ord=p) * matrix_norm(inv(given), ord=p)


def lstsq(a: Any, b: Any, /, rcond: Any = None) -> LstsqResult:
    """The x for which a @ x is nearest to b, of matrices of full rank or, with fewer rows than
    columns, the shortest one.

    Example:
        >>> import cubepy as cb
        >>> a = cb.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> lstsq(a, cb.tensor([[1.0], [3.0], [5.0]])).solution.numpy().round(4).tolist()
        [[1.0], [2.0]]
    """
    left, right = as_tensor(a), as_tensor(b)
    if left.ndim < 2 or right.ndim != left.ndim or left.shape[-2] != right.shape[-2]:
        raise ShapeError(f"lstsq of {left.shape} and {right.shape}: their rows must go together")
    rows, columns = left.shape[-2:]
    if rows < columns or rcond is not None:
        solution = pinv(left, rtol=rcond) @ right
    else:
        q, r = qr(left)
        solution = solve(r, q.mT @ right)
    rest = left @ solution - right
    residuals = (rest * rest).sum(-2) if rows > columns else right.reshape(-1)[:0]
    return LstsqResult(solution, residuals)


def solve_triangular(
    a: Any, b: Any, /, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The x with a @ x = b (or x @ a = b, unless `left`), where only one triangle of a is read.

    Example:
        >>> import cubepy as cb
        >>> a, b = cb.tensor([[2.0, 9.0], [0.0, 1.0]]), cb.tensor([[4.0], [2.0]])
        >>> solve_triangular(a, b, upper=False)
        tensor([[2.],
                [2.]])
    """
    given, right = as_tensor(a), as_tensor(b)
    if given.ndim < 2 or given.shape[-1] != given.shape[-2]:
        raise ShapeError(f"solve_triangular takes square matrices, not the shape {given.shape}")
    kept = given.triu() if upper else given.tril()
    if unitriangular:
        diagonal = eye(given.shape[-1], dtype="bool_", device=given.device)
        kept = where(diagonal, 1.0, kept)
    return solve(kept, right) if left else solve(kept.mT, right.mT).mT


def matrix_exp(x: Any, /) -> Tensor:
    """The sum of the powers x**k / k! of square matrices, (..., n, n): by scaling, a quotient of
    polynomials of degree 13, and squaring (Higham, 2005), in f64 on the host. Gradients have
    gradients.

    Example:
        >>> import cubepy as cb
        >>> matrix_exp(cb.tensor([[0.0, 1.0], [0.0, 0.0]]))
        tensor([[1., 1.],
                [0., 1.]])
    """
    return apply("matrix_exp", as_tensor(x))  # type: ignore[no-any-return]


def vander(x: Any, /, *, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 of each element, in a new last axis.

    Example:
        >>> import cubepy as cb
        >>> vander(cb.tensor([2.0, 3.0]), N=3)
        tensor([[1., 2., 4.],
                [1., 3., 9.]])
    """
    given = as_tensor(x)
    given = given if given.ndim else given.reshape(1)
    count = given.shape[-1] if N is None else N
    powers, found = [], given.new_ones(given.shape)
    for _ in range(count):
        powers.append(found)
        found = found * given
    return stack(powers, axis=-1)


__all__ = ["cond", "lstsq", "matrix_exp", "multi_dot", "norm", "solve_triangular", "vander"]
