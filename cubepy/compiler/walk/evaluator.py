"""Walking expressions: comptime ones are computed now, runtime ones become typed trees."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.ir import (
    Assign,
    Break,
    Continue,
    Expr,
    For,
    If,
    Stmt,
    While,
    expressions,
    walk,
)
from cubepy.compiler.lower.loops import written_out
from cubepy.compiler.lower.registry import LOWERED
from cubepy.compiler.reads import HOLDERS, MISSING
from cubepy.compiler.scope import NOTHING, UNCERTAIN, Scope
from cubepy.compiler.source import stored_names
from cubepy.compiler.values import (
    Const,
    StructValue,
    TupleValue,
    Undecided,
    Value,
    describe,
    plain,
    refuse_index_after_index,
    unpacked,
)
from cubepy.compiler.walk.attributes import attribute, wrap
from cubepy.compiler.walk.elements import subscript
from cubepy.compiler.walk.operators import OPERATORS, both, compare, of_struct, of_tuples, operator
from cubepy.compiler.walk.syntax import unsupported
from cubepy.errors import ComptimeError, KernelNameError, KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.struct import method_of

AGGREGATES = (StructValue, TupleValue)
"""What has operators of its own."""
PURE = (Assign, If, For, While, Break, Continue)
"""Statements of inlined funcs that do no more than compute."""


class Evaluator:
    """Walks expressions.

    Attributes:
        scope: what is known at the current place.
        call: gives the value of a call; the walker's calls.
        method: gives the value of a struct's method that an operator calls; the walker's calls.
    """

    def __init__(
        self,
        scope: Scope,
        call: Callable[[ast.Call], Value],
        method: Callable[[StructValue, str, list[Value], ast.AST], Value],
    ) -> None:
        self.scope, self.call, self.method = scope, call, method
        self.methods: dict[type[ast.expr], Callable[[Any], Value]] = {
            getattr(ast, name[5:]): getattr(self, name) for name in EVALUATED
        }

    def eval(self, node: ast.expr) -> Value:
        """The value of an expression."""
        scope = self.scope
        saved, scope.location = scope.location, scope.frame.source.at(node)
        method = self.methods.get(type(node))
        if method is None:
            raise unsupported(node, scope.location)
        value = method(node)
        scope.location = saved
        return value

    def eval_all(self, *nodes: ast.expr) -> list[Value]:
        """The values of expressions, evaluated from left to right."""
        values: list[Value] = []
        marks: list[int] = []
        for node in nodes:
            values.append(self.eval(node))
            marks.append(len(self.scope.out))
        for i in reversed(
            range(len(values) - 1)
        ):  # from the right: what is inserted moves no earlier mark
            if len(self.scope.out) > marks[i]:
                values[i] = self.scope.keep(values[i], marks[i])
        return values

    def expr_Constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, (complex, bytes)):
            raise KernelTypeError(
                f"a {type(node.value).__name__} literal cannot be used in a kernel",
                hint="numbers, bools and text are; a complex number is a @cb.struct of two floats",
            )
        return Const(node.value)

    def expr_Name(self, node: ast.Name) -> Value:
        return self.looked_into(self.name(node.id))

    def looked_into(self, value: Value) -> Value:
        """A value of which all may be read: a list and the like counts with what it holds."""
        if isinstance(value, Const) and isinstance(value.value, HOLDERS):
            self.scope.facts.reads.inside(value.value)
        return value

    def owner(self, node: ast.expr) -> Value:
        """The value of which an attribute or an item is taken: nothing else of it is read."""
        if isinstance(node, ast.Name):
            return self.name(node.id)
        return (
            attribute(self.scope, self.owner(node.value), node.attr)
            if isinstance(node, ast.Attribute)
            else self.eval(node)
        )

    def name(self, name: str) -> Value:
        """What a name means here.

        Raises:
            KernelNameError: nothing of that name is bound yet, or at all.
        """
        if name in self.scope.frame.env:
            value = self.scope.frame.env[name]
            if isinstance(value, Undecided):
                if value.key is not None and not self.scope.facts.is_runtime(value.key):
                    raise self.scope.facts.make_runtime(value.key)
                raise value.refused()
            if name in self.scope.frame.env.get(UNCERTAIN, NOTHING).value:  # type: ignore[union-attr]
                self.scope.read_early = True
            return value
        if name in self.scope.frame.source.locals:
            raise KernelNameError(
                f"the variable {name!r} is used before it has a value",
                hint=self.of_the_module(name) or "assign it on every path before this line",
            )
        found = self.scope.facts.reads.name(self.scope.frame.source.fn, name)
        if found is MISSING:
            raise KernelNameError(f"the name {name!r} is not defined", hint=self.near(name))
        return wrap(self.scope, found)

    def of_the_module(self, name: str) -> str:
        """The hint where a kernel gives a name of its module a value, and so has its own."""
        if name not in self.scope.frame.source.fn.__globals__:
            return ""
        return (
            f"a name that is assigned is the kernel's own: the module's {name!r} is only read "
            "under another name; store results into an array argument"
        )

    def near(self, name: str) -> str:
        """A suggestion for a misspelt name."""
        import difflib

        known = [*self.scope.frame.env, *self.scope.frame.source.fn.__globals__]
        close = difflib.get_close_matches(name, known, n=1)
        return (
            f"did you mean {close[0]!r}?"
            if close
            else "a kernel sees its parameters, closure and module"
        )

    def expr_Attribute(self, node: ast.Attribute) -> Value:
        return self.looked_into(attribute(self.scope, self.owner(node.value), node.attr))

    def expr_Tuple(self, node: ast.Tuple) -> Value:
        return plain(TupleValue(tuple(self.eval_all(*node.elts))))

    def expr_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.eval_all(node.left, node.right)
        op = operator(node.op)
        if isinstance(left, AGGREGATES) or isinstance(right, AGGREGATES):
            return self.of_aggregates(node, op, left, right)
        return convert.binary(op, left, right, self.scope.index)

    def of_aggregates(self, node: ast.AST, op: str, left: Value, right: Value) -> Value:
        """`left op right`, one of which is a struct or a tuple."""
        if (found := of_struct(op, left, right)) is not None:
            owner, name, other = found
            return self.method(owner, name, [other], node)
        return of_tuples(op, left, right) or convert.binary(op, left, right, self.scope.index)

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Value:
        op, negated = operator(node.op), isinstance(node.op, ast.Not)
        value = (self.test if negated else self.eval)(node.operand)
        if isinstance(value, StructValue) and method_of(op) in value.type.methods:
            return self.method(value, method_of(op), [], node)
        return convert.unary(op, value)

    def expr_Compare(self, node: ast.Compare) -> Value:
        result: Value | None = None
        left, *others = self.eval_all(node.left, *node.comparators)
        for i, (op, right) in enumerate(zip(node.ops, others, strict=True)):
            if i + 1 < len(node.ops):
                right = self.scope.pinned(right)
            aggregates = isinstance(left, StructValue) or isinstance(right, StructValue)
            one = (
                self.compared(node, op, left, right)
                if aggregates
                else compare(self.scope, op, left, right)
            )
            if len(node.ops) > 1:
                one = convert.condition(one)
            result = one if result is None else both(self.scope, result, one)
            left = right
        assert result is not None
        return result

    def compared(self, node: ast.Compare, op: ast.cmpop, left: Value, right: Value) -> Value:
        """One comparison, in which a struct takes part."""
        name = OPERATORS.get(type(op), "")
        found = of_struct(name, left, right)
        if found is None and name == "ne" and (found := of_struct("eq", left, right)) is not None:
            owner, method, other = found
            return convert.unary("not_", self.method(owner, method, [other], node))
        if found is None:
            return compare(self.scope, op, left, right)
        owner, method, other = found
        return self.method(owner, method, [other], node)

    def expr_BoolOp(self, node: ast.BoolOp) -> Value:
        return self.bool_op(node, self.either_value)

    def test(self, node: ast.expr) -> Value:
        """What a condition gives: of `and` and `or` only the truth counts."""
        if not isinstance(node, ast.BoolOp):
            return self.eval(node)
        saved, self.scope.location = self.scope.location, self.scope.frame.source.at(node)
        value = self.bool_op(node, self.short_circuit)
        self.scope.location = saved
        return value

    def bool_op(
        self, node: ast.BoolOp, joined: Callable[[Expr, Value, list[Stmt], bool], Value]
    ) -> Value:
        """`and` and `or`, evaluating an operand only when it counts."""
        is_and = isinstance(node.op, ast.And)
        one = self.test if joined == self.short_circuit else self.eval
        result = one(node.values[0])
        for number, value_node in enumerate(node.values[1:]):
            if isinstance(result, Const):
                if bool(result.value) is not is_and:
                    return result
                result = one(value_node)
                continue
            convert.condition(result)
            saved, self.scope.out = self.scope.out, []
            right = one(value_node)
            work, self.scope.out = self.scope.out, saved
            result = joined(result, right, work, is_and)  # type: ignore[arg-type]
            if one == self.eval and isinstance(result, Expr):
                self.scope.join(node, number, result.type)
        return result

    def either_value(self, left: Expr, right: Value, work: list[Stmt], is_and: bool) -> Value:
        """The operand that decides, as Python gives it: a number where one of them is a number."""
        convert.condition(right)
        if left.type.dtype is dt.bool_ and (
            right.type.dtype is dt.bool_
            if isinstance(right, Expr)
            else isinstance(right.value, bool)  # type: ignore[union-attr]
        ):
            return self.short_circuit(left, right, work, is_and)
        kept = self.scope.pinned(left)
        x, y = convert.unify(kept, right, self.scope.index)
        name = self.scope.fresh("both" if is_and else "either")
        self.scope.types[name] = x.type
        first = Assign(name, x, loc=self.scope.location)
        work.append(Assign(name, y, loc=self.scope.location))
        test = convert.truth(kept)  # type: ignore[arg-type]
        self.scope.emit(If(test, work, [first]) if is_and else If(test, [first], work))
        return Expr("var", x.type, (), name)

    def short_circuit(self, left: Expr, right: Value, work: list[Stmt], is_and: bool) -> Value:
        """Whether both, or one of them, hold; `work` is what the right one needs."""
        left, right = convert.condition(left), convert.condition(right)  # type: ignore[assignment]
        if isinstance(right, Const):
            if not work:
                return left if right.value is is_and else right
            right = convert.runtime(right)
        if not work and not right.touches_memory:  # type: ignore[union-attr]
            return Expr("and" if is_and else "or", convert.BOOL, (left, convert.runtime(right)))
        left = self.scope.temporary(left, "both" if is_and else "either")
        right_expr = convert.to(right, dt.bool_)
        work.append(Assign(str(left.attr), right_expr, loc=self.scope.location))
        self.scope.emit(If(left, work, []) if is_and else If(left, [], work))
        return left

    def expr_IfExp(self, node: ast.IfExp) -> Value:
        test = self.test(node.test)
        if isinstance(test, Expr) and test.type.lanes:
            return self.lane_by_lane(test, node)
        cond = convert.condition(test)
        if isinstance(cond, Const):
            return self.eval(node.body if cond.value else node.orelse)
        assert isinstance(cond, Expr)
        saved = self.scope.out
        self.scope.out = []
        a = self.eval(node.body)
        work_a, self.scope.out = self.scope.out, []
        b = self.eval(node.orelse)
        work_b, self.scope.out = self.scope.out, saved
        if not all(isinstance(v, (Expr, Const)) for v in (a, b)):
            raise ComptimeError(
                "a conditional expression with a runtime condition chooses between numbers"
            )
        x, y = convert.unify(a, b, self.scope.index)
        self.scope.join(node, 0, x.type)
        if not work_a and not work_b and not x.touches_memory and not y.touches_memory:
            return Expr("select", x.type, (convert.to(cond, dt.bool_, x.type.lanes), x, y))
        name = self.scope.fresh("chosen")
        self.scope.types[name] = x.type
        work_a.append(Assign(name, x, loc=self.scope.location))
        work_b.append(Assign(name, y, loc=self.scope.location))
        self.scope.emit(If(cond, work_a, work_b))
        return Expr("var", x.type, (), name)

    def lane_by_lane(self, mask: Expr, node: ast.IfExp) -> Value:
        """`a if mask else b`.

        Raises:
            KernelTypeError: a side touches memory, which it would do for all lanes.
        """
        mark = len(self.scope.out)
        a, b = self.eval_all(node.body, node.orelse)
        sides = [v for v in (a, b) if isinstance(v, Expr)]
        if any(v.touches_memory for v in sides) or not all(map(_pure, walk(self.scope.out[mark:]))):
            raise KernelTypeError(
                "both sides of a conditional expression on a mask are evaluated, "
                "and one of them touches memory",
                hint="load into a variable before, or use cb.select(mask, a, b)",
            )
        return LOWERED["select"](self.scope, "select", [mask, a, b], {})

    def expr_Subscript(self, node: ast.Subscript) -> Value:
        return self.looked_into(self.item(node))

    def item(self, node: ast.Subscript) -> Value:
        """`owner[...]`."""
        refuse_index_after_index(node, self.scope.frame.env)
        saved, owner = self.scope.location, self.owner(node.value)
        self.scope.location = saved
        if isinstance(node.slice, ast.Slice) and isinstance(owner, (Const, TupleValue)):
            bounds = self.comptime_slice(node.slice)
            if isinstance(owner, TupleValue):
                return plain(TupleValue(owner.items[bounds]))
            return Const(self.scope.facts.reads.item(owner.value, bounds))
        at = self.index_values(node.slice)
        if isinstance(owner, StructValue) and "__getitem__" in owner.type.methods:
            items = [at[0] if len(at) == 1 else TupleValue(at)]
            return self.method(owner, "__getitem__", items, node)
        return subscript(self.scope, owner, at)

    def comptime_slice(self, node: ast.Slice) -> slice:
        """`start:stop:step` of comptime bounds."""
        parts = (node.lower, node.upper, node.step)
        bounds = [Const(None) if part is None else self.eval(part) for part in parts]
        numbers = [b.value for b in bounds if isinstance(b, Const)]
        if len(numbers) < len(bounds):
            raise ComptimeError(
                "the bounds of a slice of comptime values must be comptime",
                hint="pass the values as an array instead",
            )
        return slice(*numbers)

    def index_values(self, node: ast.expr) -> tuple[Value, ...]:
        """The indices inside `[...]`."""
        if isinstance(node, ast.Tuple):
            return tuple(self.eval_all(*node.elts))
        value = self.eval(node)
        if isinstance(value, TupleValue):
            return value.items
        if isinstance(value, Const) and isinstance(value.value, tuple):
            return tuple(Const(v) for v in value.value)
        return (value,)

    def expr_Call(self, node: ast.Call) -> Value:
        value = self.call(node)
        if isinstance(value, Undecided):
            raise value.refused()
        return value

    def unread(self, node: ast.expr) -> Value:
        """The value of an expression that nothing is done with here: a call may give none."""
        if not isinstance(node, ast.Call):
            return self.eval(node)
        saved = self.scope.location
        self.scope.locate(node)
        value = self.call(node)
        self.scope.location = saved
        return value

    def expr_GeneratorExp(self, node: ast.GeneratorExp) -> Value:
        """`(f(i) for i in ...)`, written out: a tuple."""
        if len(node.generators) > 1:
            raise KernelSyntaxError(
                "a comprehension has one for in a kernel", hint="put one into another"
            )
        (loop,) = node.generators
        names = stored_names(loop.target)
        before = {n: self.scope.frame.env[n] for n in names if n in self.scope.frame.env}
        values: list[Value] = []
        marks: list[int] = []
        for item in written_out(self.eval(loop.iter)):
            self.bind_comprehended(loop.target, item)
            if all(self.comptime_truth(test) for test in loop.ifs):
                values.append(self.eval(node.elt))
                marks.append(len(self.scope.out))
        for i in reversed(range(len(values) - 1)):
            values[i] = self.scope.keep(values[i], marks[i])
        for name in names:
            self.scope.frame.env.pop(name, None)
        self.scope.frame.env.update(before)
        return plain(TupleValue(tuple(values)))

    def bind_comprehended(self, target: ast.expr, item: Value) -> None:
        """Bind a comprehension's variables, which are its own."""
        if isinstance(target, ast.Name):
            self.scope.frame.env[target.id] = item
        elif isinstance(target, ast.Tuple):
            for t, v in zip(target.elts, unpacked(item, len(target.elts)), strict=True):
                self.bind_comprehended(t, v)
        else:
            raise unsupported(target, self.scope.location)

    def comptime_truth(self, node: ast.expr) -> bool:
        """Whether a condition holds that is known when the code is made."""
        value = self.eval(node)
        if not isinstance(value, Const):
            raise ComptimeError(
                f"the condition of a comprehension must be comptime, but it is {describe(value)}"
            )
        return bool(value.value)


EVALUATED = [name for name in vars(Evaluator) if name.startswith("expr_")]


def _pure(s: Stmt) -> bool:
    return isinstance(s, PURE) and not any(e.touches_memory for e in expressions(s))
