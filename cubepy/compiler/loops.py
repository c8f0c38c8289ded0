"""Walking loops: comptime ones are written out, runtime ones keep what they change in variables."""

from __future__ import annotations

import ast
from functools import partial

from cubepy.compiler import convert
from cubepy.compiler.ir import Assign, Break, Continue, Expr, For, If, Stmt, VType, While
from cubepy.compiler.source import loop_targets, stored_names
from cubepy.compiler.state import Restart
from cubepy.compiler.statements import RETURN, Item, Loop, Marker, Path, Statements, has_return
from cubepy.compiler.values import (
    ArrayValue,
    Const,
    RangeValue,
    TupleValue,
    Undecided,
    UnrollValue,
    Value,
    describe,
)
from cubepy.errors import KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt


class Loops(Statements):
    """Adds loops to what can be walked."""

    def stmt_For(self, node: ast.For) -> list[Path] | None:
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
        return self.loop_over(node, over)

    def loop_over(self, node: ast.For, over: Value) -> list[Path] | None:
        """Walk a loop over a value."""
        if isinstance(over, UnrollValue):
            return self.unroll(node, over)
        if not isinstance(over, RangeValue):
            raise KernelTypeError(
                f"{describe(over)} cannot be looped over",
                hint="loop over range(...), a tuple, or cb.unroll(...)",
            )
        return self.range_loop(node, over)

    def unroll(self, node: ast.For, over: UnrollValue) -> list[Path]:
        """Write a comptime loop out: its body once for every item, with the variable comptime."""
        self.unroll_count += 1
        number = self.unroll_count
        targets = stored_names(node.target)
        rebound = frozenset[str]().union(*map(stored_names, node.body))
        values = [
            item if not isinstance(item, (int, str, float, tuple)) else Const(item)
            for item in over.items
        ]
        assigned = self.variables_of(targets | rebound)
        values = [self.copied(value, assigned) for value in values]
        whole = self.region()
        self.loops.append(Loop(unrolled=number))
        paths = [Path(self.out, self.frame.env)]
        for i, value in enumerate(values):
            turn = self.region()
            self.bind_item(node.target, value, rebound)
            paths = self.block([*node.body]) + self.arrived(turn, Marker(number, end=False))
            if not paths:
                break
            if i + 1 < len(values):
                self.join(turn, paths)
        self.loops.pop()
        paths += self.arrived(whole, Marker(number, end=True))
        for name in sorted(targets):
            self.after_unrolled(name, paths)
        return paths

    def bind_item(self, target: ast.expr, value: Value, rebound: frozenset[str]) -> None:
        """Bind the variable of an unrolled loop; a comptime one stays so in its turn, whatever it
        is after the loop.
        """
        if isinstance(target, ast.Name) and isinstance(value, Const) and target.id not in rebound:
            self.frame.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            assigned = self.variables_of(stored_names(target))
            items = [self.copied(v, assigned) for v in self.items_of(value, len(target.elts))]
            for t, v in zip(target.elts, items, strict=True):
                self.bind_item(t, v, rebound)
        else:
            self.bind_target(target, value)

    def after_unrolled(self, name: str, paths: list[Path]) -> None:
        """Bind the variable of an unrolled loop at its end, where a runtime condition may have left
        it sooner.
        """
        bound = [path for path in paths if name in path.env]
        key = (*self.frame.path, name)
        if not bound or any(isinstance(path.env[name], Undecided) for path in bound):
            return
        if key in self.facts.runtime or self.parts_change(key):
            saved = self.out
            for path in bound:
                self.out = path.out
                path.env[name] = self.assign(name, path.env[name])
            self.out = saved
        elif any(not self.same(bound[0].env[name], path.env[name]) for path in bound):
            for path in bound:
                path.env[name] = Undecided(f"{name!r} differs with where its loop is left", key)

    def range_loop(
        self,
        node: ast.For,
        over: RangeValue,
        target: ast.expr | None = None,
        also: tuple[tuple[str, Const], ...] = (),
        left_by: str = "",
    ) -> list[Path] | None:
        """A runtime loop over a range.

        `target` is its variable, if that is not the loop's own target; names of `also` are comptime
        in the body; a break sets the variable `left_by`.
        """
        target = node.target if target is None else target
        bounds = (over.start, over.stop, over.step)
        known = [b.value for b in bounds if isinstance(b, Const)]
        if len(known) == 3 and len(range(*known)) == 0:
            return None
        dtype = self.index
        strong = [b.type.dtype for b in bounds if isinstance(b, Expr) and not b.type.weak]
        for d in strong:
            if not d.is_int:
                raise KernelTypeError(
                    f"range needs integers, not {d.name}", hint="cast the bound with cb.cast"
                )
            dtype = dt.promote(dtype, d) if d.bits >= dtype.bits else dtype
        start, stop, step = (convert.to(b, dtype) for b in bounds)
        stop = self.pinned(stop, "stop")  # type: ignore[assignment]
        if step.op == "const" and step.attr == 0:
            raise KernelTypeError("range needs a step that is not zero")
        if not isinstance(target, ast.Name):
            raise KernelSyntaxError("the variable of a range loop is one name")
        name = target.id
        key = (*self.frame.path, "loop", (node.lineno, node.col_offset), name)
        var = self.variable(key, VType(dtype))
        if var.type.dtype is not dtype:
            self.strengthen(key, VType(dt.promote(var.type.dtype, dtype)))
        items: list[Item] = [*node.body]
        before = self.frame.env.get(name)
        beyond = (*self.frame.path, name)
        bound: dict[str, Value] = {}
        for other, value in also:
            if (*self.frame.path, other) in self.facts.runtime:
                items.insert(0, partial(self.set_name, other, value))
            else:
                bound[other] = value
        if beyond in self.facts.runtime:  # the name is a variable beyond this loop
            items.insert(0, lambda: self.bind_target(target, var))
            body = self.loop_body(items, bound, node, left_by)
        else:
            body = self.loop_body(items, {name: var, **bound}, node, left_by)
            runs = all(b.op == "const" for b in (start, stop, step))
            if before is not None and not runs:
                self.frame.env[name] = Undecided(
                    f"{name!r} is the variable of a loop that may not have run", beyond
                )
        self.emit(For(str(var.attr), start, stop, step, body, over.rolled))
        return self.after_loop(node)

    def set_name(self, name: str, value: Value) -> None:
        """Assign a value to a local name."""
        self.frame.env[name] = self.assign(name, value)

    def loop_body(
        self,
        items: list[Item],
        bound: dict[str, Value],
        node: ast.For | ast.While,
        left_by: str = "",
    ) -> list[Stmt]:
        """Walk the body of a runtime loop; names that it changes become runtime variables."""
        for item in node.body:  # a variable of inner loops does not live from one turn to the next
            for name in loop_targets(item):
                if name in self.frame.env and name in self.frame.source.loop_names:
                    self.frame.env[name] = Undecided(
                        f"{name!r} is the variable of a loop that may not have run"
                    )
        at = (node.lineno, node.col_offset)
        for name in frozenset[str]().union(*map(stored_names, node.body)) & self.frame.env.keys():
            if (*self.frame.path, name, at) in self.facts.apart:
                self.frame.env[name] = Undecided(
                    f"{name!r} is another kind of value before a loop than at its end"
                )
        before = dict(self.frame.env)
        self.frame.env.update(bound)
        entry = {n: v for n, v in before.items() if n not in bound}
        loop = Loop(entry=entry, bound=bound, at=at, left_by=left_by)
        self.loops.append(loop)
        location = self.location
        body, paths = self.branch(items)
        env = self.met(paths) if paths else {}
        if paths:
            self.frame.env = env
            self.check_loop_exit()
        self.loops.pop()
        self.location = location
        after = dict(before)
        for name, value in env.items():
            after.setdefault(name, value)
        for name, was in before.items():
            if isinstance(env.get(name), Expr) and not isinstance(was, Undecided):
                after[name] = env[name]
        for name, value in bound.items():
            key = (*self.frame.path, name)
            after[name] = (
                Undecided(f"{name!r} changes within its own loop", key)
                if name in loop.rebound
                else value
            )
        self.frame.env = after
        return body

    def after_loop(self, node: ast.For | ast.While) -> list[Path] | None:
        """Go on after a loop; when it held a return, only if the flag says that none was taken."""
        if not has_return(node):
            return None
        flag = self.variable((*self.frame.path, RETURN, "returned"), convert.BOOL)
        if any(not loop.unrolled for loop in self.loops):
            self.emit(If(flag, [Break()], []))
            return None
        env = dict(self.frame.env)
        if self.frame.returned is not None:
            env[RETURN] = self.frame.returned
        rest: list[Stmt] = []
        gone: list[Stmt] = []
        self.emit(If(Expr("not_", convert.BOOL, (flag,)), rest, gone))
        self.left.append(Path(gone, env, RETURN, flagged=True))
        return [Path(rest, self.frame.env)]

    def stmt_While(self, node: ast.While) -> list[Path] | None:
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
            body = self.loop_body([*node.body], {}, node)
            self.emit(While(cond, body))  # type: ignore[arg-type]
            return self.after_loop(node)

        def test() -> None:
            value = convert.condition(self.eval(node.test))
            if isinstance(value, Const):
                if not value.value:
                    self.emit(Break())
                return
            self.emit(If(Expr("not_", convert.BOOL, (value,)), [Break()], []))  # type: ignore[arg-type]

        body = self.loop_body([test, *node.body], {}, node)
        self.emit(While(convert.constant(True, dt.bool_), body))
        return self.after_loop(node)

    def stmt_Break(self, node: ast.Break) -> list[Path]:
        return self._jump(end=True)

    def stmt_Continue(self, node: ast.Continue) -> list[Path]:
        return self._jump(end=False)

    def _jump(self, end: bool) -> list[Path]:
        if not self.loops:
            raise KernelSyntaxError("break or continue outside a loop")
        number = self.loops[-1].unrolled
        if number:
            self.left.append(Path(self.out, self.frame.env, Marker(number, end)))
            return []
        self.check_loop_exit()
        if end and self.loops[-1].left_by:
            self.emit(Assign(self.loops[-1].left_by, convert.constant(True, dt.bool_)))
        self.emit(Break() if end else Continue())
        return []

    def check_loop_exit(self) -> None:
        """A name that is comptime before a runtime loop must be unchanged wherever a turn ends; the
        loop's own names are noted if they are not what they were when it began.
        """
        loop = next(loop for loop in reversed(self.loops) if not loop.unrolled)
        for name, before in (loop.entry or {}).items():
            now = self.frame.env.get(name, before)
            if name == RETURN or isinstance(before, Undecided):
                continue
            if (
                isinstance(now, Undecided)
                and now.key is not None
                and now.key not in self.facts.runtime
            ):
                self.make_runtime(now.key)
            if isinstance(before, Expr) != isinstance(now, Expr) and not (
                isinstance(before, (Const, ArrayValue)) or isinstance(now, (Const, ArrayValue))
            ):
                self.facts.apart.add((*self.frame.path, name, loop.at))
                raise Restart
            self.differ(name, before, now)
        for name, value in loop.bound.items():
            if not self.same(self.frame.env.get(name, value), value):
                loop.rebound.add(name)
