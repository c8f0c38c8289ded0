"""From a function object to its syntax tree, with places in the user's file."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType

from cubepy.errors import KernelSyntaxError, Location


@dataclass(frozen=True)
class Source:
    """The parsed definition of one function."""

    fn: Callable
    tree: ast.FunctionDef
    file: str
    first_line: int
    indent: int
    locals: frozenset[str]
    loop_names: frozenset[str]
    locations: dict[ast.AST, Location] = field(default_factory=dict, compare=False, repr=False)

    def at(self, node: ast.AST) -> Location:
        """Where a node stands in the user's file; loops that are unrolled ask often."""
        location = self.locations.get(node)
        if location is None:
            location = self.locations[node] = Location(
                self.file,
                self.first_line + getattr(node, "lineno", 1) - 1,
                getattr(node, "col_offset", 0) + self.indent,
                self.fn.__qualname__,
            )
        return location


@lru_cache(maxsize=1024)  # a tree is some 30 KB
def source_of(fn: Callable) -> Source:
    """Parse the source of a function.

    Raises: KernelSyntaxError: the source is not available (typed at a prompt, made by exec), or
        another function stands where it stood when its file was imported.
    """
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError) as error:
        raise KernelSyntaxError(
            f"the source of {fn.__qualname__} cannot be read: {error}",
            hint="define kernels in a file (or a notebook cell), not with exec or at the python "
            "prompt",
        ) from None
    text = "".join(lines)
    dedented = textwrap.dedent(text)
    indent = len(lines[0]) - len(lines[0].lstrip())
    try:
        tree = ast.parse(dedented).body[0]
    except SyntaxError as error:
        raise KernelSyntaxError(
            f"the source of {fn.__qualname__} cannot be parsed alone: {error.msg}"
        ) from None
    file = inspect.getsourcefile(fn) or "<unknown>"
    if not _is_of(tree, inspect.unwrap(fn).__code__):
        raise KernelSyntaxError(
            f"{file} has changed since it was imported: line {first} is no longer where "
            f"{fn.__qualname__} is defined",
            hint="start Python again, or reload the module",
        )
    if not isinstance(tree, ast.FunctionDef):
        where = Location(file, first, indent, fn.__qualname__)
        what = "lambda" if fn.__name__ == "<lambda>" else type(tree).__name__
        raise KernelSyntaxError(
            f"{what} cannot be used as a kernel or func", location=where, hint="write it as a def"
        )
    return Source(fn, tree, file, first, indent, _local_names(tree), _loop_names(tree))


def _is_of(tree: ast.stmt, code: CodeType) -> bool:
    """Whether a statement defines the function with this code; a lambda's is any."""
    if code.co_name == "<lambda>":
        return True
    if not isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)) or tree.name != code.co_name:
        return False
    a = tree.args
    return (len(a.posonlyargs) + len(a.args), len(a.kwonlyargs)) == (
        code.co_argcount,
        code.co_kwonlyargcount,
    )


def _local_names(tree: ast.FunctionDef) -> frozenset[str]:
    names = {a.arg for a in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


@lru_cache(maxsize=4096)
def stored_names(node: ast.AST) -> frozenset[str]:
    """Names that a piece of code assigns."""
    return frozenset(
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )


@lru_cache(maxsize=4096)
def loop_targets(node: ast.AST) -> frozenset[str]:
    """Names that are the variable of a loop in a piece of code."""
    loops = (loop for loop in ast.walk(node) if isinstance(loop, ast.For))
    return frozenset(
        n.id for loop in loops for n in ast.walk(loop.target) if isinstance(n, ast.Name)
    )


def _loop_names(tree: ast.FunctionDef) -> frozenset[str]:
    """Names that are nothing but variables of loops."""
    others = {a.arg for a in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        others |= {
            n.id
            for t in targets
            for n in ast.walk(t)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
    return loop_targets(tree) - others
