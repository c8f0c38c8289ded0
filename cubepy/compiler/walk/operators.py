"""Operators and comparisons: Python's names as the IR's; what comptime values decide."""

from __future__ import annotations

import ast

from cubepy.compiler import convert
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, TailCount, Value
from cubepy.errors import ComptimeError, KernelSyntaxError

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


def both(s: Scope, a: Value, b: Value) -> Value:
    """`a and b` of two comparisons, lane by lane for masks."""
    if isinstance(a, Const):
        return b if a.value else a
    if isinstance(b, Const):
        return a if b.value else b
    return convert.binary("and_", a, b, s.index)


def compare(s: Scope, op: ast.cmpop, left: Value, right: Value) -> Value:
    """One comparison; `is`, `in`, comparisons of tuples, and those of a tail's lanes with those of
    a whole line, are comptime.
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
    if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        if not (isinstance(left, Const) and isinstance(right, Const)):
            if (
                isinstance(op, (ast.Is, ast.IsNot))
                and isinstance(right, Const)
                and right.value is None
            ):
                return Const(isinstance(op, ast.IsNot))
            raise ComptimeError("is and in compare comptime values only")
        return Const(
            {
                ast.Is: lambda a, b: a is b,
                ast.IsNot: lambda a, b: a is not b,
                ast.In: lambda a, b: a in b,
                ast.NotIn: lambda a, b: a not in b,
            }[type(op)](left.value, right.value)
        )
    return convert.compare(operator(op), left, right, s.index)
