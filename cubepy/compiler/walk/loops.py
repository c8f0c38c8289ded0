"""Walking loops: comptime ones are written out, runtime ones keep what they change in variables."""

from __future__ import annotations

import ast
from functools import partial

from cubepy.compiler import convert
from cubepy.compiler.ir import Break, DebugAssert, Expr, For, If, Stmt, VType, While
from cubepy.compiler.scope import NOTHING, UNCERTAIN, Scope
from cubepy.compiler.source import holds, loop_targets, stored_names
from cubepy.compiler.values import (
    Const,
    RangeValue,
    Tail,
    Undecided,
    UnrollValue,
    Value,
    describe,
    of_an_array,
    unpacked,
)
from cubepy.compiler.walk.assignments import Assignments
from cubepy.compiler.walk.evaluator import Evaluator
from cubepy.compiler.walk.paths import RETURN, Item, Loop, Marker, Path, Paths
from cubepy.compiler.walk.returns import Returns
from cubepy.errors import KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.words import STEP_OF_ZERO


class Loops:
    """Walks loops over ranges and items, and `while`.

    Attributes:
        scope, evaluator, paths, assignments, returns: the walker's.
        unroll_count: how many loops have been written out.
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
        self.assignments, self.returns = assignments, returns
        self.unroll_count = 0

    def loop_over(self, node: ast.For, over: Value) -> list[Path] | None:
        """Walk a loop over a value."""
        if isinstance(over, UnrollValue):
            return self.unroll(node, over)
        if not isinstance(over, RangeValue):
            raise KernelTypeError(
                f"{describe(over)} cannot be looped over",
                hint=of_an_array(over) or "loop over range(...), a tuple, or cb.unroll(...)",
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
        if any(not isinstance(value, Const) for value in values):
            assigned = self.scope.variables_of(targets | rebound)
            values = [self.scope.copied(value, assigned) for value in values]
        whole = self.paths.region()
        self.paths.loops.append(Loop(unrolled=number))
        paths = [Path(self.scope.out, self.scope.frame.env)]
        for i, value in enumerate(values):
            iteration = self.paths.region()
            self.bind_item(node.target, value, rebound)
            paths = self.paths.block([*node.body]) + self.paths.arrived(
                iteration, Marker(number, end=False)
            )
            if not paths:
                break
            if i + 1 < len(values):
                self.paths.join(iteration, paths)
        self.paths.loops.pop()
        paths += self.paths.arrived(whole, Marker(number, end=True))
        for name in sorted(targets):
            self.after_unrolled(name, paths)
        return paths

    def bind_item(self, target: ast.expr, value: Value, rebound: frozenset[str]) -> None:
        """Bind the variable of an unrolled loop; a comptime one stays so in its turn, whatever it
        is after the loop, and those of a tail need no variables of their own.
        """
        if isinstance(value, Tail):
            assert isinstance(target, ast.Tuple)
            for t, v in zip(target.elts, value.items, strict=True):
                assert isinstance(t, ast.Name)
                key = (*self.scope.frame.path, t.id)
                if t.id in rebound or self.scope.facts.is_runtime(key):
                    self.assignments.bind_target(t, v)
                else:
                    self.scope.frame.env[t.id] = v
        elif isinstance(target, ast.Name) and isinstance(value, Const) and target.id not in rebound:
            self.scope.frame.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            assigned = self.scope.variables_of(stored_names(target))
            items = [self.scope.copied(v, assigned) for v in unpacked(value, len(target.elts))]
            for t, v in zip(target.elts, items, strict=True):
                self.bind_item(t, v, rebound)
        else:
            self.assignments.bind_target(target, value)

    def after_unrolled(self, name: str, paths: list[Path]) -> None:
        """Bind the variable of an unrolled loop at its end, where a runtime condition may have left
        it sooner.
        """
        bound = [path for path in paths if name in path.env]
        key = (*self.scope.frame.path, name)
        if not bound or any(isinstance(path.env[name], Undecided) for path in bound):
            return
        if self.scope.facts.is_runtime(key) or self.scope.facts.parts_change(key):
            saved = self.scope.out
            for path in bound:
                self.scope.out = path.out
                path.env[name] = self.scope.assign(name, path.env[name])
            self.scope.out = saved
        elif any(not self.scope.same(bound[0].env[name], path.env[name]) for path in bound):
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
        dtype = self.scope.index
        strong = [b.type.dtype for b in bounds if isinstance(b, Expr) and not b.type.weak]
        for d in strong:
            if not d.is_int:
                raise KernelTypeError(
                    f"range needs integers, not {d.name}", hint="cast the bound with cb.cast"
                )
            dtype = dt.promote(dtype, d) if d.bits >= dtype.bits else dtype
        start, stop, step = (convert.to(b, dtype) for b in bounds)
        stop = self.scope.pinned(stop, "stop")  # type: ignore[assignment]
        if step.op == "const" and step.attr == 0:
            raise KernelTypeError(STEP_OF_ZERO)
        if step.op != "const" and self.scope.target.mode == "validate":
            step = self.scope.pinned(step, "step")  # type: ignore[assignment]
            zero = convert.constant(0, dtype)
            self.scope.emit(DebugAssert(Expr("ne", convert.BOOL, (step, zero)), STEP_OF_ZERO))
        if not isinstance(target, ast.Name):
            raise KernelSyntaxError("the variable of a range loop is one name")
        name = target.id
        key = (*self.scope.frame.path, "loop", (node.lineno, node.col_offset), name)
        var = self.scope.variable(key, VType(dtype))
        if var.type.dtype is not dtype:
            raise self.scope.facts.make_type(key, VType(dt.promote(var.type.dtype, dtype)))
        items: list[Item] = [*node.body]
        loop = Loop(at=(node.lineno, node.col_offset), left_by=left_by)
        before = self.scope.frame.env.get(name)
        beyond = (*self.scope.frame.path, name)
        bound: dict[str, Value] = {}
        for other, value in also:
            if self.scope.facts.is_runtime((*self.scope.frame.path, other)):
                items.insert(0, partial(self.set_name, other, value))
            else:
                bound[other] = value
        if self.scope.facts.is_runtime(beyond):  # the name is a variable beyond this loop
            items.insert(0, lambda: self.assignments.bind_target(target, var))
            body = self.loop_body(items, bound, node, loop)
        else:
            body = self.loop_body(items, {name: var, **bound}, node, loop)
            runs = all(b.op == "const" for b in (start, stop, step))
            if before is not None and not runs:
                self.scope.frame.env[name] = Undecided(
                    f"{name!r} is the variable of a loop that may not have run", beyond
                )
        self.scope.emit(For(str(var.attr), start, stop, step, body, over.rolled))
        return self.after_loop(loop)

    def set_name(self, name: str, value: Value) -> None:
        """Assign a value to a local name."""
        self.scope.frame.env[name] = self.scope.assign(name, value)

    def loop_body(
        self, items: list[Item], bound: dict[str, Value], node: ast.For | ast.While, loop: Loop
    ) -> list[Stmt]:
        """Walk the body of a runtime loop; names that it changes become runtime variables."""
        for item in node.body:  # a variable of inner loops does not live from one turn to the next
            for name in loop_targets(item):
                if name in self.scope.frame.env and name in self.scope.frame.source.loop_names:
                    self.scope.frame.env[name] = Undecided(
                        f"{name!r} is the variable of a loop that may not have run"
                    )
        for name in (
            frozenset[str]().union(*map(stored_names, node.body)) & self.scope.frame.env.keys()
        ):
            if self.scope.facts.diverges((*self.scope.frame.path, name, loop.at)):
                self.scope.frame.env[name] = Undecided(
                    f"{name!r} is another kind of value before a loop than at its end"
                )
        before = dict(self.scope.frame.env)
        self.scope.frame.env.update(bound)
        if UNCERTAIN in before:
            certain = before[UNCERTAIN].value - bound.keys()  # type: ignore[union-attr]
            self.scope.frame.env[UNCERTAIN] = Const(certain)
        loop.entry = {n: v for n, v in before.items() if n not in bound}
        loop.bound = bound
        if holds(node).returns:
            loop.returned = self.paths.flag or self.returns.new_flag()
        self.paths.loops.append(loop)
        location = self.scope.location
        body, paths = self.paths.branch(items)
        env = self.paths.met(paths) if paths else {}
        if paths:
            self.scope.frame.env = env
            self.paths.check_loop_exit()
        self.paths.loops.pop()
        self.scope.location = location
        after = dict(before)
        for name, value in env.items():
            after.setdefault(name, value)
        new = (env.keys() | bound.keys()) - before.keys()
        if new:  # the loop may not turn
            known = before.get(UNCERTAIN, NOTHING).value  # type: ignore[union-attr]
            after[UNCERTAIN] = Const(known | new)
        for name, was in before.items():
            if isinstance(env.get(name), Expr) and not isinstance(was, Undecided):
                after[name] = env[name]
        for name, value in bound.items():
            key = (*self.scope.frame.path, name)
            after[name] = (
                Undecided(f"{name!r} changes within its own loop", key)
                if name in loop.rebound
                else value
            )
        self.scope.frame.env = after
        return body

    def after_loop(self, loop: Loop, endless: bool = False) -> list[Path] | None:
        """Go on after a loop; when it held a return, only if the flag says that none was taken, and
        never after an endless one.
        """
        if not loop.returned:
            return [] if endless else None
        flag = Expr("var", convert.BOOL, (), loop.returned)
        if self.paths.flag:
            self.scope.emit(If(flag, [Break()], []))
            return [] if endless else None
        env = dict(self.scope.frame.env)
        if self.scope.frame.returned is not None:
            env[RETURN] = self.scope.frame.returned
        rest: list[Stmt] = []
        gone: list[Stmt] = []
        self.scope.emit(If(Expr("not_", convert.BOOL, (flag,)), rest, gone))
        self.paths.left.append(Path(gone, env, RETURN, loop.returned))
        return [] if endless else [Path(rest, self.scope.frame.env)]

    def while_loop(self, node: ast.While) -> list[Path] | None:
        """`while`; a condition that needs statements is asked inside the loop."""
        if node.orelse:
            raise KernelSyntaxError(
                "while ... else cannot be used in a kernel",
                hint="set a flag before `break`, and ask for it behind the loop",
            )
        before = dict(self.scope.frame.env)
        saved, self.scope.out = self.scope.out, []
        cond = convert.condition(self.evaluator.test(node.test))
        test_out, self.scope.out = self.scope.out, saved
        if isinstance(cond, Const) and not cond.value:
            return None
        simple = not test_out and isinstance(cond, Expr) and not cond.touches_memory
        self.scope.frame.env = before
        if simple:
            loop = Loop(at=(node.lineno, node.col_offset))
            body = self.loop_body([*node.body], {}, node, loop)
            self.scope.emit(While(cond, body))  # type: ignore[arg-type]
            return self.after_loop(loop)

        endless = False

        def test() -> None:
            nonlocal endless
            value = convert.condition(self.evaluator.test(node.test))
            if isinstance(value, Const):
                endless = bool(value.value)
                if not value.value:
                    self.scope.emit(Break())
                return
            self.scope.emit(If(Expr("not_", convert.BOOL, (value,)), [Break()], []))  # type: ignore[arg-type]

        loop = Loop(at=(node.lineno, node.col_offset))
        body = self.loop_body([test, *node.body], {}, node, loop)
        self.scope.emit(While(convert.constant(True, dt.bool_), body))
        return self.after_loop(loop, endless and not loop.broken)
