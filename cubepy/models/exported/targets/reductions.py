"""Sums and the like along axes, running sums, areas."""

from __future__ import annotations

from typing import Any

from cubepy import tensor as T
from cubepy.lang.dtypes import DType, i64, u8
from cubepy.models.exported.lifting import lifted
from cubepy.models.exported.promotion import floats
from cubepy.models.exported.records import target
from cubepy.models.exported.targets.elementwise import truth
from cubepy.nn import functional as F
from cubepy.tensor import Tensor


def _axes(dim: Any) -> Any:
    """Axes as our reductions take them: None for all."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return tuple(dim) if isinstance(dim, (list, tuple)) else dim


def summable(x: Tensor, dtype: DType | None) -> Tensor:
    """x in the dtype that sums of it have: the one that is asked for, i64 of integers."""
    return x.astype(dtype or i64) if dtype or not x.dtype.is_float else x


@target("sum")
@lifted
def total(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return summable(x, dtype).sum(_axes(dim), keepdim)


@target("prod")
@lifted
def prod(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return summable(x, dtype).prod(_axes(dim), keepdim)


@target("mean")
@lifted
def mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return (x.astype(dtype) if dtype else floats(x)).mean(_axes(dim), keepdim)


@target("nansum")
@lifted
def nansum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    there = T.where(x == x, x, 0) if x.dtype.is_float else x
    return total(there, dim, keepdim, dtype=dtype)  # type: ignore[no-any-return]


@target("nanmean")
@lifted
def nanmean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    x = x.astype(dtype) if dtype else floats(x)
    count = (x == x).astype(x.dtype).sum(_axes(dim), keepdim)
    return nansum(x, dim, keepdim) / count  # type: ignore[no-any-return]


@target("amax")
@lifted
def amax(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return x.max(_axes(dim), keepdim)


@target("amin")
@lifted
def amin(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return x.min(_axes(dim), keepdim)


target("max.default")(lambda x: x.max())
target("min.default")(lambda x: x.min())


@target("aminmax")
@lifted
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> list[Tensor]:
    if dim is None and keepdim:
        dim = tuple(range(x.ndim))  # type: ignore[assignment]
    return [x.min(dim, keepdim), x.max(dim, keepdim)]


@target("max.dim")
@lifted
def max_along(x: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
    return [x.max(dim, keepdim), x.argmax(dim, keepdim)]


@target("min.dim")
@lifted
def min_along(x: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
    return [x.min(dim, keepdim), x.argmin(dim, keepdim)]


@target("argmax")
@lifted
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return x.argmax(dim, keepdim).astype(i64)


@target("argmin")
@lifted
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return x.argmin(dim, keepdim).astype(i64)


def _judged(found: Tensor, x: Tensor) -> Tensor:
    """What "any" and "all" say, of bytes in bytes."""
    return found.astype(u8) if x.dtype is u8 else found


@target("any")
@lifted
def any_of(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _judged(truth(x) if dim == [] else truth(x).any(_axes(dim), keepdim), x)


@target("all")
@lifted
def all_of(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _judged(truth(x) if dim == [] else truth(x).all(_axes(dim), keepdim), x)


def _spread(x: Tensor, dim: Any, args: tuple[Any, ...], said: dict[str, Any]) -> tuple[Any, ...]:
    """Axes, correction and keepdim of var(x, unbiased), var(x, dim, unbiased, keepdim), and
    var(x, dim, correction=, keepdim=).
    """
    if isinstance(dim, bool):
        return None, float(dim), False
    unbiased = args[0] if args else said.get("unbiased", True)
    keepdim = args[1] if len(args) > 1 else said.get("keepdim", False)
    correction = said.get("correction", 1 if unbiased else 0)
    return _axes(dim), float(1 if correction is None else correction), keepdim


@target("var")
@lifted
def var(x: Tensor, dim: Any = None, *args: Any, **said: Any) -> Tensor:
    axes, correction, keepdim = _spread(x, dim, args, said)
    return x.var(axes, keepdim, correction=correction)


@target("std")
@lifted
def std(x: Tensor, dim: Any = None, *args: Any, **said: Any) -> Tensor:
    axes, correction, keepdim = _spread(x, dim, args, said)
    return x.std(axes, keepdim, correction=correction)


@target("var_mean")
@lifted
def var_mean(x: Tensor, dim: Any = None, *args: Any, **said: Any) -> list[Tensor]:
    axes, correction, keepdim = _spread(x, dim, args, said)
    return [x.var(axes, keepdim, correction=correction), x.mean(axes, keepdim)]


@target("std_mean")
@lifted
def std_mean(x: Tensor, dim: Any = None, *args: Any, **said: Any) -> list[Tensor]:
    axes, correction, keepdim = _spread(x, dim, args, said)
    return [x.std(axes, keepdim, correction=correction), x.mean(axes, keepdim)]


@target("linalg_vector_norm norm.ScalarOpt_dim norm.Scalar")
@lifted
def norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    ord, axes = 2 if ord is None else ord, _axes(dim)
    size = (x if dtype is None else x.astype(dtype)).abs()
    if ord == 2:
        return size.square().sum(axes, keepdim).sqrt()
    if ord == 1:
        return size.sum(axes, keepdim)
    if ord in (float("inf"), float("-inf")):
        return size.max(axes, keepdim) if ord > 0 else size.min(axes, keepdim)
    if ord == 0:
        return (size != 0).astype(size.dtype).sum(axes, keepdim)
    return (size**ord).sum(axes, keepdim) ** (1 / ord)  # type: ignore[no-any-return]


@target("logsumexp")
@lifted
def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return floats(x).logsumexp(_axes(dim), keepdim)


@target("softmax _softmax")
@lifted
def softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return (x.astype(dtype) if isinstance(dtype, DType) else floats(x)).softmax(dim)


@target("log_softmax _log_softmax")
@lifted
def log_softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return F.log_softmax(x.astype(dtype) if isinstance(dtype, DType) else floats(x), dim)


@target("cumsum")
@lifted
def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    return summable(x, dtype).cumsum(dim)  # type: ignore[no-any-return]


@target("cumprod")
@lifted
def cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    return summable(x, dtype).cumprod(dim)  # type: ignore[no-any-return]


@target("diff")
def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    return T.diff(x, axis=dim, n=n, prepend=prepend, append=append) if n else x


@target("count_nonzero")
@lifted
def count_nonzero(x: Tensor, dim: Any = None) -> Tensor:
    return truth(x).astype(i64).sum(_axes(dim))  # type: ignore[no-any-return]


@target("dist")
def dist(a: Tensor, b: Tensor, p: float = 2) -> Tensor:
    return norm(floats(a - b), p)  # type: ignore[no-any-return]


@target("renorm")
def renorm(x: Tensor, p: float, dim: int, most: float) -> Tensor:
    """Slices along an axis, none longer than `most`."""
    axes = tuple(d for d in range(x.ndim) if d != dim % x.ndim)
    size = norm(x, p, axes, True)
    return x * T.where(size > most, most / (size + 1e-7), 1.0)


def _trapezoids(y: Tensor, x: Any, dim: int) -> Tensor:
    """Areas between neighbours along the last axis; x: a distance, or positions."""
    y = floats(y).movedim(dim, -1)
    means = (y[..., 1:] + y[..., :-1]) * 0.5
    if not isinstance(x, Tensor):
        return means * x
    x = floats(x).movedim(dim, -1) if x.ndim > 1 else floats(x)
    return means * (x[..., 1:] - x[..., :-1])


@target("trapezoid.x trapz.x")
def trapezoid(y: Tensor, x: Tensor, *, dim: int = -1) -> Tensor:
    return _trapezoids(y, x, dim).sum(-1)


@target("trapezoid.dx trapz.dx")
def trapezoid_of_steps(y: Tensor, *, dx: Any = 1, dim: int = -1) -> Tensor:
    return _trapezoids(y, dx, dim).sum(-1)


@target("cumulative_trapezoid.x")
def cumulative_trapezoid(y: Tensor, x: Tensor, *, dim: int = -1) -> Tensor:
    return _trapezoids(y, x, dim).cumsum(-1).movedim(-1, dim)


@target("cumulative_trapezoid.dx")
def cumulative_trapezoid_of_steps(y: Tensor, *, dx: Any = 1, dim: int = -1) -> Tensor:
    return _trapezoids(y, dx, dim).cumsum(-1).movedim(-1, dim)
