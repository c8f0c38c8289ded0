"""Walking statements: comptime branches are taken, unrolled loops written out, runtime ones
translated.

Walking a piece of code gives the *paths* that reach its end: lists of statements that go on there.
What follows is written where they meet, once. A path that leaves for elsewhere (a return, or break
and continue of an unrolled loop) is remembered until it gets there; where others meet before that,
it sets a flag which skips what they share.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Union

from cubepy.compiler import convert
from cubepy.compiler.expressions import Expressions
from cubepy.compiler.ir import Assign, Break, Expr, If, Stmt
from cubepy.compiler.source import stored_names
from cubepy.compiler.values import (
    Const,
    StructValue,
    TupleValue,
    Undecided,
    Value,
    as_tuple,
    describe,
    refuse_index_after_index,
)
from cubepy.errors import ComptimeError, KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt

RETURN = "@return"


@dataclass(frozen=True)
class Marker:
    """Where `continue` (the end of a turn) or `break` (the end) of an unrolled loop goes."""

    loop: int
    end: bool


Item = Union[ast.stmt, Callable[[], None]]


@dataclass
class Loop:
    """A loop around the current place: a runtime one, or an unrolled one (with a number)."""

    unrolled: int = 0
    entry: dict[str, Value] | None = None
    bound: dict[str, Value] = field(default_factory=dict)  # its own variables, as a turn begins
    rebound: set[str] = field(default_factory=set)  # those of them that some turn leaves otherwise
    at: tuple[int, int] = (0, 0)  # where a runtime loop stands
    left_by: str = ""  # the variable that a break sets, if what follows the loop asks for it


@dataclass
class Path:
    """A way through the code so far: the statements that it goes on after, and what names mean
    there.

    `to` says where it goes: on (None), out of the function (RETURN), or to a marker. `flagged`: the
        flag that says
    "has returned" is set on it.
    """

    out: list[Stmt]
    env: dict[str, Value]
    to: Marker | str | None = None
    flagged: bool = False


@dataclass
class Region:
    """Where a piece of code began: the list and position of its first statement, and which paths
    had left before.
    """

    out: list[Stmt]
    mark: int
    left: int


class Statements(Expressions):
    """Adds statements to what can be walked."""

    loops: list[Loop]
    left: list[Path]
    unroll_count = 0

    def block(self, items: list[Item]) -> list[Path]:
        """Walk items in order; gives the paths that reach the end, none when control never does."""
        for position, item in enumerate(items):
            if not isinstance(item, ast.stmt):
                item()
                continue
            self.place(item)
            region = self.region()
            paths = self.statement(item)
            if paths is None:
                continue
            if not paths or position == len(items) - 1:
                return paths
            self.join(region, paths)
        return [Path(self.out, self.frame.env)]

    def branch(self, items: list[Item]) -> tuple[list[Stmt], list[Path]]:
        """Walk items into a list of their own, from the names of here; gives it and the paths that
        reach its end.
        """
        saved, env = self.out, dict(self.frame.env)
        out: list[Stmt] = []
        self.out = out
        try:
            return out, self.block(items)
        finally:
            self.out, self.frame.env = saved, env

    def statement(self, node: ast.stmt) -> list[Path] | None:
        """Walk one statement; gives the paths after it, None for the one that is being written."""
        method = getattr(self, f"stmt_{type(node).__name__}", None)
        if method is None:
            raise self.unsupported(node)
        return method(node)

    def region(self) -> Region:
        """The piece of code that begins here."""
        return Region(self.out, len(self.out), len(self.left))

    def arrived(self, region: Region, to: Marker | str) -> list[Path]:
        """The paths that left a region for a place which is reached now."""
        paths = self.left[region.left :]
        self.left[region.left :] = [p for p in paths if p.to != to]
        return [p for p in paths if p.to == to]

    def join(self, region: Region, paths: list[Path]) -> None:
        """Go on where the paths out of a region meet."""
        gone = self.left[region.left :]
        if gone and len(paths) == 1:  # what follows belongs to this path alone, and needs no flag
            self.out, self.frame.env = paths[0].out, paths[0].env
            return
        self.out, self.frame.env = region.out, self.met(paths)
        if gone:
            self.skip(region, gone)

    def skip(self, region: Region, gone: list[Path]) -> None:
        """Let paths that have left a region skip what follows it, by a flag."""
        # a flag of its own: one that units set later, apart from each other, would make barriers
        # here seem unsafe
        returned = all(path.to == RETURN for path in gone) and any(path.flagged for path in gone)
        if returned:
            name = str(self.variable((*self.frame.path, RETURN, "returned"), convert.BOOL).attr)
        else:
            name = self.fresh("left")
            self.types[name] = convert.BOOL
        region.out.insert(
            region.mark, Assign(name, convert.constant(False, dt.bool_), loc=self.location)
        )
        for path in gone:
            if not (returned and path.flagged):
                path.out.append(Assign(name, convert.constant(True, dt.bool_), loc=self.location))
                path.flagged = path.flagged or returned
        rest: list[Stmt] = []
        self.emit(If(Expr("not_", convert.BOOL, (Expr("var", convert.BOOL, (), name),)), rest, []))
        self.out = rest

    def unsupported(self, node: ast.AST) -> KernelSyntaxError:
        """The error for syntax that kernels do not have."""
        name = type(node).__name__
        what = {
            "Try": "try",
            "TryStar": "try",
            "With": "with",
            "Raise": "raise",
            "Delete": "del",
            "Import": "import",
            "ImportFrom": "import",
            "Global": "global",
            "Nonlocal": "nonlocal",
            "ClassDef": "class",
            "FunctionDef": "a nested def",
            "AsyncFunctionDef": "async def",
            "AsyncFor": "async for",
            "AsyncWith": "async with",
            "Match": "match",
            "Lambda": "lambda",
            "ListComp": "a comprehension",
            "SetComp": "a comprehension",
            "DictComp": "a comprehension",
            "Yield": "yield",
            "YieldFrom": "yield from",
            "Await": "await",
            "NamedExpr": ":=",
            "Starred": "*unpacking",
            "JoinedStr": "an f-string",
            "Dict": "a dict",
            "Set": "a set",
            "List": "a list",
            "Slice": "a slice",
        }.get(name, name)
        hint = {
            "Try": "kernels do not raise; use cb.debug_assert while debugging",
            "Lambda": "declare a @cb.func and pass it as a comptime argument",
            "ListComp": "write tuple(... for ...), or use cb.local(shape, dtype) and a loop",
            "FunctionDef": "declare it outside with @cb.func",
            "Slice": "use a.load(i, lanes) for a line, or index element by element",
            "Match": "use if and elif",
            "List": "use a tuple, or cb.local(shape, dtype)",
            "JoinedStr": 'give the parts one by one, as in print("x is", x[i])',
        }.get(name, "")
        return KernelSyntaxError(
            f"{what} cannot be used in a kernel", location=self.location, hint=hint
        )

    def stmt_Pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def stmt_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        value = self.eval(node.value)
        if isinstance(value, Expr) and value.op == "call":
            self.temporary(value)

    def stmt_Assert(self, node: ast.Assert) -> None:
        cond = convert.condition(self.eval(node.test))
        if isinstance(cond, Const):
            if not cond.value:
                text = self.eval(node.msg).value if node.msg is not None else ast.unparse(node.test)  # type: ignore[union-attr]
                raise ComptimeError(f"a comptime assertion failed: {text}")
            return
        raise KernelSyntaxError(
            "assert needs a comptime condition in a kernel",
            hint="use cb.debug_assert(condition, message)",
        )

    def stmt_Assign(self, node: ast.Assign) -> None:
        value = self.eval(node.value)
        if len(node.targets) > 1:
            value = self.pinned(value)
        for target in node.targets:
            self.bind_target(target, value)

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        annotation = self.eval(node.annotation)
        if node.value is None:
            raise KernelSyntaxError("a declaration without a value means nothing in a kernel")
        value = self.eval(node.value)
        if isinstance(annotation, Const) and isinstance(annotation.value, dt.DType):
            lanes = value.type.lanes if isinstance(value, Expr) else 0
            value = convert.storable(value, annotation.value, lanes, "a variable")
            if isinstance(node.target, ast.Name):
                self.frame.env[node.target.id] = self._assign_runtime(
                    (*self.frame.path, node.target.id), node.target.id, value
                )
                return
        self.bind_target(node.target, value)

    def stmt_AugAssign(self, node: ast.AugAssign) -> None:
        op = self.operator(node.op)
        target = node.target
        if isinstance(target, ast.Subscript):
            refuse_index_after_index(target, self.frame.env)
            owner = self.eval(target.value)
            indices = tuple(self.pinned(i, "i") for i in self.index_values(target.slice))
            old, mark = self.subscript(owner, indices), len(self.out)
            value = self.eval(node.value)
            old = self.keep(old, mark)
            self.store_subscript(owner, indices, convert.binary(op, old, value, self.index))
            return
        if not isinstance(target, ast.Name):
            raise KernelSyntaxError(
                "an augmented assignment needs a name or an array element on its left"
            )
        old = self.name(target.id)
        self.frame.env[target.id] = self.assign(
            target.id, convert.binary(op, old, self.eval(node.value), self.index)
        )

    def bind_target(self, target: ast.expr, value: Value) -> None:
        """Assign a value to a name, a tuple of targets, or an array element."""
        if isinstance(target, ast.Name):
            self.frame.env[target.id] = self.assign(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = self.items_of(value, len(target.elts))
            if len(items) > 1:  # a, b = b, a reads everything first
                assigned = self.variables_of(stored_names(target))
                items = [self.copied(v, None if isinstance(v, Expr) else assigned) for v in items]
            for t, v in zip(target.elts, items, strict=True):
                self.bind_target(t, v)
        elif isinstance(target, ast.Subscript):
            refuse_index_after_index(target, self.frame.env)
            mark = len(self.out)
            owner, indices = self.eval(target.value), self.index_values(target.slice)
            self.store_subscript(owner, indices, self.keep(value, mark))
        elif isinstance(target, ast.Attribute):
            raise KernelTypeError(
                f"the field {target.attr!r} cannot be assigned: structs are immutable",
                hint="make a new one",
            )
        else:
            raise self.unsupported(target)

    def items_of(self, value: Value, count: int) -> list[Value]:
        """The parts of a tuple that is unpacked into `count` targets."""
        if isinstance(value, TupleValue):
            items = list(value.items)
        elif isinstance(value, Const) and isinstance(value.value, (tuple, list)):
            items = [Const(v) for v in value.value]
        else:
            raise KernelTypeError(f"{describe(value)} cannot be unpacked")
        if len(items) != count:
            raise KernelTypeError(f"{len(items)} values cannot be unpacked into {count} names")
        return items

    def stmt_Return(self, node: ast.Return) -> list[Path]:
        if any(not loop.unrolled for loop in self.loops):
            return self.return_from_loop(node)
        if node.value is not None:
            value = self.eval(node.value)
            if self.frame.depth == 0:
                if not (isinstance(value, Const) and value.value is None):
                    raise KernelTypeError(
                        "a kernel returns nothing", hint="store into an output array"
                    )
            else:
                self.bind_return(value)
        self.left.append(Path(self.out, self.frame.env, RETURN))
        return []

    @property
    def result(self) -> tuple[Any, ...]:
        """The key of what the current function returns; the user may have a variable of that name,
        too.
        """
        return (*self.frame.path, RETURN, "result")

    def bind_return(self, value: Value) -> None:
        """Make a value what the current function returns."""
        if self.frame.returns:  # one of several returns: they share a variable
            value = self.assign("result", self.pinned(value), self.result)
        elif isinstance(value, Expr) and value.touches_memory:
            value = self.temporary(value)
        self.frame.env[RETURN] = value

    def return_from_loop(self, node: ast.Return) -> list[Path]:
        """Return out of a runtime loop: set a flag, leave the loop; the loop's end looks at the
        flag.
        """
        if node.value is not None and self.frame.depth:
            value = self.eval(node.value)
            self.all_runtime(value, self.result, "result")
            result = self.assign("result", value, self.result)
            if self.frame.returned is not None:
                self.differ("result", self.frame.returned, result, self.result)
            self.frame.returned = self.frame.env[RETURN] = result
        self.set_flag(True)
        self.emit(Break())  # what names mean here matters to nobody
        return []

    def all_runtime(self, value: Value, key: tuple[Any, ...], name: str) -> None:
        """Note that every number of a value that leaves a runtime loop is a variable."""
        if isinstance(value, Const) and value.is_number and key not in self.facts.runtime:
            self.make_runtime(key)
        value = as_tuple(value)
        if isinstance(value, TupleValue):
            for i, item in enumerate(value.items):
                self.all_runtime(item, (*key, i, name), f"{name}.{i}")
        if isinstance(value, StructValue):
            kinds = {f.name: f.kind for f in value.type.fields}
            for field, item in value.fields:
                if kinds[field] != "comptime":
                    self.all_runtime(item, (*key, field), f"{name}.{field}")

    def set_flag(self, value: bool) -> Expr:
        """Assign the frame's "has returned" flag."""
        var = self.variable((*self.frame.path, RETURN, "returned"), convert.BOOL)
        self.emit(Assign(str(var.attr), convert.constant(value, dt.bool_)))
        return var

    def stmt_If(self, node: ast.If) -> list[Path]:
        cond = convert.condition(self.eval(node.test))
        if isinstance(cond, Const):
            return self.block([*(node.body if cond.value else node.orelse)])
        cond = self.pinned(cond) if cond.touches_memory else cond  # type: ignore[union-attr,assignment]
        location = self.location
        then, after_then = self.branch([*node.body])
        orelse, after_else = self.branch([*node.orelse])
        self.location = location
        self.emit(If(cond, then, orelse))  # type: ignore[arg-type]
        return [*after_then, *after_else]

    def met(self, paths: list[Path]) -> dict[str, Value]:
        """What names mean where paths meet."""
        env = dict(paths[0].env)
        for path in paths[1:]:
            for name, value in path.env.items():
                env[name] = self.joined(name, env[name], value) if name in env else value
        return env

    def joined(self, name: str, a: Value, b: Value) -> Value:
        """One binding for a name that two paths leave with `a` and `b`; unusable if they cannot
        meet.
        """
        for value in (a, b):
            if isinstance(value, Undecided):
                return value
        try:
            self.differ(name, a, b)
        except ComptimeError as error:
            return Undecided(error.message)
        return a


@lru_cache(maxsize=65536)
def has_return(node: ast.AST) -> bool:
    """Whether a statement holds a return."""
    return any(isinstance(n, ast.Return) for n in ast.walk(node))
