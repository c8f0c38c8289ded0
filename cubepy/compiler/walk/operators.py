"""Operators and comparisons: Python's names as the IR's; what comptime values decide."""

from __future__ import annotations

import ast

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import (
    Const,
    StructValue,
    TailCount,
    TupleValue,
    Value,
    plain,
    tuple_items,
)
from cubepy.errors import ComptimeError, KernelSyntaxError
from cubepy.lang.struct import method_of, mirrored

OPERATORS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.MatMult: "matmul",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "inv",
    ast.Not: "not_",
}

_LESS: dict[type[ast.cmpop], bool] = {
    ast.Lt: True,
    ast.LtE: True,
    ast.NotEq: True,
    ast.Eq: False,
    ast.Gt: False,
    ast.GtE: False,
}

"""What comparisons of a lesser number with a greater one give; `_MORE`, the other way round."""

_MORE = _LESS | {ast.Lt: False, ast.LtE: False, ast.Gt: True, ast.GtE: True}


def operator(op: ast.AST) -> str:
    """The IR's name of a Python operator."""
    try:
        return OPERATORS[type(op)]
    except KeyError:
        raise KernelSyntaxError(
            f"the operator {type(op).__name__} cannot be used in a kernel"
        ) from None


def of_struct(op: str, left: Value, right: Value) -> tuple[StructValue, str, Value] | None:
    """The struct whose method an operator of two values means, that method, and the other value."""
    for owner, other, name in ((left, right, method_of(op)), (right, left, mirrored(op))):
        if isinstance(owner, StructValue) and name in owner.type.methods:
            return owner, name, other
    return None


def of_tuples(op: str, left: Value, right: Value) -> Value | None:
    """Tuples one behind the other, or one several times; None for other operators."""
    if op == "add" and (isinstance(left, TupleValue) or isinstance(right, TupleValue)):
        return plain(TupleValue((*tuple_items(left), *tuple_items(right))))
    for items, times in ((left, right), (right, left)):
        if op == "mul" and isinstance(items, TupleValue) and isinstance(times, Const):
            return plain(TupleValue(items.items * int(times.value)))
    return None


def both(s: Scope, a: Value, b: Value) -> Value:
    """`a and b` of two comparisons, lane by lane for masks."""
    if isinstance(a, Const):
        return b if a.value else a
    if isinstance(b, Const):
        return a if b.value else b
    assert isinstance(a, Expr) and isinstance(b, Expr)
    if not a.type.lanes and not b.type.lanes:  # what `and` would make: guards follow from it
        return Expr("and", convert.BOOL, (a, b))
    return convert.binary("and_", a, b, s.index)


def _of_numbers(left: Value, right: Value) -> bool:
    """Whether a number is looked for in a tuple, and not all of them are comptime."""
    if not (isinstance(right, TupleValue) or isinstance(getattr(right, "value", None), tuple)):
        return False
    values = (left, *tuple_items(right))
    return any(isinstance(v, Expr) for v in values) and not any(
        v.type.lanes if isinstance(v, Expr) else not (isinstance(v, Const) and v.is_number)
        for v in values
    )


def among(s: Scope, number: Value, items: tuple[Value, ...], absent: bool) -> Value:
    """Whether a number equals one of some others, or none."""
    number = s.pinned(number)
    found: Value = Const(False)
    for item in items:
        one = convert.compare("eq", number, item, s.index)
        if isinstance(one, Const):  # of two comptime numbers
            found = one if one.value else found
        elif isinstance(found, Const):
            found = found if found.value else one
        else:
            found = convert.binary("or_", found, one)
        if isinstance(found, Const) and found.value:
            break
    return convert.unary("not_", found) if absent else found


def _is_tuple(value: Value) -> bool:
    return isinstance(value, TupleValue) or isinstance(getattr(value, "value", None), tuple)


def alike(s: Scope, left: Value, right: Value) -> Value:
    """Whether two tuples are equal, item by item."""
    a, b = tuple_items(left), tuple_items(right)
    result: Value = Const(len(a) == len(b))
    for x, y in zip(a, b, strict=False):
        nested = _is_tuple(x) and _is_tuple(y)
        one = alike(s, x, y) if nested else convert.compare("eq", x, y, s.index)
        result = both(s, result, one)
    return result


def compare(s: Scope, op: ast.cmpop, left: Value, right: Value) -> Value:
    """One comparison; `is`, `in` but of numbers, comparisons of tuples, and those of a tail's lanes
    with those of a whole line, are comptime.
    """
    for count, lanes, less in ((left, right, True), (right, left, False)):
        if (
            isinstance(count, TailCount)
            and isinstance(lanes, Const)
            and isinstance(lanes.value, int)
            and lanes.value >= count.lanes
            and type(op) in _LESS
        ):
            return Const(_LESS[type(op)] if less else _MORE[type(op)])
    if isinstance(op, (ast.In, ast.NotIn)) and _of_numbers(left, right):
        return among(s, left, tuple_items(right), isinstance(op, ast.NotIn))
    if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        if not (isinstance(left, Const) and isinstance(right, Const)):
            if (
                isinstance(op, (ast.Is, ast.IsNot))
                and isinstance(right, Const)
                and right.value is None
            ):
                return Const(isinstance(op, ast.IsNot))
            raise ComptimeError(
                "is and in compare comptime values only",
                hint="in also finds a number in a tuple; write == for numbers",
            )
        return Const(
            {
                ast.Is: lambda a, b: a is b,
                ast.IsNot: lambda a, b: a is not b,
                ast.In: lambda a, b: a in b,
                ast.NotIn: lambda a, b: a not in b,
            }[type(op)](left.value, right.value)
        )
    some = isinstance(left, TupleValue) or isinstance(right, TupleValue)
    if some and isinstance(op, (ast.Eq, ast.NotEq)) and _is_tuple(left) and _is_tuple(right):
        same = alike(s, left, right)
        return convert.unary("not_", same) if isinstance(op, ast.NotEq) else same
    return convert.compare(operator(op), left, right, s.index)
