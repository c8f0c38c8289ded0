"""Walking statements: comptime branches are taken, unrolled loops written out, runtime ones translated.

A block is walked as a list of work items. When a runtime `if` may leave its block (return, or break and
continue of an unrolled loop), the items after it are walked inside its branches, so the result needs no jumps.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

from cubepy.compiler import convert
from cubepy.compiler.expressions import Expressions
from cubepy.compiler.ir import (
    Assign,
    Break,
    Continue,
    Expr,
    For,
    If,
    Stmt,
    VType,
    While,
)
from cubepy.compiler.source import loop_targets
from cubepy.compiler.values import (
    Const,
    RangeValue,
    StructValue,
    TupleValue,
    Undecided,
    UnrollValue,
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
        tail: list[Item] = rest if leaves else []
        final = self.final and (leaves or not rest)
        then, env_then, through_then = self.nested([*node.body, *tail], final)
        orelse, env_else, through_else = self.nested([*node.orelse, *tail], final)
        self.location = location
        self.emit(If(cond, then, orelse))  # type: ignore[arg-type]
        self.merge(env_then if through_then else None, env_else if through_else else None, final)
        if leaves or not (through_then or through_else):
            return through_then or through_else
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

    def stmt_For(self, node: ast.For, rest: list[Item]) -> bool | None:
        if node.orelse:
            raise KernelSyntaxError("for ... else cannot be used in a kernel")
        over = self.eval(node.iter)
        if isinstance(over, Const) and isinstance(over.value, range):
            r = over.value
            if not isinstance(node.target, ast.Name):
                raise KernelSyntaxError("the variable of a range loop is one name")
            over = RangeValue(Const(r.start), Const(r.stop), Const(r.step))
        if isinstance(over, Const) and isinstance(over.value, (tuple, list)):
            over = UnrollValue(tuple(Const(v) for v in over.value))
        if isinstance(over, TupleValue):
            over = UnrollValue(over.items)
        if isinstance(over, UnrollValue):
            return self.unroll(node, over, rest)
        if not isinstance(over, RangeValue):
            raise KernelTypeError(
                f"{describe(over)} cannot be looped over", hint="loop over range(...), a tuple, or cb.unroll(...)"
            )
        return self.range_loop(node, over, rest)

    def unroll(self, node: ast.For, over: UnrollValue, rest: list[Item]) -> bool:
        """Write a comptime loop out: its body once for every item, with the variable comptime."""
        self.unroll_count += 1
        number = self.unroll_count
        target = node.target

        def bind(item: Any) -> Callable[[], None]:
            value = item if not isinstance(item, (int, str, float, tuple)) else Const(item)
            return lambda: self.bind_target(target, value)

        items: list[Item] = [lambda: self.loops.append(Loop(unrolled=number))]
        for item in over.items:
            items += [bind(item), *node.body, Marker(number, end=False)]
        loops = list(self.loops)
        through = self.block([*items, Marker(number, end=True), *rest])
        self.loops = loops
        return through

    def range_loop(self, node: ast.For, over: RangeValue, rest: list[Item]) -> bool | None:
        bounds = (over.start, over.stop, over.step)
        if all(isinstance(b, Const) for b in bounds) and len(range(*(b.value for b in bounds))) == 0:  # type: ignore[union-attr]
            return None
        dtype = self.index
        strong = [b.type.dtype for b in bounds if isinstance(b, Expr) and not b.type.weak]
        for d in strong:
            if not d.is_int:
                raise KernelTypeError(f"range needs integers, not {d.name}", hint="cast the bound with cb.cast")
            dtype = dt.promote(dtype, d) if d.bits >= dtype.bits else dtype
        start, stop, step = (convert.to(b, dtype) for b in bounds)
        stop = self.pinned(stop, "stop")  # type: ignore[assignment]
        if step.op == "const" and step.attr == 0:
            raise KernelTypeError("range needs a step that is not zero")
        if not isinstance(node.target, ast.Name):
            raise KernelSyntaxError("the variable of a range loop is one name")
        name = node.target.id
        key = (*self.frame.path, "loop", (node.lineno, node.col_offset), name)
        var = self.variable(key, VType(dtype))
        if var.type.dtype is not dtype:
            self.strengthen(key, VType(dt.promote(var.type.dtype, dtype)))
        items: list[Item] = list(node.body)
        if (*self.frame.path, name) in self.facts.runtime:  # the name is a variable beyond this loop
            items.insert(0, lambda: self.bind_target(node.target, var))
        body, _ = self.loop_body(items, {name: var}, node)
        self.emit(For(str(var.attr), start, stop, step, body))
        return self.after_loop(node, rest)

    def loop_body(
        self, items: list[Item], bound: dict[str, Value], node: ast.For | ast.While
    ) -> tuple[list[Stmt], bool]:
        """Walk the body of a runtime loop; names that it changes become runtime variables."""
        for item in node.body:  # a variable of inner loops does not live from one turn to the next
            for name in loop_targets(item):
                if name in self.frame.env and name in self.frame.source.loop_names:
                    self.frame.env[name] = Undecided(f"{name!r} is the variable of a loop that may not have run")
        before = dict(self.frame.env)
        self.frame.env.update(bound)
        self.loops.append(Loop(entry={**before, **bound}))
        location = self.location
        body, env, through = self.nested(items, final=False)
        if through:
            self.frame.env, keep = env, self.frame.env
            self.check_loop_exit()
            self.frame.env = keep
        self.loops.pop()
        self.location = location
        after = dict(before)
        for name, value in (env if through else {}).items():
            after.setdefault(name, value)
        for name, was in before.items():
            if through and isinstance(env.get(name), Expr) and not isinstance(was, Undecided):
                after[name] = env[name]
        after.update({n: env.get(n, v) if through else v for n, v in bound.items()})
        self.frame.env = after
        return body, through

    def after_loop(self, node: ast.For | ast.While, rest: list[Item]) -> bool | None:
        """Go on after a loop; when it held a return, only if the flag says that none was taken."""
        if not _has_return(node):
            return None
        flag = self.variable((*self.frame.path, "returned"), convert.BOOL)
        if any(not loop.unrolled for loop in self.loops):
            self.emit(If(flag, [Break()], []))
            return None
        if self.frame.returned is not None:
            self.frame.env[RETURN] = self.frame.returned
        then = dict(self.frame.env)
        body, env, through = self.nested(rest, self.final)
        self.emit(If(Expr("not_", convert.BOOL, (flag,)), body, []))
        self.merge(then, env if through else None, self.final)
        return True

    def stmt_While(self, node: ast.While, rest: list[Item]) -> bool | None:
        if node.orelse:
            raise KernelSyntaxError("while ... else cannot be used in a kernel")
        before = dict(self.frame.env)
        saved, self.out = self.out, []
        cond = convert.condition(self.eval(node.test))
        test_out, self.out = self.out, saved
        if isinstance(cond, Const) and not cond.value:
            return None
        simple = not test_out and isinstance(cond, Expr) and not cond.touches_memory
        self.frame.env = before
        if simple:
            body, _ = self.loop_body(list(node.body), {}, node)
            self.emit(While(cond, body))  # type: ignore[arg-type]
            return self.after_loop(node, rest)

        def test() -> None:
            value = convert.condition(self.eval(node.test))
            if isinstance(value, Const):
                if not value.value:
                    self.emit(Break())
                return
            self.emit(If(Expr("not_", convert.BOOL, (value,)), [Break()], []))  # type: ignore[arg-type]

        body, _ = self.loop_body([test, *node.body], {}, node)
        self.emit(While(convert.constant(True, dt.bool_), body))
        return self.after_loop(node, rest)


def _leaves(node: ast.AST, in_unrolled: bool) -> bool:
    """Whether a statement holds a return, or a break or continue that belongs to a loop around it."""

    def look(n: ast.AST, inside: bool) -> bool:
        if isinstance(n, ast.Return):
            return not inside
        if isinstance(n, (ast.Break, ast.Continue)):
            return in_unrolled and not inside
        inner = inside or isinstance(n, (ast.For, ast.While))
        return any(look(c, inner) for c in ast.iter_child_nodes(n))

    return look(node, False) or _has_return(node)


def _has_return(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Return) for n in ast.walk(node))
