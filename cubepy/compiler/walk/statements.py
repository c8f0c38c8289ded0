"""Walking statements: each kind goes to the part that knows it; branches and jumps are here."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.ir import Assign, Break, Continue, Expr, If
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, LinesValue, RangeValue, TupleValue, UnrollValue
from cubepy.compiler.walk.assignments import Assignments
from cubepy.compiler.walk.evaluator import Evaluator
from cubepy.compiler.walk.line_loops import LineLoops
from cubepy.compiler.walk.loops import Loops
from cubepy.compiler.walk.paths import Marker, Path, Paths
from cubepy.compiler.walk.returns import Returns
from cubepy.compiler.walk.syntax import unsupported
from cubepy.errors import ComptimeError, KernelSyntaxError
from cubepy.lang import dtypes as dt
from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func


class Statements:
    """Walks statements.

    Attributes:
        scope, evaluator, paths: the walker's.
        loops, line_loops: walk what is looped over.
        walks: what walks each kind of statement, and gives the paths after it.
    """

    def __init__(
        self,
        scope: Scope,
        evaluator: Evaluator,
        paths: Paths,
        assignments: Assignments,
        returns: Returns,
    ) -> None:
        self.scope, self.evaluator, self.paths = scope, evaluator, paths
        self.loops = Loops(scope, evaluator, paths, assignments, returns)
        self.line_loops = LineLoops(scope, paths, self.loops)
        self.walks: dict[type[ast.stmt], Callable[[Any], list[Path] | None]] = {
            ast.Pass: lambda node: None,
            ast.Expr: self.expression,
            ast.Assert: self.assertion,
            ast.Assign: assignments.assign,
            ast.AnnAssign: assignments.annotated,
            ast.AugAssign: assignments.augmented,
            ast.If: self.branches,
            ast.For: self.for_loop,
            ast.While: self.loops.while_loop,
            ast.Break: lambda node: self.jump(end=True),
            ast.Continue: lambda node: self.jump(end=False),
            ast.Return: returns.leave,
        }

    def walk(self, node: ast.stmt) -> list[Path] | None:
        """Walk one statement; gives the paths after it, None for the one that is being written."""
        method = self.walks.get(type(node))
        if method is None:
            raise unsupported(node, self.scope.location)
        return method(node)

    def expression(self, node: ast.Expr) -> None:
        """A call, or a docstring."""
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        value = self.evaluator.unread(node.value)
        if isinstance(value, Const) and isinstance(value.value, (Builtin, Func)):
            name = ast.unparse(node.value)
            raise KernelSyntaxError(
                f"{name} is named and not called, which does nothing", hint=f"write {name}(...)"
            )
        if isinstance(value, Expr) and value.op == "call":
            self.scope.temporary(value)

    def assertion(self, node: ast.Assert) -> None:
        """`assert` of what is comptime."""
        cond = convert.condition(self.evaluator.test(node.test))
        if isinstance(cond, Const):
            if not cond.value:
                said = None if node.msg is None else self.evaluator.eval(node.msg)
                text = said.value if isinstance(said, Const) else ast.unparse(node.msg or node.test)
                raise ComptimeError(f"a comptime assertion failed: {text}")
            return
        raise KernelSyntaxError(
            "assert needs a comptime condition in a kernel",
            hint="use cb.debug_assert(condition, message)",
        )

    def branches(self, node: ast.If) -> list[Path]:
        """`if`; of a comptime condition, one side."""
        cond = convert.condition(self.evaluator.test(node.test))
        if isinstance(cond, Const):
            return self.paths.block([*(node.body if cond.value else node.orelse)])
        cond = self.scope.pinned(cond) if cond.touches_memory else cond  # type: ignore[union-attr,assignment]
        location = self.scope.location
        then, after_then = self.paths.branch([*node.body])
        orelse, after_else = self.paths.branch([*node.orelse])
        self.scope.location = location
        self.scope.emit(If(cond, then, orelse))  # type: ignore[arg-type]
        return [*after_then, *after_else]

    def jump(self, end: bool) -> list[Path]:
        """`break` and `continue`."""
        if not self.paths.loops:
            raise KernelSyntaxError("break or continue outside a loop")
        number = self.paths.loops[-1].unrolled
        if number:
            self.paths.left.append(Path(self.scope.out, self.scope.frame.env, Marker(number, end)))
            return []
        self.paths.check_loop_exit()
        self.paths.loops[-1].broken |= end
        if end and self.paths.loops[-1].left_by:
            self.scope.emit(Assign(self.paths.loops[-1].left_by, convert.constant(True, dt.bool_)))
        self.scope.emit(Break() if end else Continue())
        return []

    def for_loop(self, node: ast.For) -> list[Path] | None:
        """`for` over a range, lines or items."""
        if node.orelse:
            raise KernelSyntaxError(
                "for ... else cannot be used in a kernel",
                hint="set a flag before `break`, and ask for it behind the loop",
            )
        over = self.evaluator.eval(node.iter)
        if isinstance(over, Const) and isinstance(over.value, range):
            r = over.value
            if not isinstance(node.target, ast.Name):
                raise KernelSyntaxError("the variable of a range loop is one name")
            over = RangeValue(Const(r.start), Const(r.stop), Const(r.step))
        if isinstance(over, Const) and isinstance(over.value, (tuple, list)):
            over = UnrollValue(tuple(Const(v) for v in over.value))
        if isinstance(over, TupleValue):
            over = UnrollValue(over.items)
        if isinstance(over, LinesValue):
            return self.line_loops.lines_loop(node, over)
        return self.loops.loop_over(node, over)
