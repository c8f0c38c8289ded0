"""Walking calls: funcs and methods are inlined, builtins lowered."""

from __future__ import annotations

import ast
import os

from cubepy.compiler.ir import Expr
from cubepy.compiler.lower.lines import reduce_line
from cubepy.compiler.lower.memory import array_method
from cubepy.compiler.lower.registry import LOWERED
from cubepy.compiler.scope import Frame, Scope
from cubepy.compiler.signature import bind_parameters
from cubepy.compiler.source import holds, source_of
from cubepy.compiler.values import (
    ArrayValue,
    Const,
    MethodValue,
    NoValue,
    StructValue,
    Value,
    describe,
    tuple_items,
)
from cubepy.compiler.walk.arguments import construct, parameter
from cubepy.compiler.walk.evaluator import Evaluator
from cubepy.compiler.walk.paths import RETURN, Paths
from cubepy.compiler.walk.python_calls import python_call
from cubepy.compiler.walk.returns import Returns
from cubepy.errors import CompileError, KernelSyntaxError, KernelTypeError
from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func, Kernel, Launch
from cubepy.lang.dtypes import DType
from cubepy.lang.struct import StructType

MAX_DEPTH = 64
OWN = os.path.abspath(__file__).rpartition("compiler")[0]
"""Where funcs lie that the language has."""


class Calls:
    """Walks calls.

    Attributes:
        scope, evaluator, paths, returns: the walker's.
        callers: the funcs that are being inlined, the outermost first.
    """

    def __init__(self, scope: Scope, evaluator: Evaluator, paths: Paths, returns: Returns) -> None:
        self.scope, self.evaluator, self.paths, self.returns = scope, evaluator, paths, returns
        self.callers: list[Func] = []

    def call(self, node: ast.Call) -> Value:
        """The value of a call."""
        callee = self.evaluator.eval(node.func)
        if any(k.arg is None for k in node.keywords):
            raise KernelSyntaxError("** cannot be used in a call in a kernel")
        positional = [a.value if isinstance(a, ast.Starred) else a for a in node.args]
        values = self.evaluator.eval_all(*positional, *(k.value for k in node.keywords))
        args: list[Value] = []
        for a, value in zip(node.args, values, strict=False):
            args += tuple_items(value) if isinstance(a, ast.Starred) else (value,)
        kwargs = {
            str(k.arg): v for k, v in zip(node.keywords, values[len(positional) :], strict=True)
        }
        self.scope.locate(node)
        return self.invoke(callee, args, kwargs, (node.lineno, node.col_offset))

    def invoke(
        self, callee: Value, args: list[Value], kwargs: dict[str, Value], site: tuple[int, int]
    ) -> Value:
        """Call a value with values."""
        if isinstance(callee, MethodValue):
            return self.invoke_method(callee, args, kwargs, site)
        if isinstance(callee, StructValue) and "__call__" in callee.type.methods:
            return self.inline(callee.type.methods["__call__"], [callee, *args], kwargs, site)
        if not isinstance(callee, Const):
            raise KernelTypeError(f"{describe(callee)} cannot be called", hint=_uncalled(callee))
        fn = callee.value
        if isinstance(fn, Func):
            return self.inline(fn, args, kwargs, site)
        if isinstance(fn, StructType):
            return construct(self.scope, fn, args, kwargs)
        if isinstance(fn, DType):
            return LOWERED["cast"](self.scope, "cast", [*args, Const(fn)], kwargs)
        if isinstance(fn, (Kernel, Launch)):
            launched = fn.kernel if isinstance(fn, Launch) else fn
            raise KernelTypeError(
                f"{launched.__name__} is a kernel and cannot be called from a kernel",
                hint="use @cb.func",
            )
        if isinstance(fn, Builtin):
            return LOWERED[fn.name](self.scope, fn.name, args, kwargs)
        return python_call(self.scope, fn, args, kwargs)

    def invoke_method(
        self,
        callee: MethodValue,
        args: list[Value],
        kwargs: dict[str, Value],
        site: tuple[int, int],
    ) -> Value:
        """Call `owner.name`."""
        owner = callee.owner
        if isinstance(owner, StructValue):
            return self.inline(owner.type.methods[callee.name], [owner, *args], kwargs, site)
        if isinstance(owner, ArrayValue):
            return array_method(self.scope, owner, callee.name, args, kwargs)
        assert isinstance(owner, Expr)
        if args or kwargs:
            raise KernelTypeError(f"the line method {callee.name} takes no arguments")
        return reduce_line(owner, callee.name)

    def inline(
        self, fn: Func, args: list[Value], kwargs: dict[str, Value], site: tuple[int, int]
    ) -> Value:
        """Walk the body of a func with its parameters bound; what it returns is the value."""
        if self.active(fn):
            raise KernelSyntaxError(
                f"{fn.__qualname__} calls itself; recursion cannot be used in a kernel",
                hint="write it as a loop",
            )
        caller, location = self.scope.frame, self.scope.location
        count = caller.calls.get(site, 0)
        caller.calls[site] = count + 1
        source = source_of(fn.fn)
        frame = Frame(source, (*caller.path, site, count, fn.__name__), depth=caller.depth + 1)
        if frame.depth > MAX_DEPTH:
            raise KernelSyntaxError(f"calls nest deeper than {MAX_DEPTH}")
        bound = bind_parameters(fn.parameters, fn.__qualname__, args, kwargs)
        for param, value in bound:
            frame.env[param.name] = parameter(self.scope, fn, param, value)
        loops = self.paths.loops
        self.scope.frame, self.paths.loops = frame, []
        self.callers.append(fn)
        try:
            return self.run_function(source.tree)
        except Exception as error:
            # the innermost place, before the frames are left; of cubepy's own, who called it
            self.scope.failed_at = self.scope.failed_at or self.scope.location
            if source.file.startswith(OWN) and not caller.source.file.startswith(OWN):
                self.scope.failed_at = location
                if isinstance(error, CompileError):
                    error.message = f"in {fn.__qualname__}: {error.message}"
                    error.location = location
            raise
        finally:
            self.callers.pop()
            self.scope.frame, self.paths.loops, self.scope.location = caller, loops, location

    def active(self, fn: Func) -> bool:
        """Whether a func is being inlined right now."""
        return any(fn is c for c in self.callers)

    def run_function(self, tree: ast.FunctionDef) -> Value:
        """Walk a function's body in the current frame; gives what it returns."""
        for name, value in list(
            self.scope.frame.env.items()
        ):  # parameters that change on some path are variables
            key = (*self.scope.frame.path, name)
            if self.scope.facts.is_runtime(key) or self.scope.facts.parts_change(key):
                self.scope.frame.env[name] = self.scope.assign(name, value)
        code = holds(tree)
        self.scope.frame.returns = code.returns > 1 or code.looped
        region = self.paths.region()
        open_end = bool(self.paths.block([*tree.body]))
        self.scope.out = region.out
        values = [
            path.env[RETURN] for path in self.paths.arrived(region, RETURN) if RETURN in path.env
        ]
        if not values:
            return Const(None)
        if open_end or self.scope.frame.bare is not None:
            return self.returns.partial(tree.name, open_end)
        for value in values:
            if isinstance(value, NoValue):
                return value
        for value in values[1:]:
            self.scope.differ("result", values[0], value, self.returns.result)
        return values[0]


def _uncalled(value: Value) -> str:
    """What was meant by a call of something that is no function."""
    if isinstance(value, Expr) and value.op == "topology":
        return f"a position is a number: write cb.{value.attr} without ()"
    if isinstance(value, StructValue):
        return f"give {value.type.__name__} a method __call__"
    return "an element of an array stands in [brackets]" if isinstance(value, ArrayValue) else ""
