"""Walking `return`, also out of runtime loops."""

from __future__ import annotations

import ast
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.ir import Assign, Break, Expr
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, NoValue, StructValue, TupleValue, Value, as_tuple
from cubepy.compiler.walk.evaluator import Evaluator
from cubepy.compiler.walk.paths import RETURN, Path, Paths
from cubepy.errors import KernelTypeError
from cubepy.lang import dtypes as dt


class Returns:
    """What functions return, and where to.

    Attributes:
        scope, evaluator, paths: the walker's.
    """

    def __init__(self, scope: Scope, evaluator: Evaluator, paths: Paths) -> None:
        self.scope, self.evaluator, self.paths = scope, evaluator, paths

    def leave(self, node: ast.Return) -> list[Path]:
        """`return`; no path goes on after it."""
        if any(not loop.unrolled for loop in self.paths.loops):
            return self.leave_loops(node)
        value = self.value(node)
        if value is not None:
            self.bind_return(value)
        self.paths.left.append(Path(self.scope.out, self.scope.frame.env, RETURN))
        return []

    def value(self, node: ast.Return) -> Value | None:
        """What a return gives; None where that is nothing."""
        value = None if node.value is None else self.evaluator.unread(node.value)
        if value is None or (isinstance(value, Const) and value.value is None):
            self.scope.frame.bare = self.scope.frame.bare or self.scope.location
            return None
        if self.scope.frame.depth == 0:
            raise KernelTypeError("a kernel returns nothing", hint="store into an output array")
        return value

    def partial(self, name: str, open_end: bool) -> NoValue:
        """What a func gives some of whose paths have no value."""
        bare = self.scope.frame.bare
        where = (
            "its end is reached without a return"
            if open_end or bare is None
            else f"the return on line {bare.line} has none"
        )
        return NoValue(
            f"{name} returns a value on some paths only, and its value is used here: {where}",
            hint="return a value on every path; an early `if` needs an else, or a return behind it",
        )

    @property
    def result(self) -> tuple[Any, ...]:
        """The key of what the current function returns; the user may have a variable of that name,
        too.
        """
        return (*self.scope.frame.path, RETURN, "result")

    def bind_return(self, value: Value) -> None:
        """Make a value what the current function returns."""
        if self.scope.frame.returns:  # one of several returns: they share a variable
            value = self.scope.assign("result", self.scope.pinned(value), self.result)
        elif isinstance(value, Expr) and value.touches_memory:
            value = self.scope.temporary(value)
        self.scope.frame.env[RETURN] = value

    def leave_loops(self, node: ast.Return) -> list[Path]:
        """Return out of a runtime loop: set a flag, leave the loop; the loop's end looks at the
        flag.
        """
        value, frame = self.value(node), self.scope.frame
        if isinstance(value, NoValue):
            frame.returned = value
        elif value is not None:
            self.all_runtime(value, self.result, "result")
            result = self.scope.assign("result", value, self.result)
            if frame.returned is None:
                frame.returned = result
            elif not isinstance(frame.returned, NoValue):
                self.scope.differ("result", frame.returned, result, self.result)
        self.scope.emit(Assign(self.paths.flag, convert.constant(True, dt.bool_)))
        self.scope.emit(Break())  # what names mean here matters to nobody
        return []

    def all_runtime(self, value: Value, key: tuple[Any, ...], name: str) -> None:
        """Note that every number of a value that leaves a runtime loop is a variable."""
        if isinstance(value, Const) and value.is_number and not self.scope.facts.is_runtime(key):
            raise self.scope.facts.make_runtime(key)
        value = as_tuple(value)
        if isinstance(value, TupleValue):
            for i, item in enumerate(value.items):
                self.all_runtime(item, (*key, i, name), f"{name}.{i}")
        if isinstance(value, StructValue):
            kinds = {f.name: f.kind for f in value.type.fields}
            for field, item in value.fields:
                if kinds[field] != "comptime":
                    self.all_runtime(item, (*key, field), f"{name}.{field}")

    def new_flag(self) -> str:
        """A variable that says "has returned", not set, for a loop and the loops in it. One for the
        function would make a barrier between loops seem unsafe where the later one is left by some
        units.
        """
        name = self.scope.fresh("returned")
        self.scope.types[name] = convert.BOOL
        self.scope.emit(Assign(name, convert.constant(False, dt.bool_)))
        return name
