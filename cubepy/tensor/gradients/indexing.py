"""Gradients of ops by integers: what was read several times gets the sum, what was overwritten
none.
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import GradientError
from cubepy.tensor.array import apply, constant, filled
from cubepy.tensor.gradients.elementwise import zero_like
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.namespace import where


@vjp("embedding")
def _embedding(b: Backward, g: Any) -> Any:
    indices, weight = b.inputs
    return None, apply("embedding_gradient", g, indices, rows=weight.shape[0])


@vjp("embedding_gradient")
def _embedding_gradient(b: Backward, g: Any) -> Any:
    return apply("embedding", b.inputs[1], g), None


@vjp("take")
def _take(b: Backward, g: Any) -> Any:
    x, index = b.inputs
    start, axis = filled(0, g, x.shape), b.attrs["axis"]
    return apply("put", start, index, g, axis=axis, update="add"), None


@vjp("put")
def _put(b: Backward, g: Any) -> Any:
    """Of several values that are assigned to one place each gets its gradient, as in torch."""
    _, index, _ = b.inputs
    axis, update = b.attrs["axis"], b.attrs["update"]
    read = None
    if b.needs[2]:
        read = apply("take", g, index, axis=axis, from_end=True)
    if update == "add":
        return g, None, read
    if update != "assign":
        raise GradientError(f"putting with the update {update!r} has no gradient")
    kept = None
    if b.needs[0]:
        kept = apply("put", g, index, zero_like(g), axis=axis, update="assign")
    return kept, None, read


@vjp("gather")
def _gather(b: Backward, g: Any) -> Any:
    x, index = b.inputs
    start = filled(0, g, x.shape)
    return apply("scatter", start, index, g, axis=b.attrs["axis"], update="add"), None


@vjp("take_along_axis")
def _take_along_axis(b: Backward, g: Any) -> Any:
    x, index = b.inputs
    axis = b.attrs["axis"]
    ahead = apply("flat_index", index, lengths=(x.shape[axis],))
    return apply("scatter", filled(0, g, x.shape), ahead, g, axis=axis, update="add"), None


@vjp("scatter")
def _scatter(b: Backward, g: Any) -> Any:
    """Of what was updated by the smallest or largest, those that are it share the gradient."""
    x, index, source = b.inputs
    axis, update = b.attrs["axis"], b.attrs["update"]
    part = tuple(slice(0, n) for n in index.shape)

    def at(t: Any) -> Any:
        return apply("gather", t, index, axis=axis)

    def spread(t: Any) -> Any:
        if t.shape == source.shape:
            return t
        covered = tuple((0, n, 1) for n in t.shape)
        return apply("unslice", t, shape=source.shape, index=covered)

    if update == "add":
        return g, None, spread(at(g)) if b.needs[2] else None
    if update == "assign":
        kept = None
        if b.needs[0]:
            kept = apply("scatter", g, index, filled(0, g, index.shape), axis=axis, update="assign")
        return kept, None, spread(at(g)) if b.needs[2] else None
    result = b.result
    if update == "mul":
        return _of_products(x, index, source[part], g, axis, at, spread)
    one, zero = constant(1, g.dtype), zero_like(g)
    mine, theirs = where(x == result, one, zero), where(source[part] == at(result), one, zero)
    several = apply("scatter", mine, index, theirs, axis=axis, update="add")
    share = g / several
    return share * mine, None, spread(at(share) * theirs)


def _of_products(
    x: Any, index: Any, source: Any, g: Any, axis: int, at: Any, spread: Any
) -> tuple[Any, None, Any]:
    """By x the product of what went to its place; by what went there x times the product of the
    others: all but itself, or, where there is one zero, those that are not that.
    """

    def updated(start: int, parts: Any, update: str) -> Any:
        begin = filled(start, x, x.shape)
        return apply("scatter", begin, index, parts, axis=axis, update=update)

    one, zero = constant(1, x.dtype), zero_like(x)
    is_zero = source == 0
    count = at(updated(0, where(is_zero, one, zero), "add"))
    product, rest = at(updated(1, source, "mul")), where(is_zero, one, source)
    others = where(is_zero, zero, product / rest)
    only = where((count == 1) & is_zero, at(updated(1, rest, "mul")), others)
    return g * updated(1, source, "mul"), None, spread(at(g * x) * only)
