"""Reductions, sorts and scans of tensors."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from cubepy.errors import ArgumentError, ShapeError
from cubepy.lang.dtypes import as_dtype
from cubepy.tensor.methods.applied import Applied, of_lines

T = TypeVar("T")


class Reducing(Applied[T]):
    """What `Tensor` inherits: reductions with NumPy's `axis` and `keepdims`, for which PyTorch's
    `dim` and `keepdim` may be said; sorts and scans named as in PyTorch.

    Args:
        T: what they give, `Tensor`.
    """

    __slots__ = ()

    def _reduced(self, op: str, axis: Any, keepdims: Any, said: dict[str, Any], **attrs: Any) -> T:
        """A reduction; `said` may hold the arguments of other libraries."""
        x: Any = self
        dtype = None
        if said:
            axis, keepdims, dtype = _others(op, axis, keepdims, said)
        axis = tuple(axis) if isinstance(axis, list) else axis
        if dtype is None:
            return x._unary(op, axis=axis, keepdims=keepdims, **attrs)  # type: ignore[no-any-return]
        wanted = as_dtype(dtype)
        return x.astype(wanted)._unary(op, axis=axis, keepdims=keepdims, **attrs).astype(wanted)  # type: ignore[no-any-return]

    def sum(self, axis: Any = None, keepdims: bool = False, **said: Any) -> T:
        """Sum over axes (all by default); integers sum in 64 bits, unless `dtype` says another
        type.
        """
        if said or type(axis) is list:
            return self._reduced("sum", axis, keepdims, said)
        return self._unary("sum", axis=axis, keepdims=keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False, **said: Any) -> T:
        """Product over axes."""
        if said or type(axis) is list:
            return self._reduced("prod", axis, keepdims, said)
        return self._unary("prod", axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False, **said: Any) -> T:
        """Arithmetic mean over axes; integers give floats."""
        if said or type(axis) is list:
            return self._reduced("mean", axis, keepdims, said)
        return self._unary("mean", axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False, **said: Any) -> T:
        """Largest element over axes."""
        if said or type(axis) is list:
            return self._reduced("max", axis, keepdims, said)
        return self._unary("max", axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False, **said: Any) -> T:
        """Smallest element over axes."""
        if said or type(axis) is list:
            return self._reduced("min", axis, keepdims, said)
        return self._unary("min", axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False, **said: Any) -> T:
        """Index of the first largest element (i64)."""
        if said:
            return self._reduced("argmax", axis, keepdims, said)
        return self._unary("argmax", axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False, **said: Any) -> T:
        """Index of the first smallest element (i64)."""
        if said:
            return self._reduced("argmin", axis, keepdims, said)
        return self._unary("argmin", axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, keepdims: bool = False, **said: Any) -> T:
        """Whether some element is not zero."""
        if said or type(axis) is list:
            return self._reduced("any", axis, keepdims, said)
        return self._unary("any", axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, keepdims: bool = False, **said: Any) -> T:
        """Whether no element is zero."""
        if said or type(axis) is list:
            return self._reduced("all", axis, keepdims, said)
        return self._unary("all", axis=axis, keepdims=keepdims)

    def var(
        self, axis: Any = None, keepdims: bool = False, *, correction: float = 0, **said: Any
    ) -> T:
        """Variance over axes; `correction` is subtracted from the count that divides: 0, as in
        NumPy (in PyTorch 1 is the default); also by `ddof` of NumPy, `unbiased` of PyTorch.
        """
        less = _less(said, correction)
        return self._reduced("var", axis, keepdims, said, correction=less)

    def std(
        self, axis: Any = None, keepdims: bool = False, *, correction: float = 0, **said: Any
    ) -> T:
        """Standard deviation over axes; `correction` as for `var`."""
        less = _less(said, correction)
        return self._reduced("std", axis, keepdims, said, correction=less)

    def logsumexp(self, axis: Any = None, keepdims: bool = False, **said: Any) -> T:
        """log(sum(exp(x))) over axes, without overflow on the way."""
        if said or type(axis) is list:
            return self._reduced("logsumexp", axis, keepdims, said)
        return self._unary("logsumexp", axis=axis, keepdims=keepdims)

    def norm(
        self, p: float | str = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> T:
        """The vector norm (sum |x|^p)^(1/p) over axes, in a dtype: of p = 0 how many are not 0, of
        infinity the largest size, of -infinity the smallest one. "fro" is 2, "nuc" the sum of the
        singular values of matrices.
        """
        x: Any = self if dtype is None else self.astype(dtype)
        if p == "nuc":
            return self._nuclear(x, dim, keepdim)
        order = 2.0 if p == "fro" else float(p)
        if order > 0:
            return x._reduced("norm", dim, keepdim, {}, ord=order)  # type: ignore[no-any-return]
        x = x if x.dtype.is_float else x.astype("f32")
        wide = x.astype("f32") if x.dtype.bits < 32 else x
        none = wide == 0
        if order == 0:  # a tensor whose gradients are 0, as in PyTorch
            found = wide.masked_fill(~none, 1).masked_fill(none, 0).sum(dim, keepdim)
        elif order == -math.inf:
            found = wide.abs().min(dim, keepdim)
        else:
            sums = (wide.masked_fill(none, 1).abs() ** order).sum(dim, keepdim)
            found = (sums ** (1 / order)).masked_fill(none.any(dim, keepdim), 0)
        return found.astype(x.dtype)  # type: ignore[no-any-return]

    def _nuclear(self, x: Any, dim: Any, keepdim: bool) -> T:
        ends = (-2, -1)
        axes = ends if dim is None else tuple(dim)
        if x.ndim < 2 or len(axes) != 2 or (dim is None and x.ndim != 2):
            raise ShapeError(f"the nuclear norm is of matrices, not of the axes {dim} of {x.shape}")
        norm = x.__array_namespace__().linalg.matrix_norm
        made = norm(x.movedim(axes, ends), ord="nuc", keepdims=keepdim)
        return made.movedim(ends, axes) if keepdim else made  # type: ignore[no-any-return]

    def softmax(self, axis: int = -1, dtype: Any = None, *, dim: int | None = None) -> T:
        """exp(x) / sum(exp(x)) along an axis, of the elements in a dtype."""
        x: Any = self if dtype is None else self.astype(dtype)
        return x._unary("softmax", axis=axis if dim is None else dim)  # type: ignore[no-any-return]

    def cumsum(self, dim: int | None = None, *, dtype: Any = None, axis: int | None = None) -> T:
        """Running sums along an axis, of the flat tensor without one; integers sum in 64 bits,
        unless `dtype` says another type.
        """
        return self._scanned("cumsum", dim if axis is None else axis, dtype)

    def cumprod(self, dim: int | None = None, *, dtype: Any = None, axis: int | None = None) -> T:
        """Running products along an axis, of the flat tensor without one."""
        return self._scanned("cumprod", dim if axis is None else axis, dtype)

    def _scanned(self, op: str, dim: int | None, dtype: Any) -> T:
        x: Any = self
        if dim is None:
            x, dim = x.reshape(-1), 0
        if dtype is None:
            return x._unary(op, axis=dim, exclusive=False)  # type: ignore[no-any-return]
        return x.astype(dtype)._unary(op, axis=dim, exclusive=False).astype(dtype)  # type: ignore[no-any-return]

    @of_lines
    def sort(
        self,
        dim: int = -1,
        descending: bool = False,
        stable: bool = True,
        *,
        axis: int | None = None,
    ) -> tuple[T, T]:
        """The elements in order along an axis (NaN last, first when descending), and their
        indices; always `stable`.
        """
        dim = dim if axis is None else axis
        order = self.argsort(dim, descending)
        at = dim % self.ndim
        return self._apply("take_along_axis", self, order, axis=at), order

    def argsort(
        self,
        dim: int = -1,
        descending: bool = False,
        stable: bool = True,
        *,
        axis: int | None = None,
    ) -> T:
        """The indices (i64) that sort an axis; equal elements keep their order, `stable` or not."""
        return self._unary("argsort", axis=dim if axis is None else axis, descending=descending)

    @of_lines
    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[T, T]:
        """The k largest (or smallest) elements along an axis in order, `sorted` or not, and their
        indices.
        """
        return tuple(self._apply("topk", self, k=k, axis=dim, largest=largest))  # type: ignore[return-value]


def _others(op: str, axis: Any, keepdims: Any, said: dict[str, Any]) -> tuple[Any, Any, Any]:
    """axis, keepdims and dtype of a reduction where words of other libraries may be said: `np.sum`
    of a tensor asks the tensor, with `dtype` and `out`.
    """
    axis = said.pop("axis", said.pop("dim", axis))
    keepdims = said.pop("keepdims", said.pop("keepdim", keepdims))
    dtype, out = said.pop("dtype", None), said.pop("out", None)
    if said:
        raise TypeError(f"{op}() has no argument {next(iter(said))!r}")
    if out is not None:
        raise ArgumentError("a tensor is reduced without out=", hint="use x.numpy()")
    if dtype is not None and op not in ("sum", "prod", "mean"):
        raise ArgumentError(
            f"{op} of a tensor takes no dtype=", hint="convert it before: x.to(dtype)"
        )
    return axis, keepdims, dtype


def _less(said: dict[str, Any], correction: float) -> float:
    """What is subtracted from the count, by whichever name it was said."""
    if "unbiased" in said:
        return 1 if said.pop("unbiased") else 0
    less: float = said.pop("ddof", correction)
    return less
