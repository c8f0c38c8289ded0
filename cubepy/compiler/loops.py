"""Walking loops: comptime ones are written out, runtime ones keep what they change in variables."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.ir import Break, Expr, For, If, Stmt, VType, While
from cubepy.compiler.source import loop_targets
from cubepy.compiler.statements import RETURN, Item, Loop, Marker, Statements, has_return
from cubepy.compiler.values import Const, RangeValue, TupleValue, Undecided, UnrollValue, Value, describe
from cubepy.errors import KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt


class Loops(Statements):
    """Adds loops to what can be walked."""

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
        if not has_return(node):
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
