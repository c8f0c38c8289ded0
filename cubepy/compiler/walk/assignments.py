"""Walking assignments: to names, tuples of targets and elements."""

from __future__ import annotations

import ast

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr
from cubepy.compiler.scope import UNCERTAIN, Scope
from cubepy.compiler.source import stored_names
from cubepy.compiler.values import (
    Const,
    StructValue,
    Value,
    describe,
    refuse_index_after_index,
    unpacked,
)
from cubepy.compiler.walk.elements import store_subscript, subscript
from cubepy.compiler.walk.evaluator import AGGREGATES, Evaluator
from cubepy.compiler.walk.operators import operator
from cubepy.compiler.walk.syntax import unsupported
from cubepy.errors import KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt


class Assignments:
    """Gives values to targets.

    Attributes:
        scope, evaluator: the walker's.
    """

    def __init__(self, scope: Scope, evaluator: Evaluator) -> None:
        self.scope, self.evaluator = scope, evaluator

    def assign(self, node: ast.Assign) -> None:
        """`a = b = value`."""
        named = all(isinstance(target, ast.Name) for target in node.targets)
        evaluate = self.evaluator.unread if named else self.evaluator.eval
        value = evaluate(node.value)
        if len(node.targets) > 1:
            value = self.scope.pinned(value)
        for target in node.targets:
            self.bind_target(target, value)

    def annotated(self, node: ast.AnnAssign) -> None:
        """`a: dtype = value`."""
        annotation = self.evaluator.eval(node.annotation)
        if node.value is None:
            raise KernelSyntaxError("a declaration without a value means nothing in a kernel")
        value = self.evaluator.eval(node.value)
        if isinstance(annotation, Const) and isinstance(annotation.value, dt.DType):
            lanes = value.type.lanes if isinstance(value, Expr) else 0
            value = convert.storable(value, annotation.value, lanes, "a variable")
            if isinstance(node.target, ast.Name):
                self.scope.frame.env[node.target.id] = self.scope.assign_runtime(
                    (*self.scope.frame.path, node.target.id), node.target.id, value
                )
                return
        self.bind_target(node.target, value)

    def augmented(self, node: ast.AugAssign) -> None:
        """`a += value`."""
        op = operator(node.op)
        target = node.target
        if isinstance(target, ast.Subscript):
            refuse_index_after_index(target, self.scope.frame.env)
            owner = self.evaluator.eval(target.value)
            indices = tuple(
                self.scope.pinned(i, "i") for i in self.evaluator.index_values(target.slice)
            )
            old, mark = subscript(self.scope, owner, indices), len(self.scope.out)
            value = self.evaluator.eval(node.value)
            old = self.scope.keep(old, mark)
            store_subscript(
                self.scope, owner, indices, convert.binary(op, old, value, self.scope.index)
            )
            return
        if not isinstance(target, ast.Name):
            raise KernelSyntaxError(
                "an augmented assignment needs a name or an array element on its left"
            )
        old = self.evaluator.name(target.id)
        value = self.evaluator.eval(node.value)
        value = (
            self.evaluator.of_aggregates(node, op, old, value)
            if isinstance(old, AGGREGATES) or isinstance(value, AGGREGATES)
            else convert.binary(op, old, value, self.scope.index)
        )
        self.scope.frame.env[target.id] = self.scope.assign(target.id, value)

    def bind_target(self, target: ast.expr, value: Value) -> None:
        """Assign a value to a name, a tuple of targets, or an array element."""
        if isinstance(target, ast.Name):
            env = self.scope.frame.env
            env[target.id] = self.scope.assign(target.id, value)
            if UNCERTAIN in env:
                env[UNCERTAIN] = Const(env[UNCERTAIN].value - {target.id})  # type: ignore[union-attr]
        elif isinstance(target, (ast.Tuple, ast.List)):
            if any(isinstance(t, ast.Starred) for t in target.elts):
                raise KernelSyntaxError(
                    "a name with * cannot be assigned to in a kernel",
                    hint="slice the tuple: first, rest = t[0], t[1:]",
                )
            items = unpacked(value, len(target.elts))
            if len(items) > 1:  # a, b = b, a reads everything first
                plain = all(isinstance(v, (Expr, Const)) for v in items)
                assigned = set() if plain else self.scope.variables_of(stored_names(target))
                items = [
                    self.scope.copied(v, None if isinstance(v, Expr) else assigned) for v in items
                ]
            for t, v in zip(target.elts, items, strict=True):
                self.bind_target(t, v)
        elif isinstance(target, ast.Subscript):
            refuse_index_after_index(target, self.scope.frame.env)
            mark = len(self.scope.out)
            owner, indices = (
                self.evaluator.eval(target.value),
                self.evaluator.index_values(target.slice),
            )
            store_subscript(self.scope, owner, indices, self.scope.keep(value, mark))
        elif isinstance(target, ast.Attribute):
            owner = self.evaluator.eval(target.value)
            if not isinstance(owner, StructValue):
                raise KernelTypeError(
                    f"{target.attr!r} of {describe(owner)} cannot be assigned in a kernel",
                    hint="store into an array argument; attributes are only read",
                )
            fields = ", ".join(
                "..." if n == target.attr else f"{ast.unparse(target.value)}.{n}"
                for n, _ in owner.fields
            )
            raise KernelTypeError(
                f"the field {target.attr!r} cannot be assigned: structs are immutable",
                hint="make a new one: "
                f"{ast.unparse(target.value)} = {owner.type.__name__}({fields})",
            )
        else:
            raise unsupported(target, self.scope.location)
