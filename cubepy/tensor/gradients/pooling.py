"""Gradients of pools and of interpolation. Means and interpolation are linear maps, whose gradients
are the transposed maps; a largest value passes its gradient on to where it was.
"""

from __future__ import annotations

from typing import Any

from cubepy.tensor.array import apply, filled
from cubepy.tensor.control.sampled import grid_sampled
from cubepy.tensor.gradients.functional import by_values, through_formula
from cubepy.tensor.gradients.rules import Backward, vjp


def _size(b: Backward) -> tuple[int, ...]:
    return b.inputs[0].shape[2:]  # type: ignore[no-any-return]


def _without(attrs: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if name not in names}


@vjp("max_pool", "adaptive_max_pool")
def _max_pool(b: Backward, g: Any, by_indices: Any = None) -> Any:
    if g is None:
        return (None,)
    how, adaptive = _without(b.attrs, "indices"), "size" in b.attrs
    op = "adaptive_max_pool" if adaptive else "max_pool"
    indices = b.results[1] if len(b.results) > 1 else None
    if indices is None:
        indices = apply(op, b.inputs[0], **how, indices=True)[1]
    back = (
        "adaptive_max_pool_input" if adaptive else "max_pool_input"
    )  # one text: its address is asked
    return apply(back, g, indices.detach(), **{**how, "size": _size(b)})


@vjp("max_pool_input", "adaptive_max_pool_input")
def _max_pool_input(b: Backward, v: Any) -> Any:
    return apply("at_positions", v, b.inputs[1]), None


@vjp("at_positions")
def _at_positions(b: Backward, g: Any) -> Any:
    x, indices = b.inputs
    return apply("to_positions", g, indices, size=x.shape[2:]), None


@vjp("to_positions")
def _to_positions(b: Backward, v: Any) -> Any:
    return apply("at_positions", v, b.inputs[1]), None


@vjp("avg_pool")
def _avg_pool(b: Backward, g: Any) -> Any:
    return apply("avg_pool_input", g, **b.attrs, size=_size(b))


@vjp("avg_pool_input")
def _avg_pool_input(b: Backward, v: Any) -> Any:
    return apply("avg_pool", v, **_without(b.attrs, "size"))


_TRANSPOSED = {"adaptive_avg_pool": "adaptive_avg_pool_input", "interpolate": "interpolate_input"}


def _pair(op: str, other: str) -> None:
    """Say that two linear maps to a size are each other's gradients."""

    @vjp(op)
    def _back(b: Backward, g: Any) -> Any:
        return apply(other, g, **{**b.attrs, "size": _size(b)})


for _op, _other in _TRANSPOSED.items():
    _pair(_op, _other)
    _pair(_other, _op)


@vjp("grid_sample")
def _grid_sample(b: Backward, g: Any) -> Any:
    x, grid = b.inputs
    by_x = by_grid = None
    if b.needs[0]:
        by_x = apply("grid_sample_input", g, grid, **{**b.attrs, "size": x.shape[2:]})
    if b.needs[1]:
        by_grid = _by_grid(x, grid, g, b.attrs)
    return by_x, by_grid


def _by_grid(x: Any, grid: Any, g: Any, how: dict[str, Any]) -> Any:
    """The gradient by a grid, of which steps do not depend."""
    if how["mode"] == "nearest":
        return filled(0, grid, grid.shape)
    return apply("grid_sample_grid", x, grid, g, **how)


@vjp("grid_sample_input")
def _grid_sample_input(b: Backward, v: Any) -> Any:
    """It is linear in the gradient."""
    g, grid = b.inputs
    how = _without(b.attrs, "size")
    by_g = apply("grid_sample", v, grid, **how) if b.needs[0] else None
    return by_g, _by_grid(v, grid, g, how) if b.needs[1] else None


@vjp("grid_sample_grid")
def _grid_sample_grid(b: Backward, v: Any) -> Any:
    """By the formula, whose gradient is taken once more."""
    how = b.attrs

    def formula(x: Any, grid: Any, g: Any) -> Any:
        y = grid_sampled(x, grid, how["mode"], how["padding"], how["align"])
        (by_grid,) = by_values(y, [grid.value], g, create_graph=True)
        return (by_grid,)

    return through_formula(formula, b.inputs, [v])
