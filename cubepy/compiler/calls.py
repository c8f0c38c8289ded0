"""Walking calls: funcs and methods are inlined, builtins lowered, host functions of comptime values
run now.
"""

from __future__ import annotations

import ast
import inspect
import math
import pdb
from functools import lru_cache
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.builtin_calls import LOWERED, Lowering
from cubepy.compiler.ir import Expr, VType
from cubepy.compiler.lines.words import Words
from cubepy.compiler.source import source_of
from cubepy.compiler.state import Frame
from cubepy.compiler.statements import RETURN
from cubepy.compiler.values import (
    ArrayValue,
    Const,
    MethodValue,
    RangeValue,
    StructValue,
    TupleValue,
    UnrollValue,
    Value,
    describe,
    plain,
    refuse_loop_with,
)
from cubepy.errors import ComptimeError, CubeError, KernelSyntaxError, KernelTypeError
from cubepy.lang.builtins import BUILTINS, FLOAT_MATH, Builtin
from cubepy.lang.declare import Func, Kernel, Param
from cubepy.lang.struct import Struct, StructField, StructType
from cubepy.lang.dtypes import DType
from cubepy.lang.mathematics import MATHEMATICS, NUMPY_NAMES

MAX_DEPTH = 64
MAX_UNROLLED = 1 << 14  # turns that cb.unroll writes out; a compiler would take hours over more
MATH = {
    getattr(math, name): name for name in (*FLOAT_MATH, *MATHEMATICS, "pow") if hasattr(math, name)
}
MATH[math.fabs] = "abs"
PYTHON = {abs: "abs", min: "min", max: "max", round: "round", pow: "pow"}


class Calls(Words, Lowering):
    """Adds calls to what can be walked."""

    callers: list[Func]  # that are being inlined, the outermost first

    def call(self, node: ast.Call) -> Value:
        """The value of a call."""
        callee = self.eval(node.func)
        if any(k.arg is None for k in node.keywords):
            raise KernelSyntaxError("** cannot be used in a call in a kernel")
        positional = [a.value if isinstance(a, ast.Starred) else a for a in node.args]
        values = self.eval_all(*positional, *(k.value for k in node.keywords))
        args: list[Value] = []
        for a, value in zip(node.args, values, strict=False):
            args += self._tuple(value) if isinstance(a, ast.Starred) else (value,)
        kwargs = {
            str(k.arg): v for k, v in zip(node.keywords, values[len(positional) :], strict=True)
        }
        self.place(node)
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
            raise KernelTypeError(f"{describe(callee)} cannot be called")
        fn = callee.value
        if isinstance(fn, Func):
            return self.inline(fn, args, kwargs, site)
        if isinstance(fn, StructType):
            return self.construct(fn, args, kwargs)
        if isinstance(fn, DType):
            return self.builtin("cast", [*args, Const(fn)], kwargs)
        if isinstance(fn, Kernel):
            raise KernelTypeError(
                f"{fn.__name__} is a kernel and cannot be called from a kernel", hint="use @cb.func"
            )
        if isinstance(fn, Builtin):
            return self.builtin(fn.name, args, kwargs)
        return self.python_call(fn, args, kwargs)

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
            return self.array_method(owner, callee.name, args, kwargs)
        assert isinstance(owner, Expr)
        if args or kwargs:
            raise KernelTypeError(f"the line method {callee.name} takes no arguments")
        return self.reduce_line(owner, callee.name)

    def builtin(self, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Lower a builtin; when all is comptime, a math builtin folds."""
        return LOWERED[name](self, name, args, kwargs)

    def python_call(self, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call something of Python's: a translated function, or any function of comptime values."""
        values = [*args, *kwargs.values()]
        if fn is range:
            return self.make_range(args)
        if fn is len:
            return self.length(args[0])
        if fn is breakpoint or fn is pdb.set_trace:
            return Const(None)  # stops on the python backend only
        if fn is print:
            return self.builtin("debug_print", args, {})
        if fn is zip or (fn is enumerate and len(args) == 1):
            loops = (UnrollValue, RangeValue)
            refuse_loop_with(fn.__name__, [a for a in args if not isinstance(a, loops)])
            parts = [self.parts(a) for a in args]
            counted = fn is enumerate
            rows = zip(*((map(Const, range(len(parts[0]))), *parts) if counted else parts))
            return plain(TupleValue(tuple(plain(TupleValue(r)) for r in rows)))
        numbers = [v.value for v in values if isinstance(v, Const)]
        if len(numbers) == len(values):
            self.facts.reads.call(fn, tuple(numbers))
            try:
                return self.wrap(
                    fn(*numbers[: len(args)], **dict(zip(kwargs, numbers[len(args) :])))
                )
            except (CubeError, RecursionError):
                raise
            except Exception as error:
                raise ComptimeError(
                    f"{_name(fn)} failed at compile time: {type(error).__name__}: {error}"
                ) from error
        try:
            known = MATH.get(fn) or PYTHON.get(fn)
        except TypeError:
            known = None
        if fn in (min, max, sum) and len(args) == 1 and isinstance(args[0], TupleValue):
            return self.over_items(fn, args[0].items)
        if known is not None:
            return self.builtin(known, args, kwargs)
        if fn in (int, float, bool):
            return self.python_cast(fn, args)
        if fn is tuple and len(args) == 1:
            return plain(TupleValue(self.written_out(args[0])))
        raise KernelTypeError(
            f"{_name(fn)} cannot be called with runtime values in a kernel", hint=_instead(fn)
        )

    def python_cast(self, fn: Any, args: list[Value]) -> Value:
        """`int(x)`, `float(x)`, `bool(x)` of a runtime value."""
        if len(args) != 1:
            raise KernelTypeError(f"{fn.__name__} takes one argument")
        if fn is bool:
            return convert.condition(args[0])
        from cubepy.lang import dtypes as dt

        value = convert.runtime(args[0], self.index)
        have = value.type.dtype
        if fn is float:
            return convert.cast(value, dt.float_for(have)) if not have.is_float else value
        return value if have.is_int else convert.cast(value, dt.i64 if have is dt.f64 else dt.i32)

    def length(self, value: Value) -> Value:
        """`len(value)`."""
        if isinstance(value, TupleValue):
            return Const(len(value.items))
        if isinstance(value, ArrayValue):
            return self.subscript(self.array_attribute(value, "shape"), (Const(0),))
        if isinstance(value, Const) and hasattr(value.value, "__len__"):
            return Const(len(value.value))
        if isinstance(value, Expr) and value.type.lanes:
            return Const(value.type.lanes)
        raise KernelTypeError(f"{describe(value)} has no length")

    def make_range(self, args: list[Value]) -> Value:
        """`range(...)`, comptime when its bounds are."""
        if not 1 <= len(args) <= 3:
            raise KernelTypeError(f"range takes 1 to 3 arguments, not {len(args)}")
        for a in args:
            if isinstance(a, Const) and (
                isinstance(a.value, bool) or not hasattr(a.value, "__index__")
            ):
                raise KernelTypeError(f"range needs integers, not {a.value!r}")
        if all(isinstance(a, Const) for a in args):
            return Const(range(*(a.value for a in args)))  # type: ignore[union-attr]
        start, stop = (Const(0), args[0]) if len(args) == 1 else (args[0], args[1])
        return RangeValue(start, stop, args[2] if len(args) == 3 else Const(1))

    def unrolled(self, over: Value) -> Value:
        """`cb.unroll(over)`."""
        if isinstance(over, Const) and isinstance(over.value, int):
            over = Const(range(self.comptime_int(over, "the number of turns of cb.unroll")))
        if isinstance(over, RangeValue):
            raise ComptimeError(
                "cb.unroll needs a range with comptime bounds",
                hint="make the bound a cb.Comptime parameter",
            )
        if isinstance(over, TupleValue):
            return UnrollValue(over.items)
        if isinstance(over, Const) and isinstance(over.value, (range, tuple, list)):
            if len(over.value) > MAX_UNROLLED:
                raise ComptimeError(
                    f"cb.unroll writes out at most {MAX_UNROLLED} turns, not {len(over.value)}",
                    hint="loop over range(...), or unroll only an inner loop",
                )
            return UnrollValue(tuple(Const(v) for v in over.value))
        raise ComptimeError(f"cb.unroll needs a comptime range or tuple, not {describe(over)}")

    def construct(self, cls: StructType, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Make a struct; scalar fields convert to their dtype."""
        given = cls.bind(tuple(args), dict(kwargs))
        return StructValue(
            cls, tuple((f.name, self.field_value(cls, f, given[f.name])) for f in cls.fields)
        )

    def field_value(self, cls: StructType, field: StructField, value: Any) -> Value:
        """A value converted for a field."""
        if not isinstance(
            value,
            (
                Const,
                Expr,
                ArrayValue,
                StructValue,
                TupleValue,
                MethodValue,
                RangeValue,
                UnrollValue,
            ),
        ):
            value = self.wrap(value)  # a default
        what = f"the field {cls.__name__}.{field.name}"
        if field.kind == "comptime" and not isinstance(value, Const):
            raise ComptimeError(f"{what} is comptime but is given {describe(value)}")
        if field.kind == "scalar":
            assert field.dtype is not None
            lanes = value.type.lanes if isinstance(value, Expr) else 0
            return self.pinned(convert.storable(value, field.dtype, lanes, what), field.name)
        if field.kind == "array" and not isinstance(value, ArrayValue):
            raise KernelTypeError(f"{what} is an array but is given {describe(value)}")
        if field.kind == "map" and not (isinstance(value, ArrayValue) and value.mem.kind == "map"):
            raise KernelTypeError(f"{what} is a tensor map but is given {describe(value)}")
        if field.kind == "struct" and not (
            isinstance(value, StructValue) and value.type is field.struct
        ):
            raise KernelTypeError(
                f"{what} is a {field.struct.__name__} but is given {describe(value)}"
            )
        return self.pinned(value, field.name)

    def inline(
        self, fn: Func, args: list[Value], kwargs: dict[str, Value], site: tuple[int, int]
    ) -> Value:
        """Walk the body of a func with its parameters bound; what it returns is the value."""
        if self.active(fn):
            raise KernelSyntaxError(
                f"{fn.__qualname__} calls itself; recursion cannot be used in a kernel",
                hint="write it as a loop",
            )
        caller, location = self.frame, self.location
        count = caller.calls.get(site, 0)
        caller.calls[site] = count + 1
        source = source_of(fn.fn)
        frame = Frame(source, (*caller.path, site, count, fn.__name__), depth=caller.depth + 1)
        if frame.depth > MAX_DEPTH:
            raise KernelSyntaxError(f"calls nest deeper than {MAX_DEPTH}")
        bound = bind_parameters(fn.parameters, fn.__qualname__, args, kwargs)
        for param, value in bound:
            frame.env[param.name] = self.parameter(fn, param, value)
        loops = self.loops
        self.frame, self.loops = frame, []
        self.callers.append(fn)
        try:
            return self.run_function(source.tree)
        except Exception:
            self.failed_at = (
                self.failed_at or self.location
            )  # the innermost place, before the frames are left
            raise
        finally:
            self.callers.pop()
            self.frame, self.loops, self.location = caller, loops, location

    def active(self, fn: Func) -> bool:
        """Whether a func is being inlined right now."""
        return any(fn is c for c in self.callers)

    def parameter(self, fn: Func, param: Param, value: Any) -> Value:
        """An argument converted for a parameter."""
        if not isinstance(
            value,
            (
                Const,
                Expr,
                ArrayValue,
                StructValue,
                TupleValue,
                MethodValue,
                RangeValue,
                UnrollValue,
            ),
        ):
            value = self.wrap(value)  # a default
        what = f"the parameter {param.name!r} of {fn.__name__}"
        if param.kind == "comptime" and not isinstance(value, Const):
            raise ComptimeError(
                f"{what} is comptime but is given {describe(value)}",
                hint="comptime arguments are known before launch",
            )
        if param.kind == "scalar" and param.dtype is not None:
            lanes = value.type.lanes if isinstance(value, Expr) else 0
            value = convert.storable(value, param.dtype, lanes, what)
        if param.kind == "array" and not isinstance(value, ArrayValue):
            raise KernelTypeError(f"{what} is an array but is given {describe(value)}")
        if param.kind == "map" and not (isinstance(value, ArrayValue) and value.mem.kind == "map"):
            raise KernelTypeError(f"{what} is a tensor map but is given {describe(value)}")
        if param.kind == "struct" and not (
            isinstance(value, StructValue) and value.type is param.struct
        ):
            raise KernelTypeError(
                f"{what} is a {param.struct.__name__} but is given {describe(value)}"
            )
        return self.pinned(value, param.name)

    def run_function(self, tree: ast.FunctionDef) -> Value:
        """Walk a function's body in the current frame; gives what it returns."""
        for name, value in list(
            self.frame.env.items()
        ):  # parameters that change on some path are variables
            key = (*self.frame.path, name)
            if key in self.facts.runtime or self.parts_change(key):
                self.frame.env[name] = self.assign(name, value)
        count, in_loops = returns_of(tree)
        self.frame.returns = count > 1 or in_loops
        if in_loops:
            self.set_flag(False)
        region = self.region()
        self.block([*tree.body])
        self.out = region.out
        values = [path.env[RETURN] for path in self.arrived(region, RETURN) if RETURN in path.env]
        for value in values[1:]:
            self.differ("result", values[0], value, self.result)
        return values[0] if values else Const(None)


@lru_cache(maxsize=4096)
def returns_of(tree: ast.FunctionDef) -> tuple[int, bool]:
    """How many returns a function has, and whether a loop holds one."""
    loops = (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While)))
    held = any(isinstance(n, ast.Return) for loop in loops for n in ast.walk(loop))
    return sum(isinstance(n, ast.Return) for n in ast.walk(tree)), held


def bind_parameters(
    parameters: tuple[Param, ...], name: str, args: list[Any], kwargs: dict[str, Any]
) -> list[tuple[Param, Any]]:
    """Match arguments to parameters.

    Raises:
        KernelTypeError: too many, unknown, doubled or missing arguments.
        ComptimeError: a comptime parameter without a value.
    """
    positional = [p for p in parameters if not p.keyword_only]
    if len(args) > len(positional):
        raise KernelTypeError(
            f"{name} takes {len(positional)} positional arguments but {len(args)} were given"
        )
    given = dict(zip((p.name for p in positional), args, strict=False))
    for key, value in kwargs.items():
        if key in given:
            raise KernelTypeError(f"{name} got two values for {key!r}")
        if all(p.name != key for p in parameters):
            names = ", ".join(p.name for p in parameters)
            raise KernelTypeError(
                f"{name} has no parameter {key!r}", hint=f"its parameters are {names}"
            )
        given[key] = value
    out = []
    for p in parameters:
        if p.name in given:
            out.append((p, given[p.name]))
        elif p.default is not Param.__dataclass_fields__["default"].default:
            out.append((p, p.default))
        elif p.kind == "comptime":
            raise ComptimeError(f"{name} needs a value for its comptime parameter {p.name!r}")
        else:
            raise KernelTypeError(f"{name} needs a value for its parameter {p.name!r}")
    return out


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)


ALIASES = NUMPY_NAMES | {  # NumPy's names of builtins
    "absolute": "abs",
    "clip": "clamp",
    "maximum": "nan_max",
    "minimum": "nan_min",
    "power": "pow",
    "where": "select",
}


def _instead(fn: Any) -> str:
    """The hint for a host function that was called with runtime values."""
    if inspect.isfunction(fn):
        return f"{'write a def and ' * (fn.__name__ == '<lambda>')}decorate it with @cb.func"
    name = str(getattr(fn, "__name__", ""))
    name = ALIASES.get(name, name)
    return (
        f"cb.{name} does it in a kernel"
        if name in BUILTINS
        else "kernels call cb.* and functions under @cb.func"
    )


def struct_instance(value: Any) -> bool:
    """Whether a host value is an instance of a struct."""
    return isinstance(value, Struct)


__all__ = ["BUILTINS", "Calls", "VType", "bind_parameters", "struct_instance"]
