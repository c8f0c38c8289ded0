"""What is taken from other projects beyond their interfaces stands on one page, with the versions
that have it.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

from cubepy.backends.llvm.passes import NEEDLESS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/design/what-we-take-from-numba.md"
FOREIGN = {"numba", "llvmlite", "numpy", "ml_dtypes", "torch", "cuda"}
PUBLIC = {"_replace", "_field_defaults"}  # of named tuples: documented
LAYOUT = {"__basicsize__", "pythonapi", "disable"}  # of objects, of CPython's interface in C, of gc
EXCHANGE = "__dlpack_c_exchange_api__"


def private(name: str) -> bool:
    """One underscore before the name; those around it are protocols."""
    return name.startswith("_") and not name.startswith("__") and not name.endswith("_")


def first(node: ast.AST) -> str:
    """The name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


class Module:
    """A file of the package: which names it makes itself, and which it takes from elsewhere."""

    def __init__(self, path: Path) -> None:
        self.path = str(path.relative_to(ROOT))
        self.nodes = list(ast.walk(ast.parse(path.read_text())))
        self.imports = {
            (node.module or "", alias.name): alias.asname or alias.name
            for node in self.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        } | {
            (alias.name, ""): alias.asname or alias.name.split(".")[0]
            for node in self.nodes
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        self.foreign = {
            name for (module, _), name in self.imports.items() if module.split(".")[0] in FOREIGN
        }
        derived = [
            node
            for node in self.nodes
            if isinstance(node, ast.ClassDef) and any(first(b) in self.foreign for b in node.bases)
        ]
        self.inside = [inner for node in derived for inner in ast.walk(node)]

    def own(self) -> set[str]:
        """Names that are made here, but for those with which a class overrides another project's."""
        inside = {id(node) for node in self.inside}
        found = set(self.imports.values())
        for node in self.nodes:
            if id(node) in inside:
                continue
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found |= {node.attr} if first(node) in ("self", "cls") else set()
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)  # set by `setattr`
        return found

    def taken(self, own: set[str]) -> set[str]:
        """Private names of others, what is put in the place of theirs, and layouts of objects."""
        found = set()
        for node in self.inside:
            if isinstance(node, ast.FunctionDef) and private(node.name):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found |= {node.attr} & {node.attr if private(node.attr) else ""}
        for node in self.nodes:
            if isinstance(node, ast.Attribute):
                if private(node.attr) and node.attr not in own and node.attr not in PUBLIC:
                    found.add(node.attr)
                if node.attr in LAYOUT and (node.attr != "disable" or first(node) == "gc"):
                    found.add(node.attr)
                if isinstance(node.ctx, ast.Store) and first(node) in self.foreign:
                    found.add(ast.unparse(node))
            elif isinstance(node, ast.Constant) and node.value == EXCHANGE:
                found.add(EXCHANGE)
        return found


@cache
def modules() -> list[Module]:
    """Every file of the package."""
    folders = ("cubepy", "backends", "nn", "quant")
    return [Module(p) for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))]


def rows(section: str) -> list[list[str]]:
    """The cells of a section's table."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_page_has_every_private_name_and_where_it_is_taken() -> None:
    own = set().union(*(module.own() for module in modules()))
    taken = {(m.path, name) for m in modules() for name in m.taken(own)}
    shown = {
        (file, name)
        for cells in rows("Private names and layouts")
        for file in re.findall(r"\]\(\.\./\.\./([^)]+)\)", cells[0])
        for name in re.findall(r"`([^`]+)`", cells[1])
    }
    assert shown == taken


def test_the_page_has_every_module_of_numba_that_is_imported() -> None:
    taken = {
        f"{module}.{name}".rstrip(".")
        for m in modules()
        for module, name in m.imports
        if module.split(".")[0] in ("numba", "llvmlite")
    }
    shown = {
        f"{module}.{name}".rstrip(".")
        for cells in rows("Modules")
        for module in re.findall(r"`([^`]+)`", cells[0])
        for name in re.findall(r"`([^`]+)`", cells[1]) or [""]
    }
    assert shown == taken


def test_passes_that_are_left_out_exist() -> None:
    """A pass that a new numba calls otherwise would silently run again."""
    from numba.core import compiler, typed_passes  # noqa: F401  # they register their passes
    from numba.core.compiler_machinery import _pass_registry

    known = {p.__name__ for p in _pass_registry._registry}
    assert not NEEDLESS - known


@pytest.mark.parametrize("name", ["numba", "numba-cuda"])
def test_a_ceiling_is_one_minor_version_above_what_was_tested(name: str) -> None:
    """So a release that drops a private name does not break those who install us after it."""

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(".")[:2])

    project = (ROOT / "pyproject.toml").read_text()
    bounds = re.findall(rf'"{name}(?:\[\w+\])?>=([\d.]+),<([\d.]+)[;"]', project)
    named = re.findall(rf'"{name}(?:\[\w+\])?[>=<]', project)
    lowest, tested = next(c[1:3] for c in rows("Versions") if c[0] == f"`{name}`")
    assert bounds and len(bounds) == len(named)
    for floor, ceiling in bounds:
        assert floor == lowest
        assert numbers(ceiling) == (numbers(tested)[0], numbers(tested)[1] + 2)
        try:
            installed = numbers(version(name))
        except ModuleNotFoundError:  # numba-cuda is optional
            continue
        assert numbers(floor) <= installed < numbers(ceiling)
