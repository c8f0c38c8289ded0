"""The house keeps its shape: floors, siblings, families, targets, lengths and words.

Lists of exceptions may only shrink: a test fails as well where an exception is no longer needed.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.project.architecture import ROOT, circles, files, identifiers, imports, tree

GROUND = ["errors", "config", "program"]
FLOORS = [
    "lang",
    "compiler",
    "runtime",
    "backends",
    "tune",
    "kernels",
    "tensor",
    "testing",
    "nn",
    "quant",
    "models",
]
"""Rooms of the package, lower ones first: an import goes down, or stays in its room."""

FAMILIES = [
    {"entry", "primitives"},
    {"elementwise"},
    {"movement"},
    {"indexing", "reduce", "scan", "random", "matmul"},
    {"convolution", "sort", "attention", "normalization", "windows", "recurrent"},
    {"interpolate", "pooling", "fused"},
]
"""Families of kernels, lower ones first; those of one line do not know each other."""

TARGETS = {"cpu": {"cpu"}, "gpu": {"gpu"}, "sm90": {"sm90", "gpu"}}
"""What a family's files for one target may import among its files for targets."""

UPWARD = set()
SIDEWAYS: set[tuple[str, str]] = set()
CIRCLES: list[set[str]] = []
PRIVATE: set[tuple[str, str]] = set()
LARGE_FOLDERS: dict[str, int] = {}
LONG: dict[str, int] = {}
MANY_PARAMETERS = {
    "kernels.convolution.conv.conv",
    "kernels.convolution.conv.convolve_into",
    "kernels.convolution.transposed.conv_transpose",
    "kernels.convolution.transposed.transposed_into",
    "kernels.matmul.matmul.matmul",
}
"""Functions of the kernels with more than 10 parameters: public ones with the options of torch, and
what those of one and several axes share.
"""
WIDE_LINES = 21
FMT_SKIPS = 36
WORDS = (
    "apart", "board", "bring", "far", "gathered", "leaf", "past", "place", "ring", "skinny", "strip",
    "tall", "thin", "told", "turn", "woven",
)  # fmt: skip
"""No name holds these: the field does not use them, or they had two meanings here. Working in place
is what NumPy calls so, too.
"""


def room(module: str) -> str:
    return module.partition(".")[0]


def floor(module: str) -> int:
    """The floor of a module's room: 0 is the ground, the command and the package itself are on top."""
    if room(module) in GROUND:
        return 0
    return FLOORS.index(room(module)) + 1 if room(module) in FLOORS else len(FLOORS) + 1


def family(module: str) -> str:
    """The family of kernels that a module is in, or nothing."""
    parts = module.split(".")
    return parts[1] if parts[0] == "kernels" and len(parts) > 2 else ""


def target(module: str) -> str:
    """The folder for one target that a module is in, or nothing."""
    return next((part for part in module.split(".")[:-1] if part in TARGETS), "")


def only_these(found: set, allowed: set, what: str) -> None:
    """Fails where something was found that is not allowed, and where something allowed is gone."""
    assert not found - allowed, f"{what}: {sorted(found - allowed)}"
    assert not allowed - found, f"no longer needed, take it off the list: {sorted(allowed - found)}"


def test_imports_go_down() -> None:
    up = {(i.source, i.target) for i in imports() if floor(i.target) > floor(i.source)}
    only_these(up, UPWARD, "an import from a lower floor to a higher one")


BELOW = {"llvm": set(), "gpu": {"llvm"}}
"""What backends share, and what of it knows which: all of them stand on llvm, GPUs on gpu too."""


def test_backends_are_siblings() -> None:
    def backend(module: str) -> str:
        return module.split(".")[1] if "." in module else ""

    pairs = {
        (i.source, i.target)
        for i in imports()
        if room(i.source) == room(i.target) == "backends"
        and backend(i.source) != backend(i.target)
        and backend(i.target) not in BELOW.get(backend(i.source), BELOW.keys())
    }
    only_these(
        pairs, SIDEWAYS, "a backend that imports its sibling; what two share is in llvm, gpu"
    )


def test_families_of_kernels_stand_on_each_other() -> None:
    level = {name: k for k, names in enumerate(FAMILIES) for name in names}
    assert {family(m) for m in files() if family(m)} == level.keys()
    wrong = {
        (i.source, i.target)
        for i in imports()
        if family(i.source) and family(i.target) and family(i.source) != family(i.target)
        if level[family(i.target)] > level[family(i.source)]
        or (level[family(i.target)] == level[family(i.source)] > 0)
    }
    only_these(wrong, set(), "a family that imports one beside or above it")


def test_targets_of_a_family_do_not_know_each_other() -> None:
    wrong = {
        (i.source, i.target)
        for i in imports()
        if family(i.source) == family(i.target)
        and target(i.source)
        and target(i.target)
        and target(i.target) not in TARGETS[target(i.source)]
    }
    only_these(wrong, set(), "a target that imports another one")


def test_no_circle_of_files() -> None:
    arrows = {(i.source, i.target) for i in imports()}
    found = circles(arrows)
    assert all(group in CIRCLES for group in found), [g for g in found if g not in CIRCLES]
    assert all(group in found for group in CIRCLES), "no longer needed"


def test_private_names_stay_in_their_file() -> None:
    private = {
        (i.source, f"{i.target}.{i.name}")
        for i in imports()
        if i.name.startswith("_") and not i.name.startswith("__")
    }
    only_these(private, PRIVATE, "a private name that another file imports")


def test_folders_are_small_rooms() -> None:
    folders = Counter(path.parent for path in files().values())
    large = {str(f.relative_to(ROOT)): n for f, n in folders.items() if n > 16}
    tests = Counter(path.parent for path in (ROOT / "tests").rglob("*.py"))
    large |= {str(f.relative_to(ROOT)): n for f, n in tests.items() if n > 16}
    only_these(set(large.items()), set(LARGE_FOLDERS.items()), "a folder of more than 16 files")


PRAGMA = re.compile(r"\s*# (?:type: ignore|fmt: skip|noqa).*$")
"""What the formatter does not count."""


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_files_are_short() -> None:
    long = {m: lines_of(p) for m, p in files().items() if lines_of(p) > 450}
    grown = {m: n for m, n in long.items() if n > LONG.get(m, 0)}
    assert not grown, f"files of more than 450 lines, or longer than their exception: {grown}"
    assert not LONG.keys() - long.keys(), "no longer needed"


def test_lines_are_short_and_formatted() -> None:
    texts = [path.read_text().splitlines() for path in files().values()]
    wide = sum(len(PRAGMA.sub("", line)) > 100 for text in texts for line in text)
    assert wide <= WIDE_LINES, f"{wide} lines of more than 100 columns"
    skips = sum("# fmt: skip" in line for text in texts for line in text)
    assert skips <= FMT_SKIPS, f"{skips} lines that the formatter skips"


def functions_of_kernels() -> dict[str, ast.FunctionDef]:
    """The functions and methods of the library of kernels by their names."""
    return {
        f"{module}.{node.name}:{node.lineno}": node
        for module in files()
        if room(module) == "kernels"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.FunctionDef)
    }


def test_functions_of_kernels_are_short() -> None:
    lengths = {
        name: (node.end_lineno or 0) - node.lineno + 1
        for name, node in functions_of_kernels().items()
    }
    long = {name: n for name, n in lengths.items() if n > 120}
    assert not long, f"functions of more than 120 lines: {long}"


def test_functions_of_kernels_take_few_parameters() -> None:
    """What a kernel's funcs share is a struct, see `Block` of the CPU's convolution; what a kernel
    is given together is a tuple.
    """
    many = set()
    for name, node in functions_of_kernels().items():
        arguments = node.args
        count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
        if count > 10:
            many.add(name.partition(":")[0])
    only_these(many, MANY_PARAMETERS, "a function of more than 10 parameters")


@pytest.mark.parametrize("word", WORDS)
def test_names_are_words_of_the_field(word: str) -> None:
    """See docs/reference/glossary.md for the field's words."""
    pattern = re.compile(rf"(?:^|_){word}s?(?:_|$)", re.IGNORECASE)
    used = {
        f"{module}: {name}"
        for module in files()
        for name in identifiers(module)
        if pattern.search(name.replace("in_place", "").replace("In_place", ""))
    }
    if word == "leaf":  # of a graph of gradients, as in PyTorch
        used = {name for name in used if room(name) not in ("tensor", "nn")}
    assert not used, sorted(used)[:20]


def test_every_file_says_what_it_is() -> None:
    silent = [m for m in files() if tree(m).body and not ast.get_docstring(tree(m))]
    assert not silent


def test_properties_of_a_device_are_passed() -> None:
    """`Op.run` asks for them, and a public function without routines, by `properties_here`; what is
    called is given them, and never asks the current device.
    """
    found = set()
    for module in files():
        if room(module) not in ("kernels", "quant") or module == "kernels.entry.dispatch":
            continue
        for function in (n for n in ast.walk(tree(module)) if isinstance(n, ast.FunctionDef)):
            public = {d.id for d in function.decorator_list if isinstance(d, ast.Name)}
            allowed = {"properties_here"} if public & {"placed", "repeated"} else set()
            called = (n.func for n in ast.walk(function) if isinstance(n, ast.Call))
            names = {getattr(f, "id", None) or getattr(f, "attr", None) for f in called}
            if names & {"properties_here", "device_properties_of"} - allowed:
                found.add(f"{module}.{function.name}")
    assert not found, "a function that asks the current device for its properties"


def documented(node: ast.AST) -> set[str]:
    """The names that the section Args of a function's docstring explains."""
    lines = (ast.get_docstring(node) or "").splitlines()  # type: ignore[arg-type]
    found: set[str] = set()
    for line in lines[lines.index("Args:") + 1 :] if "Args:" in lines else ():
        if line and not line.startswith(" "):
            break
        if head := re.match(r"    ([*\w]+(?:, [*\w]+)*):", line):
            found |= {name.lstrip("*") for name in head[1].split(", ")}
    return found


def test_what_docstrings_explain_are_parameters() -> None:
    wrong = {}
    for module in files():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.FunctionDef):
                names = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
                if others := documented(node) - names:
                    wrong[f"{module}.{node.name}"] = others
    assert not wrong


SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields")


def test_what_docstrings_explain_has_a_line_of_its_own() -> None:
    """The name of a section stands alone, and no parameter hides behind another one's text."""
    wrong = []
    for module in files():
        for node in ast.walk(tree(module)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                lines = (ast.get_docstring(node) or "").splitlines()
                wrong += [f"{module}: {line}" for line in lines if joined(line, node)]
    assert not wrong, wrong[:10]


def joined(line: str, node: ast.AST) -> bool:
    """Whether a line of a docstring has a section's name and more, or a second parameter."""
    if re.match(rf"({'|'.join(SECTIONS)}): ", line):
        return True
    names = {a.arg for a in ast.walk(getattr(node, "args", node)) if isinstance(a, ast.arg)}
    later = re.findall(r"[.)] ([*\w]+(?:, [*\w]+)*): ", line) if line.startswith("     ") else ()
    return isinstance(node, ast.FunctionDef) and any(
        {name.lstrip("*") for name in found.split(", ")} <= names for found in later
    )
