"""Walking statements: comptime branches are taken, unrolled loops written out, runtime ones translated.

A block is walked as a list of work items. When a runtime `if` may leave its block (return, or break and
continue of an unrolled loop), the items after it are walked inside its branches, so the result needs no jumps.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Union

from cubepy.compiler import convert
from cubepy.compiler.expressions import Expressions
from cubepy.compiler.ir import (
    Assign,
    Break,
    Continue,
    Expr,
    If,
    Stmt,
)
from cubepy.compiler.values import (
    Const,
    StructValue,
    TupleValue,
    Undecided,
    Value,
    as_tuple,
    describe,
)
from cubepy.errors import ComptimeError, KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt

RETURN = "@return"


@dataclass(frozen=True)
class Marker:
    """Where `continue` (one turn) or `break` (the end) of an unrolled loop goes."""

    loop: int
    end: bool


Item = Union[ast.stmt, Marker, Callable[[], None]]


@dataclass
class Loop:
    """A loop around the current place: a runtime one, or an unrolled one (with a number)."""

    unrolled: int = 0
    entry: dict[str, Value] | None = None


class Statements(Expressions):
    """Adds statements to what can be walked."""

    loops: list[Loop]
    final: bool
    unroll_count = 0

    def block(self, items: list[Item]) -> bool:
        """Walk items in order; False when control never reaches the end."""
        for position, item in enumerate(items):
            if isinstance(item, Marker):
                if item.end and self.loops and self.loops[-1].unrolled == item.loop:
                    self.loops.pop()
                continue
            if not isinstance(item, ast.stmt):
                item()
                continue
            self.place(item)
            done = self.statement(item, items[position + 1 :])
            if done is not None:
                return done
        return True

    def nested(self, items: list[Item], final: bool) -> tuple[list[Stmt], dict[str, Value], bool]:
        """Walk items into a list of their own; gives it, the names after it, and whether its end is reached.

        `final`: nothing of the function follows, so only what it returns matters afterwards.
        """
        saved, env, loops, was_final = self.out, dict(self.frame.env), list(self.loops), self.final
        self.out, self.final = [], final
        try:
            through = self.block(items)
            return self.out, self.frame.env, through
        finally:
            self.out, self.frame.env, self.loops, self.final = saved, env, loops, was_final

    def statement(self, node: ast.stmt, rest: list[Item]) -> bool | None:
        """Walk one statement; None to go on with `rest`, else whether the end of the block is reached."""
        method = getattr(self, f"stmt_{type(node).__name__}", None)
        if method is None:
            raise self.unsupported(node)
        return method(node, rest)

    def unsupported(self, node: ast.AST) -> KernelSyntaxError:
        """The error for syntax that kernels do not have."""
        name = type(node).__name__
        what = {
            "Try": "try", "TryStar": "try", "With": "with", "Raise": "raise", "Delete": "del", "Import": "import",
            "ImportFrom": "import", "Global": "global", "Nonlocal": "nonlocal", "ClassDef": "class",
            "FunctionDef": "a nested def", "AsyncFunctionDef": "async def", "AsyncFor": "async for",
            "AsyncWith": "async with", "Match": "match", "Lambda": "lambda", "ListComp": "a comprehension",
            "SetComp": "a comprehension", "DictComp": "a comprehension", "GeneratorExp": "a comprehension",
            "Yield": "yield", "YieldFrom": "yield from", "Await": "await", "NamedExpr": ":=",
            "Starred": "*unpacking", "JoinedStr": "an f-string", "Dict": "a dict", "Set": "a set", "List": "a list",
            "Slice": "a slice",
        }.get(name, name)  # fmt: skip
        hint = {
            "Try": "kernels do not raise; use cb.debug_assert while debugging",
            "Lambda": "declare a @cb.func and pass it as a comptime argument",
            "ListComp": "use cb.local(shape, dtype) and a loop",
            "GeneratorExp": "use a loop",
            "FunctionDef": "declare it outside with @cb.func",
            "Slice": "use a.load(i, lanes) for a line, or index element by element",
            "Match": "use if and elif",
            "List": "use a tuple, or cb.local(shape, dtype)",
        }.get(name, "")
        return KernelSyntaxError(f"{what} cannot be used in a kernel", location=self.location, hint=hint)

    def stmt_Pass(self, node: ast.Pass, rest: list[Item]) -> None:
        """Nothing."""

    def stmt_Expr(self, node: ast.Expr, rest: list[Item]) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        value = self.eval(node.value)
        if isinstance(value, Expr) and value.op == "call":
            self.temporary(value)

    def stmt_Assert(self, node: ast.Assert, rest: list[Item]) -> None:
        cond = convert.condition(self.eval(node.test))
        if isinstance(cond, Const):
            if not cond.value:
                text = self.eval(node.msg).value if node.msg is not None else ast.unparse(node.test)  # type: ignore[union-attr]
                raise ComptimeError(f"a comptime assertion failed: {text}")
            return
        raise KernelSyntaxError(
            "assert needs a comptime condition in a kernel", hint="use cb.debug_assert(condition, message)"
        )

    def stmt_Assign(self, node: ast.Assign, rest: list[Item]) -> None:
        value = self.eval(node.value)
        if len(node.targets) > 1:
            value = self.pinned(value)
        for target in node.targets:
            self.bind_target(target, value)

    def stmt_AnnAssign(self, node: ast.AnnAssign, rest: list[Item]) -> None:
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

    def stmt_AugAssign(self, node: ast.AugAssign, rest: list[Item]) -> None:
        op = self.operator(node.op)
        target = node.target
        if isinstance(target, ast.Subscript):
            owner = self.eval(target.value)
            indices = tuple(self.pinned(i, "i") for i in self.index_values(target.slice))
            old, mark = self.subscript(owner, indices), len(self.out)
            value = self.eval(node.value)
            old = self.keep(old, mark)
            self.store_subscript(owner, indices, convert.binary(op, old, value, self.index))
            return
        if not isinstance(target, ast.Name):
            raise KernelSyntaxError("an augmented assignment needs a name or an array element on its left")
        old = self.name(target.id)
        self.frame.env[target.id] = self.assign(target.id, convert.binary(op, old, self.eval(node.value), self.index))

    def bind_target(self, target: ast.expr, value: Value) -> None:
        """Assign a value to a name, a tuple of targets, or an array element."""
        if isinstance(target, ast.Name):
            self.frame.env[target.id] = self.assign(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = self.items_of(value, len(target.elts))
            if len(items) > 1:  # a, b = b, a reads everything first
                items = [self.temporary(v) if isinstance(v, Expr) and v.op != "const" else v for v in items]
            for t, v in zip(target.elts, items, strict=True):
                self.bind_target(t, v)
        elif isinstance(target, ast.Subscript):
            mark = len(self.out)
            owner, indices = self.eval(target.value), self.index_values(target.slice)
            self.store_subscript(owner, indices, self.keep(value, mark))
        elif isinstance(target, ast.Attribute):
            raise KernelTypeError(
                f"the field {target.attr!r} cannot be assigned: structs are immutable", hint="make a new one"
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

    def stmt_Return(self, node: ast.Return, rest: list[Item]) -> bool:
        if any(not loop.unrolled for loop in self.loops):
            return self.return_from_loop(node)
        if node.value is not None:
            value = self.eval(node.value)
            if self.frame.depth == 0:
                if not (isinstance(value, Const) and value.value is None):
                    raise KernelTypeError("a kernel returns nothing", hint="store into an output array")
            else:
                self.bind_return(value)
        return True

    def bind_return(self, value: Value) -> None:
        """Make a value what the current function returns."""
        if self.frame.returns:  # one of several returns: they share a variable
            value = self.assign("result", self.pinned(value))
        elif isinstance(value, Expr) and value.touches_memory:
            value = self.temporary(value)
        self.frame.env[RETURN] = value

    def return_from_loop(self, node: ast.Return) -> bool:
        """Return out of a runtime loop: set a flag, leave the loop; the loop's end looks at the flag."""
        if node.value is not None and self.frame.depth:
            value = self.eval(node.value)
            self.all_runtime(value, (*self.frame.path, "result"), "result")
            result = self.assign("result", value)
            if self.frame.returned is not None:
                self.differ("result", self.frame.returned, result)
            self.frame.returned = self.frame.env[RETURN] = result
        self.set_flag(True)
        self.check_loop_exit()
        self.emit(Break())
        return False

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
        var = self.variable((*self.frame.path, "returned"), convert.BOOL)
        self.emit(Assign(str(var.attr), convert.constant(value, dt.bool_)))
        return var

    def stmt_If(self, node: ast.If, rest: list[Item]) -> bool | None:
        cond = convert.condition(self.eval(node.test))
        if isinstance(cond, Const):
            return self.block([*(node.body if cond.value else node.orelse), *rest])
        cond = self.pinned(cond) if cond.touches_memory else cond  # type: ignore[union-attr,assignment]
        location = self.location
        leaves = _leaves(node, self.in_unrolled())
        cut = self.jump_end(node, rest) if leaves else None
        tail: list[Item] = [] if not leaves else rest if cut is None else rest[: cut + 1]
        final = self.final and cut is None and (leaves or not rest)
        then, env_then, through_then = self.nested([*node.body, *tail], final)
        orelse, env_else, through_else = self.nested([*node.orelse, *tail], final)
        self.location = location
        self.emit(If(cond, then, orelse))  # type: ignore[arg-type]
        self.merge(env_then if through_then else None, env_else if through_else else None, final)
        if cut is not None and (through_then or through_else):
            return self.block(rest[cut:])
        if leaves or not (through_then or through_else):
            return through_then or through_else
        return None

    def jump_end(self, node: ast.If, rest: list[Item]) -> int | None:
        """Where the paths of an `if` that leaves a turn of an unrolled loop meet again in `rest`.

        That is the end of the turn, or of the loop when there is a `break`; None when they never do (a return).
        Without this place everything that follows would be written out once for each path.
        """
        if not self.in_unrolled():
            return None
        number = self.loops[-1].unrolled
        for at_end in (False, True):
            for i, item in enumerate(rest):
                if isinstance(item, Marker) and item.loop == number and item.end >= at_end:
                    region = [node, *(n for n in rest[:i] if isinstance(n, ast.stmt))]
                    if any(map(has_return, region)):
                        return None
                    if at_end or not any(map(_breaks, region)):
                        return i
                    break
        return None

    def in_unrolled(self) -> bool:
        """Whether the innermost loop is an unrolled one."""
        return bool(self.loops) and bool(self.loops[-1].unrolled)

    def merge(self, a: dict[str, Value] | None, b: dict[str, Value] | None, final: bool) -> None:
        """Bind each name after a runtime branch, from the ends that are reached."""
        ends = [e for e in (a, b) if e is not None]
        if not ends:
            return
        if len(ends) == 1:
            self.frame.env = dict(ends[0])
            return
        out = dict(ends[0])
        for name, value in ends[1].items():
            if name not in out:
                out[name] = value
            elif name == RETURN:
                self.differ("result", out[name], value)
                out[name] = value if isinstance(value, Expr) else out[name]
            elif not final:
                out[name] = self.joined(name, out[name], value)
        self.frame.env = out

    def joined(self, name: str, a: Value, b: Value) -> Value:
        """One binding for a name that two branches leave with `a` and `b`; unusable if they cannot meet."""
        try:
            self.differ(name, a, b)
        except ComptimeError as error:
            return Undecided(error.message)
        return b if isinstance(b, Expr) else a

    def stmt_Break(self, node: ast.Break, rest: list[Item]) -> bool:
        return self._jump(rest, end=True)

    def stmt_Continue(self, node: ast.Continue, rest: list[Item]) -> bool:
        return self._jump(rest, end=False)

    def _jump(self, rest: list[Item], end: bool) -> bool:
        if not self.loops:
            raise KernelSyntaxError("break or continue outside a loop")
        if self.loops[-1].unrolled:
            number = self.loops[-1].unrolled
            for i, item in enumerate(rest):
                if isinstance(item, Marker) and item.loop == number and (item.end or not end):
                    return self.block(rest[i:])
            return True
        self.check_loop_exit()
        self.emit(Break() if end else Continue())
        return False

    def check_loop_exit(self) -> None:
        """A name that is comptime before a runtime loop must be unchanged wherever a turn ends."""
        entry = next(loop.entry for loop in reversed(self.loops) if not loop.unrolled)
        for name, before in (entry or {}).items():
            now = self.frame.env.get(name, before)
            if name != RETURN and not isinstance(before, Undecided):
                self.differ(name, before, now)


@lru_cache(maxsize=65536)
def _leaves(node: ast.AST, in_unrolled: bool) -> bool:
    """Whether a statement holds a return, or a break or continue that belongs to a loop around it."""

    def look(n: ast.AST, inside: bool) -> bool:
        if isinstance(n, ast.Return):
            return not inside
        if isinstance(n, (ast.Break, ast.Continue)):
            return in_unrolled and not inside
        inner = inside or isinstance(n, (ast.For, ast.While))
        return any(look(c, inner) for c in ast.iter_child_nodes(n))

    return look(node, False) or has_return(node)


def _breaks(node: ast.AST) -> bool:
    """Whether a statement holds a break that belongs to a loop around it."""
    if isinstance(node, (ast.For, ast.While)):
        return False
    return isinstance(node, ast.Break) or any(map(_breaks, ast.iter_child_nodes(node)))


@lru_cache(maxsize=65536)
def has_return(node: ast.AST) -> bool:
    """Whether a statement holds a return."""
    return any(isinstance(n, ast.Return) for n in ast.walk(node))
