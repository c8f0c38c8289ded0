"""Shapes and dtypes of every op, with all their checks: the one place that says what an op
accepts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cubepy.errors import DTypeError, ShapeError
from cubepy.lang import mathematics
from cubepy.lang.dtypes import DType, bool_, f32, float_for, i64, promote, true_divide_dtype, u64


class Spec(NamedTuple):
    """Shape and dtype of a value."""

    shape: tuple[int, ...]
    dtype: DType


Rule = Callable[..., Spec]
RULES: dict[str, Rule] = {}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "pow", "minimum", "maximum")
LOGICAL = ("and", "or", "xor")
FLOAT_UNARY = (
    "exp",
    "log",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tanh",
    "erf",
    "sigmoid",
    "silu",
)
SAME_UNARY = ("neg", "abs", "relu", "floor", "ceil", "round")


def infer(op: str, specs: Sequence[Spec | None], attrs: dict[str, Any]) -> Spec:
    """Shape and dtype of `op` on inputs of these specs.

    Raises:
        ShapeError: shapes that do not go together, with what was expected and what came.
        DTypeError: dtypes that the op does not take.
    """
    return RULES[op](*specs, **attrs)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under op names."""

    def put(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return put


def broadcast(*specs: Spec) -> tuple[int, ...]:
    """The shape that specs broadcast to."""
    rank = max(len(s.shape) for s in specs)
    out = []
    for d in range(-rank, 0):
        sizes = {s.shape[d] for s in specs if len(s.shape) >= -d} - {1}
        if len(sizes) > 1:
            shapes = " and ".join(str(s.shape) for s in specs)
            raise ShapeError(
                f"the shapes {shapes} do not broadcast together",
                hint=f"axis {d} has the lengths {sorted(sizes)}; they must be equal or 1",
            )
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def axis_in(axis: int, rank: int, op: str) -> int:
    """The axis counted from the front."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ShapeError(f"{op}: axis {axis} is out of range for a tensor of rank {rank}")
    return axis % rank


@rule(*ARITHMETIC)
def _arithmetic(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast(a, b), promote(a.dtype, b.dtype))


@rule("div")
def _div(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast(a, b), true_divide_dtype(a.dtype, b.dtype))


@rule(*COMPARISONS)
def _compare(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast(a, b), bool_)


@rule(*LOGICAL)
def _logical(a: Spec, b: Spec) -> Spec:
    if a.dtype.is_float or b.dtype.is_float:
        raise DTypeError(
            f"& | ^ work on booleans and integers, not {a.dtype.name} and {b.dtype.name}"
        )
    return Spec(broadcast(a, b), promote(a.dtype, b.dtype))


@rule("where")
def _where(mask: Spec, a: Spec, b: Spec) -> Spec:
    if mask.dtype is not bool_:
        raise DTypeError(
            f"where needs a boolean condition, not {mask.dtype.name}",
            hint="compare first, as in x > 0",
        )
    return Spec(broadcast(mask, a, b), promote(a.dtype, b.dtype))


@rule(*FLOAT_UNARY)
def _float_unary(x: Spec) -> Spec:
    return Spec(x.shape, float_for(x.dtype))


@rule(*mathematics.UNARY)
def _mathematics(x: Spec) -> Spec:
    return _float_unary(x)


@rule(*mathematics.BINARY)
def _float_binary(a: Spec, b: Spec) -> Spec:
    return Spec(broadcast(a, b), float_for(promote(a.dtype, b.dtype)))


@rule("sign")
def _sign(x: Spec) -> Spec:
    if x.dtype is bool_:
        raise DTypeError("sign works on numbers, not bool_")
    return _same_unary(x)


@rule("gelu")
def _gelu(x: Spec, approximate: str) -> Spec:
    if approximate not in ("none", "tanh"):
        raise ShapeError(f'approximate is "none" or "tanh", not {approximate!r}')
    return Spec(x.shape, float_for(x.dtype))


@rule(*SAME_UNARY)
def _same_unary(x: Spec) -> Spec:
    return Spec(x.shape, x.dtype.compute)


@rule("not")
def _not(x: Spec) -> Spec:
    if x.dtype is not bool_:
        raise DTypeError(f"~ works on booleans, not {x.dtype.name}")
    return x


@rule("cast")
def _cast(x: Spec, dtype: str) -> Spec:
    from cubepy.lang.dtypes import dtype_named

    return Spec(x.shape, dtype_named(dtype))


@rule("contiguous")
def _contiguous(x: Spec) -> Spec:
    return x


@rule("constant")
def _constant(value: Any, dtype: str) -> Spec:
    from cubepy.lang.dtypes import dtype_named

    return Spec((), dtype_named(dtype))


def _axes(axis: Any, rank: int, op: str) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    axes = tuple(axis_in(a, rank, op) for a in (axis if isinstance(axis, tuple) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op}: the axes {axis} name one axis twice")
    return axes


def _reduced(x: Spec, axis: Any, keepdims: bool, op: str) -> tuple[int, ...]:
    axes = _axes(axis, len(x.shape), op)
    if op in ("max", "min", "argmax", "argmin") and any(x.shape[a] == 0 for a in axes):
        raise ShapeError(f"the {op} of an empty axis is not defined (shape {x.shape})")
    return tuple(1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes)


@rule("sum", "prod")
def _sum(x: Spec, axis: Any, keepdims: bool) -> Spec:
    d = x.dtype.compute
    return Spec(
        _reduced(x, axis, keepdims, "sum"), d if d.is_float else (u64 if d.kind == "u" else i64)
    )


@rule("mean")
def _mean(x: Spec, axis: Any, keepdims: bool) -> Spec:
    return Spec(_reduced(x, axis, keepdims, "mean"), float_for(x.dtype))


@rule("max", "min")
def _extreme(x: Spec, axis: Any, keepdims: bool) -> Spec:
    return Spec(_reduced(x, axis, keepdims, "max"), x.dtype.compute)


@rule("argmax", "argmin")
def _arg(x: Spec, axis: Any, keepdims: bool) -> Spec:
    if isinstance(axis, tuple):
        raise ShapeError(f"argmax and argmin take one axis or None, not {axis}")
    return Spec(_reduced(x, axis, keepdims, "argmax"), i64)


@rule("reshape")
def _reshape(x: Spec, shape: tuple[int, ...]) -> Spec:
    size, open_axes = math.prod(x.shape), [d for d, n in enumerate(shape) if n == -1]
    known = math.prod(n for n in shape if n != -1)
    fits = len(open_axes) <= 1 and all(n >= -1 for n in shape)
    if fits and open_axes:
        fits = known > 0 and size % known == 0
        shape = tuple(size // known if n == -1 and known else n for n in shape)
    elif fits:
        fits = known == size
    if not fits:
        raise ShapeError(
            f"a tensor of shape {x.shape} ({size} elements) cannot be reshaped to {shape}",
            hint="the products must be equal; at most one length may be -1",
        )
    return Spec(shape, x.dtype)


@rule("permute")
def _permute(x: Spec, axes: tuple[int, ...]) -> Spec:
    rank = len(x.shape)
    order = tuple(axis_in(a, rank, "permute") for a in axes)
    if sorted(order) != list(range(rank)):
        raise ShapeError(
            f"the axes {axes} are no permutation of the {rank} axes of shape {x.shape}"
        )
    return Spec(tuple(x.shape[a] for a in order), x.dtype)


@rule("expand")
def _expand(x: Spec, shape: tuple[int, ...]) -> Spec:
    lead = len(shape) - len(x.shape)
    if lead < 0 or any(n not in (1, m) for n, m in zip(x.shape, shape[lead:], strict=True)):
        raise ShapeError(f"a tensor of shape {x.shape} cannot be expanded to {shape}")
    return Spec(shape, x.dtype)


@rule("slice")
def _slice(x: Spec, index: tuple[Any, ...]) -> Spec:
    """`index`: an int, "new", or (start, stop, step) for each axis, as `Tensor.__getitem__` wrote
    it.
    """
    shape, d = [], 0
    for part in index:
        if part == "new":
            shape.append(1)
            continue
        if isinstance(part, tuple):
            shape.append(len(range(*slice(*part).indices(x.shape[d]))))
        elif not -x.shape[d] <= part < x.shape[d]:
            raise ShapeError(
                f"index {part} is outside axis {d} of length {x.shape[d]} (shape {x.shape})"
            )
        d += 1
    return Spec((*shape, *x.shape[d:]), x.dtype)


@rule("concat")
def _concat(*xs: Spec, axis: int) -> Spec:
    first = xs[0]
    at = axis_in(axis, len(first.shape), "concat")
    dtype = first.dtype
    for x in xs[1:]:
        dtype = promote(dtype, x.dtype)
        if len(x.shape) != len(first.shape) or any(
            n != m for d, (n, m) in enumerate(zip(x.shape, first.shape, strict=True)) if d != at
        ):
            raise ShapeError(
                f"concat along axis {at}: {x.shape} does not match {first.shape} on the other axes"
            )
    return Spec((*first.shape[:at], sum(x.shape[at] for x in xs), *first.shape[at + 1 :]), dtype)


@rule("matmul")
def _matmul(a: Spec, b: Spec) -> Spec:
    if not a.shape or not b.shape:
        raise ShapeError(f"matmul needs rank 1 or more, not shapes {a.shape} and {b.shape}")
    x = (1, *a.shape) if len(a.shape) == 1 else a.shape
    y = (*b.shape, 1) if len(b.shape) == 1 else b.shape
    if x[-1] != y[-2]:
        raise ShapeError(
            f"matmul of {a.shape} and {b.shape}: the inner lengths are {x[-1]} and {y[-2]}",
            hint="the last axis of a must be as long as the second last of b",
        )
    batch = broadcast(Spec(x[:-2], a.dtype), Spec(y[:-2], b.dtype))
    rows = () if len(a.shape) == 1 else (x[-2],)
    columns = () if len(b.shape) == 1 else (y[-1],)
    return Spec((*batch, *rows, *columns), promote(a.dtype, b.dtype))


@rule("linear")
def _linear(
    x: Spec, weight: Spec, bias: Spec | None, residual: Spec | None, activation: str | None
) -> Spec:
    if len(weight.shape) != 2 or not x.shape or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear of an input {x.shape} and a weight {weight.shape}: "
            "expected an input (..., in) and a weight (out, in)",
            hint="weights have the layout of torch.nn.Linear: (out_features, in_features)",
        )
    if bias is not None and bias.shape != (weight.shape[0],):
        raise ShapeError(f"linear: expected a bias of shape {(weight.shape[0],)}, got {bias.shape}")
    shape = (*x.shape[:-1], weight.shape[0])
    if residual is not None and residual.shape != shape:
        raise ShapeError(f"linear: expected a residual of shape {shape}, got {residual.shape}")
    return Spec(shape, promote(x.dtype, weight.dtype))


@rule("embedding")
def _embedding(indices: Spec, weight: Spec) -> Spec:
    if not indices.dtype.is_int:
        raise DTypeError(f"embedding needs integer indices, not {indices.dtype.name}")
    if len(weight.shape) != 2:
        raise ShapeError(f"expected an embedding table of rank 2, got shape {weight.shape}")
    return Spec((*indices.shape, weight.shape[1]), weight.dtype)


def _float(x: Spec) -> DType:
    """Floats stay, integers become f32."""
    return x.dtype if x.dtype.is_float and not x.dtype.storage_only else f32


@rule("softmax")
def _softmax(x: Spec, axis: int) -> Spec:
    axis_in(axis, len(x.shape), "softmax")
    return Spec(x.shape, _float(x))


@rule("layer_norm")
def _layer_norm(
    x: Spec, weight: Spec | None, bias: Spec | None, normalized_shape: tuple[int, ...], eps: float
) -> Spec:
    if not normalized_shape or x.shape[len(x.shape) - len(normalized_shape) :] != normalized_shape:
        raise ShapeError(
            f"layer_norm: expected an input that ends with {normalized_shape}, got {x.shape}"
        )
    for name, part in (("weight", weight), ("bias", bias)):
        if part is not None and part.shape != normalized_shape:
            raise ShapeError(
                f"layer_norm: expected a {name} of shape {normalized_shape}, got {part.shape}"
            )
    return Spec(x.shape, _float(x))


@rule("attention")
def _attention(
    q: Spec, k: Spec, v: Spec, mask: Spec | None, is_causal: bool, scale: float | None
) -> Spec:
    if len(q.shape) != 4 or len(k.shape) != 4 or len(v.shape) != 4:
        raise ShapeError(
            f"attention: expected rank 4 (batch, heads, length, depth), got {q.shape}, "
            f"{k.shape}, {v.shape}"
        )
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]) or k.shape[:3] != v.shape[:3]:
        raise ShapeError(
            f"attention: query {q.shape}, key {k.shape} and value {v.shape} do not go together"
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ShapeError(
            f"attention: {k.shape[1]} key heads do not divide {q.shape[1]} query heads"
        )
    if mask is not None:
        full = (*q.shape[:3], k.shape[2])
        try:
            fits = broadcast(mask, Spec(full, q.dtype)) == full
        except ShapeError:
            fits = False
        if not fits:
            raise ShapeError(
                f"attention: expected a mask that broadcasts to {full}, got {mask.shape}"
            )
    return Spec((*q.shape[:3], v.shape[3]), _float(q))
