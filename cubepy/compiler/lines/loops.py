"""Walking `for k, valid in cb.lines(...)`: a loop over whole lines, and its body again for the
rest.

In the loop `valid` is comptime, the lanes of a line, so that what it guards costs nothing there;
behind the loop it is a runtime count, less than the lanes.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.builtin_calls import lowers, unpack
from cubepy.compiler.ir import Assign, Expr, If, Stmt
from cubepy.compiler.loops import Loops
from cubepy.compiler.statements import Path
from cubepy.compiler.values import (
    Const,
    LinesValue,
    RangeValue,
    TupleValue,
    Undecided,
    UnrollValue,
    Value,
    describe,
)
from cubepy.errors import KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType

COUNTS = ("size", "shape")
"""Operations whose values are not negative."""


@dataclass(frozen=True)
class TailCount(Expr):
    """How many lanes a tail has: less than `lanes`, and never changed."""

    lanes: int = 0


@dataclass(frozen=True)
class Tail(TupleValue):
    """Where the tail begins, and how many lanes it has: of values that nothing changes."""


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


class LineLoops(Loops):
    """Adds loops over lines to what can be walked."""

    def bind_item(self, target: ast.expr, value: Value, rebound: frozenset[str]) -> None:
        """Bind the variables of a turn; those of a tail need no variables of their own."""
        if not isinstance(value, Tail):
            super().bind_item(target, value, rebound)
            return
        assert isinstance(target, ast.Tuple)
        for t, v in zip(target.elts, value.items, strict=True):
            assert isinstance(t, ast.Name)
            if t.id in rebound or (*self.frame.path, t.id) in self.facts.runtime:
                self.bind_target(t, v)
            else:
                self.frame.env[t.id] = v

    def loop_over(self, node: ast.For, over: Value) -> list[Path] | None:
        """Walk a loop over a value."""
        if isinstance(over, LinesValue):
            return self.lines_loop(node, over)
        return super().loop_over(node, over)

    def pinned(self, value: Value, hint: str = "t") -> Value:
        """The value, in a variable unless it is one, is comptime, or counts the lanes of a tail."""
        return value if isinstance(value, TailCount) else super().pinned(value, hint)

    def compare(self, op: ast.cmpop, left: Value, right: Value) -> Value:
        """One comparison; that of a tail's lanes with those of a whole line is comptime."""
        for count, lanes, less in ((left, right, True), (right, left, False)):
            if (
                isinstance(count, TailCount)
                and isinstance(lanes, Const)
                and isinstance(lanes.value, int)
                and lanes.value >= count.lanes
                and type(op) in _LESS
            ):
                return Const(_LESS[type(op)] if less else _MORE[type(op)])
        return super().compare(op, left, right)

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
            left_by = self.fresh("left")
            self.types[left_by] = convert.BOOL
            self.emit(Assign(left_by, convert.constant(False, dt.bool_)))
        region = self.region()
        inside = ((count.id, lanes),)
        paths = self.range_loop(node, RangeValue(start, whole, lanes), position, inside, left_by)
        if paths is not None:
            self.join(region, paths)
        some = convert.compare("lt", whole, stop, self.index)
        if lanes.value == 1 or (isinstance(some, Const) and not some.value):
            self.forget(targets, [path := Path(self.out, self.frame.env)])
            return [path]
        if left_by:
            here = Expr("not_", convert.BOOL, (Expr("var", convert.BOOL, (), left_by),))
            if isinstance(some, Const):
                some = here
            else:
                some = Expr("and", convert.BOOL, (convert.runtime(some), here))
        left = convert.binary("sub", stop, whole, self.index)
        if isinstance(left, Expr):
            left = TailCount(left.op, left.type, left.args, left.attr, lanes.value)
        rest = UnrollValue((Tail((whole, left)),))
        if isinstance(some, Const):
            paths = self.unroll(node, rest)
        else:
            saved, env, then = self.out, dict(self.frame.env), list[Stmt]()
            self.out = then
            paths = self.unroll(node, rest)
            self.out, self.frame.env = saved, env
            orelse: list[Stmt] = []
            self.emit(If(some, then, orelse))  # type: ignore[arg-type]
            paths = [*paths, Path(orelse, dict(env))]
        self.forget(targets, paths)
        return paths

    def settled(self, value: Value, hint: str) -> Value:
        """A value that the loop's body cannot change."""
        return value if isinstance(value, Const) else self.temporary(convert.runtime(value), hint)

    def lines_dtype(self, over: LinesValue) -> DType:
        """The dtype in which a loop counts: as that of a range."""
        dtype = self.index
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
        length = stop if start == Const(0) else convert.binary("sub", stop, start, self.index)
        if lanes.value > 1:
            length = convert.binary("floordiv", length, lanes, self.index)
            length = convert.binary("mul", length, lanes, self.index)
        return length if start == Const(0) else convert.binary("add", start, length, self.index)

    def forget(self, targets: list[ast.expr], paths: list[Path]) -> None:
        """Let the variables of a loop end with it, unless they are ordinary variables."""
        for target in targets:
            assert isinstance(target, ast.Name)
            key = (*self.frame.path, target.id)
            for path in paths:
                if key not in self.facts.runtime and target.id in path.env:
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


@lowers("lines")
def _lines(s: Any, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    start, stop, lanes_v = unpack(name, args, kwargs, "start", "stop", "lanes")
    lanes = s.comptime_int(lanes_v, "the lane count of cb.lines")
    if lanes < 1:
        raise KernelTypeError(f"a line has at least one lane, not {lanes}")
    for bound in (start, stop):
        if isinstance(bound, Const) and (
            isinstance(bound.value, bool) or not hasattr(bound.value, "__index__")
        ):
            raise KernelTypeError(f"cb.lines needs integers, not {bound.value!r}")
        if not isinstance(bound, (Const, Expr)):
            raise KernelTypeError(f"cb.lines needs integers, not {describe(bound)}")
        if isinstance(bound, Expr) and (bound.type.lanes or not bound.type.dtype.is_int):
            raise KernelTypeError(
                f"cb.lines needs integers, not {describe(bound)}",
                hint="cast the bound with cb.cast",
            )
    return LinesValue(start, stop, Const(lanes))
