"""Ops that work element by element: arithmetic, comparisons, functions, choices, conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.lang import mathematics
from cubepy.lang.dtypes import as_dtype, bool_, dtype_named, float_for, promote, true_divide_dtype
from cubepy.runtime.memory.device_array import upload
from cubepy.tensor.ops.library import function, kernels, number
from cubepy.tensor.ops.op import Run, Spec, broadcast, define


def maps(**functions: str) -> dict[str, Run]:
    """What computes elementwise ops, by the texts that name their functions (see `function`)."""
    return {name: _map(text) for name, text in functions.items()}


def _map(text: str) -> Run:
    def run_map(dtype: np.dtype, *xs: Any) -> Any:
        return kernels().map(function(text), *xs, dtype=dtype)

    return run_map


def _round(name: str) -> Run:
    """floor, ceil and round leave integers as they are."""
    mapped = _map(f"b:{name}")

    def run_round(dtype: np.dtype, x: Any) -> Any:
        return x if x.dtype.kind in "biu" else mapped(dtype, x)

    return run_round


@define(
    "map",
    maps(
        add="f:add",
        sub="f:sub",
        mul="f:mul",
        pow="t:power",
        minimum="f:smaller",
        maximum="f:larger",
    ),
)
def _arithmetic(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast(a, b), promote(a.dtype, b.dtype))


define("map", maps(floordiv="t:floordiv", mod="t:mod"))(_arithmetic)


@define("map", maps(div="f:div"))
def _div(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast(a, b), true_divide_dtype(a.dtype, b.dtype))


@define(
    "map",
    maps(
        eq="t:equal",
        ne="t:differs",
        lt="t:less",
        le="t:less_equal",
        gt="t:greater",
        ge="t:greater_equal",
    ),
    constant=True,
)
def _compare(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast(a, b), bool_)


@define("map", maps(**{"and": "t:both", "or": "t:either", "xor": "t:exclusive"}), constant=True)
def _logical(a: Spec, b: Spec) -> Spec:
    if a.dtype.is_float or b.dtype.is_float:
        raise DTypeError(
            f"& | ^ work on booleans and integers, not {a.dtype.name} and {b.dtype.name}"
        )
    return Spec(broadcast(a, b), promote(a.dtype, b.dtype))


@define("map", maps(where="t:where"))
def _where(mask: Spec, a: Spec, b: Spec) -> Spec:
    if mask.dtype is not bool_:
        raise DTypeError(
            f"where needs a boolean condition, not {mask.dtype.name}",
            hint="compare first, as in x > 0",
        )
    return Spec(broadcast(mask, a, b), promote(a.dtype, b.dtype))


_BUILTINS = "exp log log1p expm1 sqrt rsqrt sin cos tanh erf".split()


@define("map", maps(silu="f:silu", sigmoid="f:sigmoid", **{n: f"b:{n}" for n in _BUILTINS}))
def _float_unary(x: Spec) -> Spec:
    return Spec(x.shape, float_for(x.dtype))


define("map", maps(**{n: f"b:{n}" for n in mathematics.UNARY}))(_float_unary)


@define("map", maps(**{n: f"b:{n}" for n in mathematics.BINARY}))
def _float_binary(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast(a, b), float_for(promote(a.dtype, b.dtype)))


@define("map", {n: _round(n) for n in ("floor", "ceil", "round")}, constant=True)
@define("map", maps(neg="t:negative", abs="b:abs", relu="f:relu"))
def _same_unary(x: Spec) -> Spec:
    return Spec(x.shape, x.dtype.compute)


@define("map", maps(sign="b:sign"), constant=True)
def _sign(x: Spec) -> Spec:
    if x.dtype is bool_:
        raise DTypeError("sign works on numbers, not bool_")
    return _same_unary(x)


@define("map", {"gelu": lambda dtype, x, approximate: kernels().gelu(x, approximate)})
def _gelu(x: Spec, approximate: str) -> Spec:
    if approximate not in ("none", "tanh"):
        raise ShapeError(f'approximate is "none" or "tanh", not {approximate!r}')
    return Spec(x.shape, float_for(x.dtype))


@define("map", maps(**{"not": "t:zero"}), constant=True)
def _not(x: Spec) -> Spec:
    if x.dtype is not bool_:
        raise DTypeError(f"~ works on booleans, not {x.dtype.name}")
    return x


def _run_cast(d: np.dtype, x: Any, dtype: str) -> Any:
    if x.dtype == d:
        return x
    if d.kind == "b":
        return _map("t:nonzero")(d, x)
    if as_dtype(d).storage_only or as_dtype(x.dtype).storage_only:
        return x.astype(d) if isinstance(x, np.ndarray) else upload(x.numpy().astype(d), x.device)
    return _map("t:identity")(d, x)


@define("map", {"cast": _run_cast})
def _cast(x: Spec, dtype: str) -> Spec:
    return Spec(x.shape, dtype_named(dtype))


@define("make", {"constant": lambda d, value, dtype: number(value, d)})
def _constant(value: Any, dtype: str) -> Spec:
    return Spec((), dtype_named(dtype))
