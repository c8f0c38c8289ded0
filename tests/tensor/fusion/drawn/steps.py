"""The steps of drawn programs: which values they take, and what they do with them.

A step is given whole numbers that were drawn. What it makes of them depends on the ranks of its
values alone, so that the same program can be run for other sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Unfit(Exception):
    """A step does not fit the values that it is given."""


Numbers = tuple[int, ...]


class Kind(NamedTuple):
    """A kind of step.

    Attributes:
        takes: a letter for each value: a float, an integer, a bool, or any of them (*); large for
            one that no rounding has touched.
        run: does it, with functions of a space, values and numbers.
        exact: whether it rounds nothing.
    """

    takes: str
    run: Callable[..., Any]
    exact: bool = False


STEPS: dict[str, list[Kind]] = {}


def step(family: str, *takes: str, exact: bool = False) -> Callable[[Any], Any]:
    """A kind of step, of a family of which all are drawn equally often."""

    def add(run: Any) -> Any:
        STEPS.setdefault(family, []).extend(Kind(one, run, exact) for one in takes)
        return run

    return add


def axis_of(x: Any, number: int) -> int:
    if not x.ndim:
        raise Unfit
    return number % x.ndim


def axes_of(x: Any, number: int) -> tuple[int, ...]:
    """Some axes, one at least."""
    found = tuple(d for d in range(x.ndim) if number >> d & 1)
    if not found:
        raise Unfit
    return tuple(d - x.ndim if number & 64 else d for d in found)


def along(x: Any, axis: int, part: Any) -> Any:
    return x[(slice(None),) * axis + (part,)]


MAPS: list[Callable[[Any, Any], Any]] = [
    lambda xp, x: xp.tanh(x),
    lambda xp, x: xp.exp(xp.tanh(x)),
    lambda xp, x: xp.sin(x) * 2,
    lambda xp, x: x / 3,
    lambda xp, x: 1 - x,
    lambda xp, x: x * 0.5 + 0.25,
    lambda xp, x: xp.sqrt(xp.abs(x) + 1),
    lambda xp, x: xp.activation(x, "gelu"),
    lambda xp, x: xp.activation(x, "silu"),
    lambda xp, x: xp.activation(x, "sigmoid"),
    lambda xp, x: x * x / (xp.abs(x) + 1),
    lambda xp, x: 2.0 / (x * x + 1),
]
EXACT_MAPS: list[Callable[[Any, Any], Any]] = [
    lambda xp, x: -x,
    lambda xp, x: xp.abs(x),
    lambda xp, x: xp.activation(x, "relu"),
    lambda xp, x: xp.clip(x, -1, 1),
    lambda xp, x: xp.full_like(x, 0.75),
    lambda xp, x: xp.zeros_like(x),
    lambda xp, x: xp.maximum(x, -0.5),
    lambda xp, x: x * 2,
    lambda xp, x: xp.where(x > 1, xp.inf, x),
    lambda xp, x: xp.where(x > 0.5, xp.nan, x),
    lambda xp, x: xp.where(xp.isfinite(x), x, 0.5),
    lambda xp, x: xp.where(x < -1, -xp.inf, x),
]
PAIRS: list[Callable[[Any, Any, Any], Any]] = [
    lambda xp, a, b: a + b,
    lambda xp, a, b: a - b,
    lambda xp, a, b: a * xp.tanh(b),
    lambda xp, a, b: xp.tanh(a) * b,
    lambda xp, a, b: a / (xp.abs(b) + 1),
    lambda xp, a, b: a * 0.5 + b,
]


@step("maps", "f", "f")
def _(xp: Any, n: Numbers, x: Any) -> Any:
    return MAPS[n[0] % len(MAPS)](xp, x)


@step("exact maps", "F", exact=True)
def _(xp: Any, n: Numbers, x: Any) -> Any:
    return EXACT_MAPS[n[0] % len(EXACT_MAPS)](xp, x)


@step("pairs", "ff", "ff", "ff")
@step("more pairs", "ff", "fi", "if", "fb")
def _(xp: Any, n: Numbers, x: Any, y: Any) -> Any:
    if x.dtype != y.dtype and "bool" in str(y.dtype):
        return xp.where(y, x, x * 0.25)
    return PAIRS[n[0] % len(PAIRS)](xp, x, y)


@step("narrowed pairs", "ff", "ff", "ff")
def _(xp: Any, n: Numbers, x: Any, y: Any) -> Any:
    """One that is broadcast: its first element of some axes."""
    for axis in range(y.ndim):
        if n[1] >> axis & 1:
            y = along(y, axis, slice(None, 1))
    return PAIRS[n[0] % len(PAIRS)](xp, x, y)


@step("lifted pairs", "f", "f", "ff")
def _(xp: Any, n: Numbers, x: Any, *other: Any) -> Any:
    """One with maps of itself in an array of higher rank, or with another's axes before its own."""
    pair = PAIRS[n[0] % len(PAIRS)]
    if other:
        (y,) = other
        return pair(xp, x, xp.reshape(y, (*y.shape, *(1,) * x.ndim)))
    many = [MAPS[n[k] % len(MAPS)](xp, x) for k in range(1, 2 + n[1] % 3)]
    lifted = xp.stack(many, axis=0) if n[4] % 2 else xp.expand_dims(many[0], axis=n[2] % 2)
    return pair(xp, lifted, x) if n[5] % 2 else pair(xp, x, lifted)


@step("sizes", "f", "f")
def _(xp: Any, n: Numbers, x: Any) -> Any:
    """Numbers that are lengths, or were computed of them: other ones for other sizes."""
    size = x.shape[axis_of(x, n[0])]
    number = [size, size - 1, 1 / (size + 1), size // 2, -size][n[1] % 5]
    full = xp.full_like(x, number)
    made = [lambda: x * number, lambda: x + number, lambda: number - x, lambda: full + x]
    return made[n[2] % 4]()


@step("exact pairs", "FF", "II", exact=True)
def _(xp: Any, n: Numbers, x: Any, y: Any) -> Any:
    return [xp.maximum, xp.minimum][n[0] % 2](x, y)


@step("integers", "ii", exact=True)
def _(xp: Any, n: Numbers, x: Any, y: Any) -> Any:
    return [lambda: x + y, lambda: x - y, lambda: -x, lambda: x * 3, lambda: xp.abs(y)][n[0] % 5]()


@step("comparisons", "FF", "II", exact=True)
def _(xp: Any, n: Numbers, x: Any, y: Any) -> Any:
    return [xp.less, xp.greater_equal, xp.equal, xp.not_equal][n[0] % 4](x, y)


@step("comparisons", "bb", exact=True)
def _(xp: Any, n: Numbers, x: Any, y: Any) -> Any:
    made = [lambda: x & y, lambda: x | y, lambda: ~x, lambda: x ^ y]
    return made[n[0] % 4]()


@step("choices", "bff", "bfF")
def _(xp: Any, n: Numbers, c: Any, x: Any, y: Any) -> Any:
    other = [y, 0.0, xp.inf, xp.nan, y * 2][n[0] % 5]
    return xp.where(c, x, other) if n[1] % 2 else xp.where(c, other, x)


@step("casts", "F", "I", "B", exact=True)
def _(xp: Any, n: Numbers, x: Any, dtypes: tuple[str, ...] = ()) -> Any:
    raise Unfit  # the drawing replaces it: which dtypes there are is the program's


@step("moves", "*", "*", exact=True)
@step("other moves", "*", "*", exact=True)
def _(xp: Any, n: Numbers, x: Any) -> Any:
    axis = axis_of(x, n[0])
    size = x.shape[axis]
    parts = [
        slice(1, None), slice(None, -1), slice(None, None, -1), slice(None, None, 2),
        slice(None, None, -2), slice(-1, None), slice(None, 1), slice(None, size // 2),
        slice(size // 2, None), slice(-2, None, -1), 0, -1, slice(1, -1), slice(0, 0), None,
    ]  # fmt: skip
    kind = n[1] % 6
    if kind < 2:
        part = parts[n[2] % len(parts)]
        if part == slice(0, 0) and n[3] % 4:
            raise Unfit
        return along(x, axis, part)
    if kind == 2:
        return xp.flip(x, axis=axis if n[2] % 3 else axes_of(x, n[3]))
    if kind == 3:
        return xp.roll(x, n[2] % 5 - 2, axis=axis)
    if kind == 4:
        order = np.random.default_rng(n[2]).permutation(x.ndim)
        return xp.permute_dims(x, tuple(int(d) for d in order))
    if n[2] % 2 and x.ndim and "bool" not in str(x.dtype):
        return xp.pad(x, n[3] % 3, n[2] % 3, n[4] % 2)
    return xp.flip(xp.roll(x, 1, axis=axis), axis=axis)


@step("shapes", "*", "*", exact=True)
def _(xp: Any, n: Numbers, x: Any) -> Any:
    axis, shape = axis_of(x, n[0]), tuple(x.shape)
    kind = n[1] % 7
    if kind == 0:
        return xp.reshape(x, (-1,))
    if kind == 1:
        if axis + 1 == x.ndim:
            raise Unfit
        return xp.reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))
    if kind == 2:
        if shape[axis] % 2:
            raise Unfit
        return xp.reshape(x, (*shape[:axis], 2, shape[axis] // 2, *shape[axis + 1 :]))
    if kind == 3:
        return xp.reshape(x, (*shape[:axis], 1, *shape[axis:]))
    if kind == 4:
        return xp.squeeze(x, axis=axis)
    if kind == 5:
        return xp.broadcast_to(x, (n[2] % 3 + 1, *shape))
    return xp.broadcast_to(xp.expand_dims(x, axis=axis), (*shape[:axis], 2, *shape[axis:]))


@step("joins", "**", "*", "***", "ff", "f", exact=True)
@step("more joins", "ff", "**", "*", exact=True)
def _(xp: Any, n: Numbers, *given: Any) -> Any:
    if len({x.dtype for x in given}) > 1:
        raise Unfit
    values = list(given)
    if len(values) == 1:  # one value several times
        values *= n[4] % 3 + 1
    if n[3] % 3 == 0 and "bool" not in str(values[0].dtype):
        values[0] = -values[0]
    if n[1] % 2:
        return xp.stack(
            values, axis=n[0] % (values[0].ndim + 1) - (n[2] % 2) * (values[0].ndim + 1)
        )
    axis = axis_of(values[0], n[0])
    if n[5] % 2:  # a part of each, so that the size may stay
        parts = [xp.chunk(x, len(values), axis) for x in values]
        if any(len(p) < len(values) for p in parts):
            raise Unfit
        values = [p[(k + n[4]) % len(values)] for k, p in enumerate(parts)]
    return xp.concat(values, axis=axis)


@step("parts", "*", "*", exact=True)
def _(xp: Any, n: Numbers, x: Any) -> Any:
    axis = axis_of(x, n[0])
    made = xp.chunk(x, n[1] % 3 + 2, axis) if n[3] % 2 else xp.split(x, n[1] % 2 + 1, axis)
    return made[n[2] % len(made)]


@step("halves", "f", "f", exact=True)
def _(xp: Any, n: Numbers, x: Any) -> Any:
    """The halves of an axis, one with another sign, in the order of a rotary embedding."""
    axis = axis_of(x, n[0])
    a, b = xp.chunk(x, 2, axis)
    return xp.concat([-b, a] if n[1] % 2 else [b, -a], axis=axis)


@step("maps of parts", "f")
def _(xp: Any, n: Numbers, x: Any) -> Any:
    axis = axis_of(x, n[0])
    parts = xp.chunk(x, n[1] % 2 + 2, axis)
    made = [MAPS[n[2 + k] % len(MAPS)](xp, p) for k, p in enumerate(parts)]
    return xp.stack(made, axis=axis) if n[5] % 2 else xp.concat(made, axis=axis)


@step("reductions", "f", "f", "f")
@step("more reductions", "f")
def _(xp: Any, n: Numbers, x: Any) -> Any:
    axes = None if n[0] % 11 == 0 else axes_of(x, n[0]) if n[1] % 2 else axis_of(x, n[0])
    keep = bool(n[2] % 2)
    kind = [xp.sum, xp.mean, xp.max, xp.min][n[3] % 4]
    if n[4] % 3:  # with a map before it, of which something more is left
        x = MAPS[n[5] % len(MAPS)](xp, x)
    made = kind(x, axis=axes, keepdims=keep)
    if n[4] % 2 and keep:
        return x - made if n[5] % 2 else x * xp.tanh(made)
    return made


@step("reductions of others", "B", "I", "F", exact=True)
def _(xp: Any, n: Numbers, x: Any) -> Any:
    axis, keep = axis_of(x, n[0]), bool(n[1] % 2)
    if "bool" in str(x.dtype):
        return xp.any(x, axis, keep)
    return [xp.max, xp.min][n[2] % 2](x, axis=axis, keepdims=keep)


@step("norms", "f", "f", "f")
def _(xp: Any, n: Numbers, x: Any) -> Any:
    axis = axis_of(x, n[0])
    if n[1] % 3 == 0:
        return xp.softmax(x, axis if n[2] % 2 else -1)
    if n[1] % 3 == 1:
        return xp.layer_norm(x, 1 if n[2] % 3 else axis + 1)
    return xp.log_softmax(x, axis if n[2] % 2 else -1)


@step("products", "ff", "ff", "fff", "ffff")
@step("more products", "fff", "ffff")
def _(xp: Any, n: Numbers, x: Any, w: Any, *others: Any) -> Any:
    if w.ndim < 2 or not x.ndim or len({v.dtype for v in (x, w, *others)}) > 1:
        raise Unfit
    bias = others[0] if others and others[0].ndim == 1 else None
    if n[0] % 4 == 0:
        made = x @ w if n[1] % 2 else x @ xp.matrix_transpose(w)
    elif w.ndim == 2:
        made = xp.linear(x, w, bias)
    else:
        raise Unfit
    made = made * 0.5 if n[0] % 5 == 0 else made
    for k, other in enumerate(others[bias is not None :]):
        made = made + other if n[2 + k] % 2 else made * xp.tanh(other) if n[4] % 2 else made * other
    if n[5] % 3:
        made = xp.activation(made, ["relu", "gelu", "silu", "sigmoid"][n[3] % 4])
    return made + others[-1] if others and n[4] % 4 == 3 else made


@step("assignments", "ff", "f", "FF")
@step("more assignments", "ii", "ff")
def _(xp: Any, n: Numbers, x: Any, *values: Any) -> Any:
    """What was written into a copy, with what was read of it before."""
    axis = axis_of(x, n[0])
    if values and (values[0].dtype != x.dtype or values[0].ndim >= x.ndim):
        raise Unfit
    copy = xp.copy(x)
    before = copy * 2
    parts = [slice(1, None), slice(None, -1), 0, -1, slice(None, None, 2), slice(None, None, -1)]
    copy[(slice(None),) * axis + (parts[n[1] % 6],)] = values[0] if values else 1.5
    return copy - before if n[2] % 3 == 0 else copy


@step("running sums", "f")
def _(xp: Any, n: Numbers, x: Any) -> Any:
    axis = axis_of(x, n[0])
    if n[1] % 2 and x.ndim > 1:
        return xp.tril(x, k=n[2] % 3 - 1)
    return xp.tanh(xp.cumulative_sum(x, axis=axis))
