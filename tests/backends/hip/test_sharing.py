"""What two backends for GPUs do alike stands in backends/gpu, once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LEAST = 12
"""Nodes of a function from which on it counts; below, two may be alike by chance."""


class _Nameless(ast.NodeTransformer):
    """Drops names, docstrings and annotations, which a copy may change."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("_", ast.Load())

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg("_")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        body = node.body[1:] if ast.get_docstring(node) else node.body
        return ast.Module([self.visit(s) for s in body], [])


def functions(folder: str) -> Iterator[tuple[str, str, int]]:
    """The functions of a backend: where each stands, its tree without names, its size."""
    for path in sorted((ROOT / "backends" / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                bare = _Nameless().visit(node)
                size = sum(1 for _ in ast.walk(bare))
                yield f"{path.relative_to(ROOT)}: {node.name}", ast.dump(bare), size


def copies(one: str, other: str) -> list[tuple[str, str]]:
    """Functions of two backends that are the same but for names."""
    known = {tree: name for name, tree, size in functions(one) if size >= LEAST}
    return [(known[tree], name) for name, tree, _ in functions(other) if tree in known]


@pytest.mark.parametrize(("one", "other"), [("cuda", "hip"), ("gpu", "hip"), ("gpu", "cuda")])
def test_no_function_is_a_copy(one: str, other: str) -> None:
    assert not copies(one, other)


def test_the_hip_backend_is_small() -> None:
    lines = sum(len(p.read_text().splitlines()) for p in (ROOT / "backends/hip").rglob("*.py"))
    assert lines <= 1500


def test_copies_are_found() -> None:
    assert copies("cuda", "cuda")
