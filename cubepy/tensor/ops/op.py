"""What an op is: its name, what it accepts and gives, what computes it, and its gradient.

The families beside this file define one `Op` for every operation of tensors. A rule is the one
place that says what an op accepts; `run` computes what a rule has accepted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import DType

KINDS = ("make", "map", "view", "reduce", "row", "product", "index", "order", "opaque", "effect")
"""What ops do to their inputs, as far as it decides what they fuse with:

make: of nothing. map: element by element, broadcast. view: other strides of the same elements, or
copies of them. reduce: fewer axes. row: along the last axes, of the same shape. product: sums of
products. index: by integers that are data. order: sorts and scans. opaque: anything else. effect:
changes something outside.
"""


class Spec(NamedTuple):
    """Shape and dtype of a value."""

    shape: tuple[int, ...]
    dtype: DType


spec_of: Callable[[tuple[tuple[int, ...], DType]], Spec] = partial(tuple.__new__, Spec)
"""The spec of a pair, in less than half the time: a trace makes thousands."""

Rule = Callable[..., Any]
"""Of the specs of the inputs (None for absent ones) and the attributes by name; gives the spec of
the result, or a list of those of several results."""
Run = Callable[..., Any]
"""Of the dtype of the (first) result, the arrays (None for absent ones), and the attributes by
name; gives an array, or a list of them."""


Writes = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]


@dataclass
class Op:
    """An operation of tensors.

    Attributes:
        name: what it is called in graphs.
        kind: one of `KINDS`.
        rule: shapes and dtypes of its results; raises where it does not accept its inputs.
        run: computes it on dense storage.
        vjp: its gradient (see `cubepy.tensor.gradients`), or None where it has none.
        constant: whether its results do not change with small changes of its inputs: integers,
            booleans, steps.
        keeps: whether its gradient reads results that nobody else may keep.
        composed: whether it is made of other ops, which it hands storages that are not dense.
        writes: the inputs that it writes in place, such as caches; programs may do so, too. Of an
            op that is made of others: what gives them, of its attributes.
    """

    name: str
    kind: str
    rule: Rule
    run: Run
    vjp: Callable[..., Any] | None = None
    constant: bool = False
    keeps: bool = False
    composed: bool = False
    writes: Writes = ()

    def written(self, attrs: Mapping[str, Any]) -> tuple[int, ...]:
        """The inputs that it writes in place with these attributes."""
        return self.writes(attrs) if callable(self.writes) else self.writes


OPS: dict[str, Op] = {}
"""All ops by name."""


def define(
    kind: str,
    runs: dict[str, Run],
    *,
    constant: bool = False,
    keeps: bool = False,
    composed: bool = False,
    writes: Writes = (),
) -> Callable[[Rule], Rule]:
    """Define ops whose rule is the function below.

    Args:
        kind: one of `KINDS`.
        runs: by the name of an op, what computes it.
        constant, keeps, composed, writes: see `Op`.

    Example:
        >>> @define("map", {"twice": lambda dtype, x: x + x})
        ... def twice(x: Spec) -> Spec:
        ...     return x
        >>> OPS.pop("twice").kind
        'map'
    """
    assert kind in KINDS, kind

    def put(rule: Rule) -> Rule:
        for name, run in runs.items():
            OPS[name] = Op(name, kind, rule, run, None, constant, keeps, composed, writes)
        return rule

    return put


def writes_of(node: Any) -> list[int]:
    """The inputs that a node of a graph writes in place, by their numbers among its own."""
    known = OPS.get(node.op)
    if known is None or not known.writes:
        return []
    return [i for i in known.written(dict(node.attrs)) if i < len(node.inputs)]


def written_in_place(nodes: Iterable[Any]) -> set[int]:
    """The values that nodes of a graph write in place; also ABSENT, where one is not there."""
    return {node.inputs[i] for node in nodes for i in writes_of(node)}


def infer(op: str, specs: Sequence[Spec | None], attrs: dict[str, Any]) -> Any:
    """Shape and dtype of `op` on inputs of these specs; a list, where it has several results.

    Raises:
        ShapeError: shapes that do not go together, with what was expected and what came.
        DTypeError: dtypes that the op does not take.
    """
    return OPS[op].rule(*specs, **attrs)


def broadcast(*specs: Spec) -> tuple[int, ...]:
    """The shape that specs broadcast to."""
    rank = max(len(s.shape) for s in specs)
    out = []
    for d in range(-rank, 0):
        lengths = [s.shape[d] for s in specs if len(s.shape) >= -d]
        length = next((n for n in lengths if n != 1), 1)
        if any(n != 1 and n != length for n in lengths):
            shapes = " and ".join(str(s.shape) for s in specs)
            found = sorted({*lengths} - {1})
            raise ShapeError(
                f"the shapes {shapes} do not broadcast together",
                hint=f"axis {d} has the lengths {found}; they must be equal or 1",
            )
        out.append(length)
    return tuple(out)


def plain_axes(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes whose axis, or axes, are ints of Python: NumPy's count as well."""
    axis = attrs.get("axis")
    if axis is None or type(axis) is int:
        return attrs
    if type(axis) is tuple:
        return {**attrs, "axis": tuple(map(_plain_axis, axis))}
    return {**attrs, "axis": _plain_axis(axis)}


def _plain_axis(axis: Any) -> Any:
    return operator.index(axis) if hasattr(axis, "__index__") else axis


def axis_in(axis: int, rank: int, op: str) -> int:
    """The axis counted from the front."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ShapeError(f"{op}: axis {axis} is out of range for a tensor of rank {rank}")
    return axis % rank


def axes_in(axis: Any, rank: int, op: str) -> tuple[int, ...]:
    """The axes that an axis, a tuple of them or None (all) names, counted from the front."""
    if axis is None:
        return tuple(range(rank))
    axes = tuple(axis_in(a, rank, op) for a in (axis if isinstance(axis, tuple) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op}: the axes {axis} name one axis twice")
    return axes
