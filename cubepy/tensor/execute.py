"""Running ops: which function computes an op, by the kinds of storage that it reads.

Dense tensors run on the kernel library. A package that brings a storage of its own, such as
quantized weights, registers an executor for each op that can read it:

    @register("linear", "quantized")
    def quantized_linear(inputs, attrs): ...

An executor gets the storages (None for absent inputs) and the attributes, and returns an array or a
Storage. The device of the inputs is the current one while it runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from cubepy.errors import KernelTypeError
from cubepy.lang import mathematics
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.memory.device_array import upload
from cubepy.tensor.storage import Storage

Executor = Callable[[Sequence[Any], dict[str, Any]], Any]
_EXECUTORS: dict[tuple[str, str], Executor] = {}


def register(op: str, kind: str) -> Callable[[Executor], Executor]:
    """Register an executor of `op` for inputs of which some have storage of this kind (the others
    are dense).
    """

    def put(function: Executor) -> Executor:
        _EXECUTORS[op, kind] = function
        return function

    return put


def executors(kind: str) -> tuple[str, ...]:
    """The ops that can read a kind of storage."""
    return tuple(sorted(op for op, k in _EXECUTORS if k == kind))


@cache
def kernels() -> Any:
    """The kernel library, loaded when the first op runs."""
    return importlib.import_module("cubepy.kernels")


def run(op: str, inputs: Sequence[Storage | None], attrs: dict[str, Any], dtype: np.dtype) -> Any:
    """Compute one op whose shapes are already checked: an array, a number or a storage.

    Args:
        op: its name.
        inputs: what it reads; None for what is absent.
        attrs: its attributes.
        dtype: of the result.

    Raises:
        KernelTypeError: no executor of the op reads such storage.
    """
    kind = "dense"
    for s in inputs:
        if s is not None and s.kind != "dense":
            kind = s.kind
    executor = _EXECUTORS.get((op, kind))
    if executor is not None:
        return executor(inputs, attrs)
    if kind == "dense":
        return _DENSE[op](dtype, *[None if s is None else s.dense() for s in inputs], **attrs)
    raise KernelTypeError(
        f"the op {op!r} cannot read {kind} storage; only "
        f"{', '.join(executors(kind)) or 'no op'} can",
        hint="convert it first: cb.tensor(x.numpy())",
    )


def _map(function: str) -> Callable[..., np.ndarray]:
    """An elementwise op on `function`: "f:name" of the kernel library, "t:name" of this package,
    "b:name" a builtin.
    """

    def run_map(dtype: np.dtype, *xs: np.ndarray) -> np.ndarray:
        return kernels().map(_function(function), *xs, dtype=dtype)  # type: ignore[no-any-return]

    return run_map


@cache
def _function(name: str) -> Any:
    where, name = name.split(":")
    modules = {
        "f": "cubepy.kernels.primitives.functions",
        "t": "cubepy.tensor.functions",
        "b": "cubepy",
    }
    return getattr(importlib.import_module(modules[where]), name)


def _reduction(name: str) -> Callable[..., Any]:
    def run_reduction(dtype: np.dtype, x: np.ndarray, axis: Any, keepdims: bool) -> Any:
        return getattr(kernels(), name)(x, axis=axis, keepdims=keepdims)

    return run_reduction


def _slice(dtype: np.dtype, x: np.ndarray, index: tuple[Any, ...]) -> np.ndarray:
    parts = (None if p == "new" else slice(*p) if isinstance(p, tuple) else p for p in index)
    return x[(*parts, ...)]  # the ellipsis makes even one element a view, not a scalar


def _reshape(dtype: np.dtype, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.reshape(x, shape, copy=False)
    except (ValueError, TypeError):  # strides that forbid a view; NumPy 1 has no such argument
        return (x if x.flags.c_contiguous else kernels().copy(x)).reshape(shape)  # type: ignore[no-any-return]


def _round(name: str) -> Callable[..., np.ndarray]:
    """floor, ceil and round leave integers as they are."""
    mapped = _map(f"b:{name}")

    def run_round(dtype: np.dtype, x: np.ndarray) -> np.ndarray:
        return x if x.dtype.kind in "biu" else mapped(dtype, x)

    return run_round


def _cast(dtype: np.dtype, x: np.ndarray) -> np.ndarray:
    if x.dtype == dtype:
        return x
    if dtype.kind == "b":
        return _map("t:nonzero")(dtype, x)
    if as_dtype(dtype).storage_only or as_dtype(x.dtype).storage_only:
        return (
            x.astype(dtype)
            if isinstance(x, np.ndarray)
            else upload(x.numpy().astype(dtype), x.device)
        )
    return _map("t:identity")(dtype, x)


def _concat(dtype: np.dtype, *xs: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate(xs, axis=axis, dtype=dtype)


def _matmul(dtype: np.dtype, a: np.ndarray, b: np.ndarray) -> Any:
    return kernels().matmul(a, b)


def _linear(
    dtype: np.dtype,
    x: np.ndarray,
    weight: np.ndarray,
    bias: Any,
    residual: Any,
    activation: str | None,
) -> np.ndarray:
    K = kernels()
    if dtype.itemsize < 8 and dtype.kind not in "iu":
        return K.matmul(x, weight.T, bias=bias, activation=activation, residual=residual)  # type: ignore[no-any-return]
    y = K.matmul(x, weight.T)
    if bias is not None:
        y = K.map(_function("f:add"), y, bias, dtype=dtype)
    if activation is not None:
        y = K.map(K.functions.ACTIVATIONS[activation], y, dtype=dtype)
    if residual is not None:
        y = K.map(_function("f:add"), y, residual, dtype=dtype)
    return y  # type: ignore[no-any-return]


def _layer_norm(
    dtype: np.dtype, x: Any, weight: Any, bias: Any, normalized_shape: Any, eps: float
) -> Any:
    return kernels().layer_norm(x, normalized_shape, weight, bias, eps)


def _attention(
    dtype: np.dtype, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: Any
) -> Any:
    return kernels().attention(q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale)


_DENSE: dict[str, Callable[..., Any]] = {
    **{n: _map(f"f:{n}") for n in ("add", "sub", "mul", "div", "relu", "silu", "sigmoid")},
    **{
        n: _map(f"b:{n}")
        for n in ("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "tanh")
    },
    **{n: _map(f"b:{n}") for n in ("erf", "abs")},
    **{n: _map(f"b:{n}") for n in (*mathematics.UNARY, *mathematics.BINARY, "sign")},
    **{n: _round(n) for n in ("floor", "ceil", "round")},
    **{n: _reduction(n) for n in ("sum", "prod", "mean", "max", "min", "argmax", "argmin")},
    "floordiv": _map("t:floordiv"),
    "mod": _map("t:mod"),
    "pow": _map("t:power"),
    "neg": _map("t:negative"),
    "minimum": _map("f:smaller"),
    "maximum": _map("f:larger"),
    "where": _map("t:where"),
    "eq": _map("t:equal"),
    "ne": _map("t:differs"),
    "lt": _map("t:less"),
    "le": _map("t:less_equal"),
    "gt": _map("t:greater"),
    "ge": _map("t:greater_equal"),
    "and": _map("t:both"),
    "or": _map("t:either"),
    "xor": _map("t:exclusive"),
    "not": _map("t:zero"),
    "gelu": lambda dtype, x, approximate: kernels().gelu(x, approximate),
    "cast": lambda d, x, dtype: _cast(d, x),
    "constant": lambda d, value, dtype: np.asarray(value, d),
    "contiguous": lambda dtype, x: x if x.flags.c_contiguous else kernels().copy(x),
    "reshape": _reshape,
    "slice": _slice,
    "concat": _concat,
    "permute": lambda dtype, x, axes: x.transpose(axes),
    "expand": lambda dtype, x, shape: np.broadcast_to(x, shape),
    "matmul": _matmul,
    "linear": _linear,
    "layer_norm": _layer_norm,
    "attention": _attention,
    "embedding": lambda dtype, indices, weight: kernels().embedding(indices, weight),
    "softmax": lambda dtype, x, axis: kernels().softmax(x, axis),
}

__all__ = ["Executor", "executors", "kernels", "register", "run"]
