"""Generated files: as modules of Python, and what their text says of ops, names and numbers."""

from __future__ import annotations

import ast
import importlib.util
import operator
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def load_source(path: Path) -> Any:
    """Import a generated file under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"cubepy_generated_{path.stem[:16]}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ops_of(head: Sequence[ast.stmt]) -> dict[str, Any]:
    """The ops that the imports at the top of a generated module name."""
    return _ops(*(s.module or "" for s in head if isinstance(s, ast.ImportFrom)))


@cache
def _ops(*modules: str) -> dict[str, Any]:
    return {name: op for module in modules for name, op in import_module(module).OPS.items()}


BINARY: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FOLDED = (ast.Add, ast.Sub, ast.Mult)
"""What Python itself makes of literals."""


def once_set(function: ast.FunctionDef) -> set[str]:
    """The names that are set once and read only in the rest of that block; a statement is a line of
    its own.
    """
    given: dict[str, tuple[int, int]] = {a.arg: (0, 1 << 60) for a in function.args.args}
    several: set[str] = set()
    reads: list[tuple[str, int]] = []

    def note(name: str, line: int, end: int) -> None:
        if name in given:
            several.add(name)
        given[name] = line, end

    def block(body: list[ast.stmt]) -> None:
        end = body[-1].end_lineno or 0
        for s in body:
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
                note(s.targets[0].id, s.lineno, end)
                look(s.value)
            elif isinstance(s, ast.For) and isinstance(s.target, ast.Name):
                note(s.target.id, s.lineno, s.end_lineno or 0)
                look(s.iter)
                block(s.body)
            elif isinstance(s, (ast.If, ast.While)):
                look(s.test)
                block(s.body)
                if s.orelse:
                    block(s.orelse)
            elif isinstance(s, ast.Expr):
                look(s.value)

    def look(e: ast.expr) -> None:
        if isinstance(e, ast.Name):
            reads.append((e.id, e.lineno))
        elif isinstance(e, ast.Call):  # what is called is no variable
            for a in e.args:
                look(a)
        elif isinstance(e, ast.BinOp):
            look(e.left)
            look(e.right)
        elif isinstance(e, ast.Compare):
            look(e.left)
            for other in e.comparators:
                look(other)
        elif isinstance(e, ast.UnaryOp):
            look(e.operand)
        elif not isinstance(e, ast.Constant):
            reads.extend((n.id, n.lineno) for n in ast.walk(e) if isinstance(n, ast.Name))

    block(function.body)
    for name, line in reads:
        first, end = given.get(name, (0, 1 << 60))
        if not first < line <= end:
            several.add(name)
    return given.keys() - several


def continues(body: Sequence[ast.stmt]) -> bool:
    """Whether a loop's body has a `continue` of its own."""
    return any(
        isinstance(s, ast.Continue)
        or (isinstance(s, ast.If) and (continues(s.body) or continues(s.orelse)))
        for s in body
    )


def folded(e: ast.expr) -> int | None:
    """The whole number that Python itself makes of sums and products of literals, or None."""
    if isinstance(e, ast.Constant):
        return e.value if type(e.value) is int else None
    if not isinstance(e, ast.BinOp) or type(e.op) not in FOLDED:
        return None
    left, right = folded(e.left), folded(e.right)
    if left is None or right is None:
        return None
    number: int = BINARY[type(e.op)](left, right)
    return number


def wrapped(number: int, t: Any) -> int:
    """A whole number in a dtype of numba."""
    number &= (1 << t.bitwidth) - 1
    return number - (1 << t.bitwidth) if t.signed and number >> (t.bitwidth - 1) else number
