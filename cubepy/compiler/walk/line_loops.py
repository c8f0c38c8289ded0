"""Walking `for k, valid in cb.lines(...)`: a loop over whole lines, and its body again for the
rest.

In the loop `valid` is comptime, the lanes of a line, so that what it guards costs nothing there;
behind the loop it is a runtime count, less than the lanes.
"""

from __future__ import annotations

import ast
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.ir import Assign, Expr, If, Stmt
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import (
    Const,
    LinesValue,
    RangeValue,
    Tail,
    TailCount,
    Undecided,
    UnrollValue,
    Value,
)
from cubepy.compiler.walk.loops import Loops
from cubepy.compiler.walk.paths import Path, Paths
from cubepy.errors import KernelSyntaxError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType

COUNTS = ("size", "shape")

"""Operations whose values are not negative."""


class LineLoops:
    """Walks loops over lines.

    Attributes:
        scope, paths: the walker's.
        loops: walks the whole lines, and the rest as a turn that is written out.
    """

    def __init__(self, scope: Scope, paths: Paths, loops: Loops) -> None:
        self.scope, self.paths, self.loops = scope, paths, loops

    def lines_loop(self, node: ast.For, over: LinesValue) -> list[Path] | None:
        """Walk the body for whole lines, in a loop, and again for the lanes that are left."""
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else []
        if len(targets) != 2 or not all(isinstance(t, ast.Name) for t in targets):
            raise KernelSyntaxError(
                "a loop over cb.lines has two variables: "
                "where a line begins, and how many of its lanes are there",
                hint="for k, valid in cb.lines(start, stop, lanes):",
            )
        position, count = targets
        assert isinstance(count, ast.Name) and isinstance(over.step, Const)
        dtype = self.lines_dtype(over)
        start = self.settled(_typed(over.start, dtype), "begin")
        stop = self.settled(self.end_of(start, over.stop, dtype), "end")
        lanes = over.step
        whole = self.settled(self.whole_lines(start, stop, lanes), "whole")
        left_by = ""
        if _has_break(node):
            left_by = self.scope.fresh("left")
            self.scope.types[left_by] = convert.BOOL
            self.scope.emit(Assign(left_by, convert.constant(False, dt.bool_)))
        region = self.paths.region()
        inside = ((count.id, lanes),)
        paths = self.loops.range_loop(
            node, RangeValue(start, whole, lanes), position, inside, left_by
        )
        if paths is not None:
            self.paths.join(region, paths)
        some = convert.compare("lt", whole, stop, self.scope.index)
        if lanes.value == 1 or (isinstance(some, Const) and not some.value):
            self.forget(targets, [path := Path(self.scope.out, self.scope.frame.env)])
            return [path]
        if left_by:
            here = Expr("not_", convert.BOOL, (Expr("var", convert.BOOL, (), left_by),))
            if isinstance(some, Const):
                some = here
            else:
                some = Expr("and", convert.BOOL, (convert.runtime(some), here))
        left = convert.binary("sub", stop, whole, self.scope.index)
        if isinstance(left, Expr):
            left = TailCount(left.op, left.type, left.args, left.attr, lanes.value)
        rest = UnrollValue((Tail((whole, left)),))
        if isinstance(some, Const):
            paths = self.loops.unroll(node, rest)
        else:
            saved, env, then = self.scope.out, dict(self.scope.frame.env), list[Stmt]()
            self.scope.out = then
            paths = self.loops.unroll(node, rest)
            self.scope.out, self.scope.frame.env = saved, env
            orelse: list[Stmt] = []
            self.scope.emit(If(some, then, orelse))  # type: ignore[arg-type]
            paths = [*paths, Path(orelse, dict(env))]
        self.forget(targets, paths)
        return paths

    def settled(self, value: Value, hint: str) -> Value:
        """A value that the loop's body cannot change."""
        return (
            value
            if isinstance(value, Const)
            else self.scope.temporary(convert.runtime(value), hint)
        )

    def lines_dtype(self, over: LinesValue) -> DType:
        """The dtype in which a loop counts: as that of a range."""
        dtype = self.scope.index
        for bound in (over.start, over.stop):
            if (
                isinstance(bound, Expr)
                and not bound.type.weak
                and bound.type.dtype.bits >= dtype.bits
            ):
                dtype = dt.promote(dtype, bound.type.dtype)
        return dtype

    def end_of(self, start: Value, stop: Value, dtype: DType) -> Value:
        """Where a loop ends: not before its start."""
        if isinstance(start, Const) and isinstance(stop, Const):
            return Const(max(start.value, stop.value))
        if start == Const(0) and isinstance(stop, Expr) and stop.op in COUNTS:
            return _typed(stop, dtype)
        first, last = convert.to(start, dtype), convert.to(stop, dtype)
        return Expr("call", last.type, (last, first), "max")

    def whole_lines(self, start: Value, stop: Value, lanes: Const) -> Value:
        """Where the last whole line ends."""
        length = stop if start == Const(0) else convert.binary("sub", stop, start, self.scope.index)
        if lanes.value > 1:
            length = convert.binary("floordiv", length, lanes, self.scope.index)
            length = convert.binary("mul", length, lanes, self.scope.index)
        return (
            length if start == Const(0) else convert.binary("add", start, length, self.scope.index)
        )

    def forget(self, targets: list[ast.expr], paths: list[Path]) -> None:
        """Let the variables of a loop end with it, unless they are ordinary variables."""
        for target in targets:
            assert isinstance(target, ast.Name)
            key = (*self.scope.frame.path, target.id)
            for path in paths:
                if target.id in path.env and not self.scope.facts.is_runtime(key):
                    path.env[target.id] = Undecided(
                        f"{target.id!r} is the variable of a loop that may not have run", key
                    )


def _typed(bound: Value, dtype: DType) -> Value:
    """A bound in the loop's dtype; a comptime one stays so."""
    return bound if isinstance(bound, Const) else convert.to(bound, dtype)


def _has_break(node: ast.For) -> bool:
    """Whether a loop holds a break of its own."""

    def found(body: list[Any]) -> bool:
        for item in body:
            if isinstance(item, ast.Break):
                return True
            if isinstance(item, ast.If) and (found(item.body) or found(item.orelse)):
                return True
        return False

    return found(node.body)
