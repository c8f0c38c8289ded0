"""Walking `a if mask else b`: both sides are evaluated, and each lane takes one of them."""

from __future__ import annotations

import ast

from cubepy.compiler.builtin_calls import LOWERED
from cubepy.compiler.ir import (
    Assign,
    Break,
    Continue,
    Expr,
    For,
    If,
    Stmt,
    While,
    expressions,
    walk,
)
from cubepy.compiler.line_loops import LineLoops
from cubepy.compiler.values import Value
from cubepy.errors import KernelTypeError

PURE = (Assign, If, For, While, Break, Continue)
"""Statements of inlined funcs that do no more than compute."""


class Masks(LineLoops):
    """Adds conditional expressions on masks to what can be walked."""

    def lane_by_lane(self, mask: Expr, node: ast.IfExp) -> Value:
        """`a if mask else b`.

        Raises:
            KernelTypeError: a side touches memory, which it would do for the lanes of the other one, too.
        """
        mark = len(self.out)
        a, b = self.eval_all(node.body, node.orelse)
        sides = [v for v in (a, b) if isinstance(v, Expr)]
        if any(v.touches_memory for v in sides) or not all(map(_pure, walk(self.out[mark:]))):
            raise KernelTypeError(
                "both sides of a conditional expression on a mask are evaluated, and one of them touches memory",
                hint="load into a variable before, or use cb.select(mask, a, b)",
            )
        return LOWERED["select"](self, "select", [mask, a, b], {})


def _pure(s: Stmt) -> bool:
    return isinstance(s, PURE) and not any(e.touches_memory for e in expressions(s))
