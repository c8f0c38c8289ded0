"""What the package's files import, define and say, read from their syntax trees."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MAPPED = ("backends", "nn", "quant")
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
"""Nodes in which there may be functions and imports; most nodes are expressions."""


class Import(NamedTuple):
    """A file's import of another one, or of a name in it."""

    source: str
    target: str
    name: str
    lazy: bool


@cache
def files() -> dict[str, Path]:
    """The files of the package by their modules' names, without the leading `cubepy.`."""
    found = {}
    for top in ("cubepy", *MAPPED):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts[1:] if top == "cubepy" else parts
            if "__pycache__" in parts or (top == "cubepy" and parts[0] in MAPPED):
                continue
            found[".".join(p for p in parts if p != "__init__")] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(files()[module].read_text())


def _imports(module: str, node: ast.AST, lazy: bool) -> Iterator[Import]:
    known = files()
    for child in ast.iter_child_nodes(node):
        inside = lazy or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("cubepy."):
            base = str(child.module).removeprefix("cubepy.")
            for alias in child.names:
                full = f"{base}.{alias.name}"
                target = full if full in known else base
                yield Import(module, target, alias.name, inside)
        elif isinstance(child, ast.Import):
            for alias in child.names:
                if alias.name.startswith("cubepy."):
                    yield Import(module, alias.name.removeprefix("cubepy."), "", inside)
        if isinstance(child, STATEMENTS):
            yield from _imports(module, child, inside)


@cache
def imports() -> tuple[Import, ...]:
    """All imports of own modules, those inside functions and under `TYPE_CHECKING` too."""
    found = (i for module in files() for i in _imports(module, tree(module), False))
    return tuple(i for i in found if i.target in files() and i.target != i.source)


def circles(arrows: set[tuple[str, str]]) -> list[set[str]]:
    """Groups of nodes that can all be reached from one another (Tarjan, 1972)."""
    to = defaultdict(set)
    for a, b in arrows:
        to[a].add(b)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in to[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = set()
            while node not in group:
                group.add(stack.pop())
            if len(group) > 1:
                found.append(group)

    for node in sorted({n for arrow in arrows for n in arrow}):
        if node not in index:
            visit(node)
    return found


@cache
def identifiers(module: str) -> frozenset[str]:
    """The names that a module gives: of functions, classes, arguments and variables."""
    found = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)
