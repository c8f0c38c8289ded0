"""The walker: its parts, and how they know each other.

Expressions hold calls, and the body of a func that is called holds expressions; statements hold
statements. Where a part is needed below the one that has it, it is handed down as a function.
"""

from __future__ import annotations

import ast
from typing import Any

from cubepy.compiler.scope import Scope
from cubepy.compiler.values import MethodValue, StructValue, Value
from cubepy.compiler.walk.assignments import Assignments
from cubepy.compiler.walk.calls import Calls
from cubepy.compiler.walk.evaluator import Evaluator
from cubepy.compiler.walk.paths import Paths
from cubepy.compiler.walk.returns import Returns
from cubepy.compiler.walk.statements import Statements


class Walker:
    """Walks the body of a kernel, in a scope.

    Attributes:
        scope: what is known at the current place.
        evaluator: walks expressions.
        paths: where the code parts and meets.
        returns: what functions return.
        statements: walks statements; it has the loops.
        calls: walks calls.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.evaluator = Evaluator(scope, lambda node: self.calls.call(node), self.method)
        self.paths = Paths(scope, lambda node: self.statements.walk(node))
        self.returns = Returns(scope, self.evaluator, self.paths)
        self.statements = Statements(
            scope, self.evaluator, self.paths, Assignments(scope, self.evaluator), self.returns
        )
        self.calls = Calls(scope, self.evaluator, self.paths, self.returns)

    def method(self, owner: StructValue, name: str, args: list[Value], node: Any) -> Value:
        """The value of a struct's method that an operator calls."""
        return self.calls.invoke_method(
            MethodValue(owner, name), args, {}, (node.lineno, node.col_offset)
        )

    def walk(self, tree: ast.FunctionDef) -> None:
        """Walk a function's body in the current frame."""
        self.calls.run_function(tree)
