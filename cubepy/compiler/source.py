"""From a function object to its syntax tree, with places in the user's file."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType
from typing import NamedTuple

from cubepy.errors import KernelSyntaxError, Location


@dataclass(frozen=True)
class Source:
    """The parsed definition of one function, and the `text` that was parsed; `loop_names` are
    nothing but variables of loops.
    """

    fn: Callable
    text: str
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

    def own_tree(self) -> ast.FunctionDef:
        """Another tree, for who changes it: to parse takes a tenth of the time of a deep copy."""
        tree = _tree(self.text)
        assert isinstance(tree, ast.FunctionDef)
        return tree


def source_of(fn: Callable) -> Source:
    """The source of a function, parsed: some 30 to 100 KB. Functions that were written for a group
    of a program's steps are looked at while that is compiled, and not again.

    Raises:
        KernelSyntaxError: the source is not available (typed at a prompt, made by exec), or another
            function stands where it stood when its file was imported.
    """
    written = isinstance(fn, FunctionType) and fn.__code__.co_filename.startswith("<fused")
    return (_briefly if written else _parsed)(fn)


@lru_cache(maxsize=512)
def _parsed(fn: Callable) -> Source:
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
        tree = _tree(dedented)
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
    given = {a.arg for a in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
    code = holds(tree)
    only_loops = code.targets - code.assigned - given
    return Source(fn, dedented, tree, file, first, indent, code.stored | given, only_loops)


def _tree(text: str) -> ast.stmt:
    """The statement of a text; its columns count characters."""
    tree = ast.parse(text).body[0]
    if not text.isascii():  # Python counts bytes, carets stand below characters
        rows = text.split("\n")
        for node in ast.walk(tree):
            if isinstance(node, (ast.expr, ast.stmt, ast.arg, ast.keyword, ast.alias)):
                before = rows[node.lineno - 1].encode()[: node.col_offset]
                node.col_offset = len(before.decode(errors="ignore"))
    return tree


_briefly = lru_cache(maxsize=16)(_parsed.__wrapped__)


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


class Holds(NamedTuple):
    """What a piece of code holds, wherever in it.

    Attributes:
        stored: names that are given values; `assigned`: by assignments.
        targets: names that are the variable of a loop.
        returns: how many returns; `looped`: whether a loop holds one.
    """

    stored: frozenset[str]
    assigned: frozenset[str]
    targets: frozenset[str]
    returns: int
    looped: bool


NOTHING = Holds(frozenset(), frozenset(), frozenset(), 0, False)


def holds(node: ast.AST) -> Holds:
    """What a piece of code holds. It is remembered beside each node, so that a tree is looked
    through once, whatever part is asked for.
    """
    about = vars(node)
    known: Holds | None = about.get("holds")
    if known is not None:
        return known
    kind = type(node)
    if kind is ast.Name:
        stores = isinstance(about["ctx"], ast.Store)
        about["holds"] = NOTHING._replace(stored=frozenset((about["id"],))) if stores else NOTHING
        return about["holds"]  # type: ignore[no-any-return]
    stored, assigned, targets = set[str](), set[str](), set[str]()
    returns, looped = int(kind is ast.Return), False
    for value in [*about.values()]:
        for part in value if type(value) is list else (value,):
            if isinstance(part, ast.AST) and part._fields:
                inner = holds(part)
                if inner is not NOTHING:
                    stored |= inner.stored
                    assigned |= inner.assigned
                    targets |= inner.targets
                    returns += inner.returns
                    looped = looped or inner.looped
    if kind is ast.For:
        targets |= {n.id for n in ast.walk(about["target"]) if isinstance(n, ast.Name)}
    elif kind is ast.Assign or kind is ast.AugAssign or kind is ast.AnnAssign:
        for target in about["targets"] if kind is ast.Assign else (about["target"],):
            assigned |= holds(target).stored
    looped = looped or (returns > 0 and isinstance(node, (ast.For, ast.While)))
    found = NOTHING
    if stored or targets or returns:
        names = frozenset(stored), frozenset(assigned), frozenset(targets)
        found = Holds(*names, returns, looped)
    about["holds"] = found
    return found


def stored_names(node: ast.AST) -> frozenset[str]:
    """Names that a piece of code assigns."""
    return holds(node).stored


def loop_targets(node: ast.AST) -> frozenset[str]:
    """Names that are the variable of a loop in a piece of code."""
    return holds(node).targets
