"""Ops that work element by element: arithmetic, comparisons, functions, choices, conversions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.lang import mathematics
from cubepy.lang.dtypes import (
    DType,
    as_dtype,
    bool_,
    dtype_named,
    float_for,
    promote,
    true_divide_dtype,
)
from cubepy.runtime.memory.device_array import upload
from cubepy.runtime.replay.host import in_memory
from cubepy.tensor.ops.library import function, kernels, number
from cubepy.tensor.ops.op import OPS, Run, Spec, broadcast, define


class Mapped:
    """What computes an elementwise op: a function of elements on all of them.

    Attributes:
        text: what names the function (see `function`).
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, dtype: np.dtype, *xs: Any) -> Any:
        return kernels().map(function(self.text), *xs, dtype=dtype)


class Rounded(Mapped):
    """floor, ceil, round and trunc leave integers as they are."""

    def __call__(self, dtype: np.dtype, x: Any) -> Any:
        return x if x.dtype.kind in "biu" else super().__call__(dtype, x)


ALSO_MAPS = frozenset(["gelu", "clip", "cast"])
"""Ops that are functions of elements and are run in ways of their own."""


def turned_alike(op: str, arrays: Sequence[Any]) -> list[int] | None:
    """Where the axes of a result go that lies in memory as the inputs of an elementwise op do: as
    arrays of the host and of one shape with their axes in one order, beside others that are
    repeated along some of them. None where they are in C order, or differ.

    Args:
        op: any op.
        arrays: its inputs, None for those that are not given.
    """
    if not (isinstance(OPS[op].run, Mapped) or op in ALSO_MAPS):
        return None
    given = [a for a in arrays if a is not None and (type(a) is not np.ndarray or a.ndim)]
    if not given or not all(type(a) is np.ndarray for a in given):
        return None
    first = max(given, key=lambda a: a.size)
    if first.ndim < 2 or first.flags.c_contiguous or not first.size:
        return None
    order = in_memory(first)
    if order == tuple(range(first.ndim)):
        return None
    for a in given:
        whole = a.shape == first.shape
        if not (_in_rows(a, order) if whole else _spreads(a.shape, first.shape)):
            return None
    return [order.index(d) for d in range(first.ndim)]


def _in_rows(array: np.ndarray, order: Sequence[int]) -> bool:
    """Whether axes are in an order in memory, the last one without gaps."""
    steps = [array.strides[d] for d in order if array.shape[d] > 1]
    return bool(steps) and steps[-1] == array.itemsize and sorted(steps, reverse=True) == steps


def _spreads(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether an array of a shape is repeated along axes of another to have it."""
    ends = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in ends)


def in_order(array: Any, order: Sequence[int]) -> Any:
    """An array with as many axes as an order has, in that order."""
    return array[(None,) * (len(order) - array.ndim)].transpose(order)


def maps(**functions: str) -> dict[str, Run]:
    """What computes elementwise ops, by the texts that name their functions."""
    return {name: Mapped(text) for name, text in functions.items()}


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


define("map", maps(**{n: f"b:{n}" for n in mathematics.UNARY}, log2="b:log2", exp2="b:exp2"))(
    _float_unary
)
define("map", maps(**{n: f"t:{n}" for n in "reciprocal digamma trigamma erfinv".split()}))(
    _float_unary
)


@define("map", maps(**{n: f"b:{n}" for n in mathematics.BINARY}))
def _float_binary(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast(a, b), float_for(promote(a.dtype, b.dtype)))


define("map", maps(logaddexp="t:logaddexp"))(_float_binary)


@define("map", maps(nextafter="t:next_after"), constant=True)
def _nextafter(a: Spec, b: Spec) -> Spec:
    found = _float_binary(a, b)
    if found.dtype.bits < 32:
        raise DTypeError(f"nextafter works on f32 and f64, not {found.dtype.name}")
    return found


@define("map", {n: Rounded(f"b:{n}") for n in ("floor", "ceil", "round", "trunc")}, constant=True)
@define("map", maps(neg="t:negative", abs="b:abs", relu="f:relu", square="t:square", cube="t:cube"))
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
        raise DTypeError(f"not works on booleans, not {x.dtype.name}")
    return x


@define("map", maps(invert="t:complement"), constant=True)
def _invert(x: Spec) -> Spec:
    if not x.dtype.is_int:
        raise DTypeError(f"~ works on booleans and integers, not {x.dtype.name}")
    return Spec(x.shape, x.dtype.compute)


@define("map", maps(lshift="t:shifted_left", rshift="t:shifted_right"), constant=True)
def _shift(a: Spec, b: Spec) -> Spec:
    if not (a.dtype.is_int and b.dtype.is_int):
        raise DTypeError(f"<< and >> work on integers, not {a.dtype.name} and {b.dtype.name}")
    return Spec(broadcast(a, b), promote(a.dtype, b.dtype))


@define("map", maps(gcd="t:common_divisor", lcm="t:common_multiple"), constant=True)
def _whole(a: Spec, b: Spec) -> Spec:
    if not all(d.is_int and d is not bool_ for d in (a.dtype, b.dtype)):
        raise DTypeError(f"gcd and lcm work on integers, not {a.dtype.name} and {b.dtype.name}")
    return Spec(broadcast(a, b), promote(a.dtype, b.dtype))


@define("map", maps(isnan="b:isnan", isinf="b:isinf", isfinite="b:isfinite"), constant=True)
def _float_test(x: Spec) -> Spec:
    if not x.dtype.is_float:
        raise DTypeError(f"isnan, isinf and isfinite look at floats, not {x.dtype.name}")
    return Spec(x.shape, bool_)


@define("map", maps(signbit="t:negative_sign"), constant=True)
def _signbit(x: Spec) -> Spec:
    if not x.dtype.is_float:
        raise DTypeError(f"signbit looks at floats, not {x.dtype.name}")
    return Spec(x.shape, bool_)


_CLIPS = {"both": Mapped("t:limited"), "low": Mapped("f:larger"), "high": Mapped("f:smaller")}


def _run_clip(dtype: np.dtype, x: Any, low: Any, high: Any) -> Any:
    if high is None:
        return _CLIPS["low"](dtype, x, low)
    return _CLIPS["high"](dtype, x, high) if low is None else _CLIPS["both"](dtype, x, low, high)


@define("map", {"clip": _run_clip})
def _clip(x: Spec, low: Spec | None, high: Spec | None) -> Spec:
    ends = [end for end in (low, high) if end is not None]
    if not ends:
        raise ArgumentError("clip needs a lower or an upper end")
    dtype: DType = x.dtype.compute
    for end in ends:
        dtype = promote(dtype, end.dtype)
    return Spec(broadcast(x, *ends), dtype)


def _run_cast(d: np.dtype, x: Any, dtype: str) -> Any:
    if x.dtype == d:
        return x
    if d.kind == "b":
        return Mapped("t:nonzero")(d, x)
    if as_dtype(d).storage_only or as_dtype(x.dtype).storage_only:
        return x.astype(d) if isinstance(x, np.ndarray) else upload(x.numpy().astype(d), x.device)
    return Mapped("t:identity")(d, x)


@define("map", {"cast": _run_cast})
def _cast(x: Spec, dtype: str) -> Spec:
    return Spec(x.shape, dtype_named(dtype))


def _run_constant(d: np.dtype, value: Any, dtype: str) -> Any:
    return number(np.asarray(value, d), value, d)


@define("make", {"constant": _run_constant})
def _constant(value: Any, dtype: str) -> Spec:
    return Spec((), dtype_named(dtype))
