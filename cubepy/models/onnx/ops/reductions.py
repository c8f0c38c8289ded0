"""Sums, means, extremes and the like along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, axes_of, axis_of, ints, operator
from cubepy.tensor import Tensor


def _axes(call: Call, rank: int, axes: Any) -> tuple[int, ...] | None:
    """The axes to be reduced: an attribute, later an input; None for none at all."""
    axes = call.get("axes") if axes is None else axes
    if axes is None or not len(ints(axes)):
        return None if call.get("noop_with_empty_axes", 0) else tuple(range(rank))
    return axes_of(axes, rank)


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis=axis, keepdims=keep)
    return x


def _logsum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.sum(axis=axes, keepdims=keep).log()


def _logsumexp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.logsumexp(axis=axes, keepdims=keep)


REDUCTIONS: dict[str, tuple[Any, Any, Callable[[Tensor], Tensor]]] = {
    "ReduceSum": (lambda x, a, k: x.sum(axis=a, keepdims=k), np.sum, lambda x: x),
    "ReduceMean": (lambda x, a, k: x.mean(axis=a, keepdims=k), np.mean, lambda x: x),
    "ReduceProd": (_product, np.prod, lambda x: x),
    "ReduceMax": (lambda x, a, k: x.max(axis=a, keepdims=k), np.max, lambda x: x),
    "ReduceMin": (lambda x, a, k: x.min(axis=a, keepdims=k), np.min, lambda x: x),
    "ReduceL1": (lambda x, a, k: x.abs().sum(axis=a, keepdims=k), None, lambda x: x.abs()),
    "ReduceL2": (
        lambda x, a, k: _floats(x * x).sum(axis=a, keepdims=k).sqrt(),
        None,
        lambda x: x.abs(),
    ),
    "ReduceSumSquare": (lambda x, a, k: (x * x).sum(axis=a, keepdims=k), None, lambda x: x * x),
    "ReduceLogSum": (lambda x, a, k: _logsum(_floats(x), a, k), None, lambda x: x.log()),
    "ReduceLogSumExp": (lambda x, a, k: _logsumexp(_floats(x), a, k), None, lambda x: x),
}
"""By operator: of tensors, of host arrays, and what is done where no axis is reduced."""


def _floats(x: Tensor) -> Tensor:
    return x if x.dtype.is_float else x.astype("f64" if x.dtype.bits == 64 else "f32")


def empty_value(name: str, dtype: Any) -> Any:
    """What a reduction of no elements gives."""
    if name in ("ReduceMax", "ReduceMin"):
        low = name == "ReduceMax"
        if dtype.kind == "b":
            return not low
        if dtype.kind in "iu":
            return int(np.iinfo(dtype).min if low else np.iinfo(dtype).max)
        return -np.inf if low else np.inf
    return {"ReduceProd": 1, "ReduceMean": np.nan}.get(
        name, -np.inf if name.startswith("ReduceLog") else 0
    )


def _reduction(name: str) -> Callable[..., Any]:
    function, _, alone = REDUCTIONS[name]

    def run(call: Call, x: Tensor, axes: Any = None) -> Tensor:
        dtype, keep = x.dtype, bool(call.get("keepdims", 1))
        found = _axes(call, len(x.shape), axes)
        if found is None:
            return alone(x)
        if any(x.shape[a] == 0 for a in found):
            shape = [1 if k in found else n for k, n in enumerate(x.shape)]
            full = T.full(tuple(shape), empty_value(name, dtype.numpy), dtype=dtype)
            return (
                full
                if keep
                else full.reshape(*[n for k, n in enumerate(x.shape) if k not in found])
            )
        if dtype.kind == "b" and name in ("ReduceMax", "ReduceMin"):
            return function(x.astype("u8"), found, keep).astype(dtype)  # type: ignore[no-any-return]
        return function(x, found, keep).astype(dtype)  # type: ignore[no-any-return]

    return run


def _reduction_host(function: Any) -> Any:
    if function is None:
        return None

    def run(call: Call, x: Any, axes: Any = None) -> Any:
        found = _axes(call, x.ndim, axes)
        if found is None:
            return x
        return np.asarray(function(x, axis=found, keepdims=bool(call.get("keepdims", 1)))).astype(
            x.dtype
        )

    return run


for _name, (_, _function, _) in REDUCTIONS.items():
    operator(_name, reads=(1,), host=_reduction_host(_function))(_reduction(_name))


def _best(which: str) -> Callable[..., Any]:
    def run(call: Call, x: Tensor) -> Tensor:
        axis = axis_of(call.get("axis", 0), len(x.shape))
        keep = bool(call.get("keepdims", 1))
        if not call.get("select_last_index", 0):
            return getattr(x, which)(axis=axis, keepdims=keep)  # type: ignore[no-any-return]
        return x.shape[axis] - 1 - getattr(x.flip(axis), which)(axis=axis, keepdims=keep)  # type: ignore[no-any-return]

    return run


operator("ArgMax")(_best("argmax"))
operator("ArgMin")(_best("argmin"))


@operator("TopK", reads=(1,))
def top_k(call: Call, x: Tensor, k: Any = None) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along an axis, in order, and their indices."""
    count = int(call["k"] if k is None else k.reshape(-1)[0])
    axis = axis_of(call.get("axis", -1), len(x.shape))
    return x.topk(count, axis, bool(call.get("largest", 1)))


@operator("LpNormalization")
def lp_normalization(call: Call, x: Tensor) -> Tensor:
    """Divided by the norm along an axis; zero where that is zero."""
    axis, p = axis_of(call.get("axis", -1), len(x.shape)), call.get("p", 2)
    if p == 1:
        norm = x.abs().sum(axis=axis, keepdims=True)
    else:
        norm = (x * x).sum(axis=axis, keepdims=True).sqrt()
    return T.where(norm == 0, T.zeros_like(x), x / norm)
