"""What editors and type checkers know of cubepy: programs of users pass, their mistakes are found."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cubepy.compiler.walk.attributes import ARRAY_METHODS, LINE_METHODS
from cubepy.lang.builtins import BUILTINS, TOPOLOGY
from tests.project.architecture import ROOT, STATEMENTS, files, tree

LANG = ROOT / "cubepy" / "lang"
MISTAKES = ROOT / "tests" / "project" / "typed" / "mistakes.py"
EXAMPLES = [*(ROOT / "examples").rglob("*.py")]


def script(name: str) -> ModuleType:
    """A module of `scripts/`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def marked(file: Path) -> set[tuple[int, str]]:
    """The errors that a file says it has: line and code."""
    rows = enumerate(file.read_text().splitlines(), 1)
    return {(k, m[1]) for k, row in rows if (m := re.search(r"# error: ([a-z-]+)$", row))}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cubepy as it is installed, and the programs of the README as one file."""
    folder = tmp_path_factory.mktemp("typed")
    script("typecheck").farm(folder)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert "@cb.kernel" in blocks[0]
    (folder / "readme.py").write_text("\n".join(blocks))
    return folder


def test_stubs_are_what_the_tables_of_the_language_say() -> None:
    stubs = script("language_stubs")
    for name, make in stubs.STUBS.items():
        assert (LANG / name).read_text() == make(), "run scripts/language_stubs.py"


def test_the_stub_of_the_library_is_what_its_signatures_say() -> None:
    stub = script("library_stub")
    assert stub.FILE.read_text() == stub.text(), "run scripts/library_stub.py"


def test_arrays_and_lines_have_the_methods_that_the_compiler_knows() -> None:
    annotations = (LANG / "annotations.py").read_text()
    assert set(ARRAY_METHODS) <= set(re.findall(r"def (\w+)\(self", annotations))
    line = (LANG / "names.pyi").read_text().partition("class Line:")[2].partition("\nABSOLUTE")[0]
    public = {name for name in re.findall(r"def (\w+)\(self", line) if not name.startswith("_")}
    assert public == set(LINE_METHODS)


def test_every_name_of_the_language_has_a_signature_and_words() -> None:
    text = (LANG / "names.pyi").read_text()
    for name in BUILTINS:
        assert re.search(rf'^def {name}\([^"]*?\) -> [^:]+:\n    """\w?', text, re.MULTILINE), name
    for name in TOPOLOGY:
        assert re.search(rf'^{name}: int\n"""\w', text, re.MULTILINE), name


def test_mypy_passes_what_is_right_and_finds_what_is_wrong(package: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra lint")
    files = [package / "readme.py", *EXAMPLES, MISTAKES]
    command = [sys.executable, "-m", "mypy", "--config-file=", "--check-untyped-defs"]
    command += ["--cache-dir", str(ROOT / ".cache" / "mypy"), "--scripts-are-modules"]
    done = subprocess.run(
        [*command, "--ignore-missing-imports", "--follow-imports=silent", *map(str, files)],
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(\S+\.py):(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    elsewhere = [row for row in found if Path(row[0]).name != MISTAKES.name]
    assert elsewhere == [], done.stdout
    assert {(int(row), code) for _, row, code in found} == marked(MISTAKES), done.stdout


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright_passes_what_is_right_and_finds_what_is_wrong(package: Path) -> None:
    for file in (*EXAMPLES, MISTAKES):
        (package / file.name).write_text(file.read_text())
    settings = {"include": ["*.py"]}
    (package / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        ["pyright", "--pythonpath", sys.executable, "--outputjson", "-p", "pyrightconfig.json"],
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [d for d in json.loads(done.stdout)["generalDiagnostics"] if d["severity"] == "error"]
    elsewhere = [d for d in found if Path(d["file"]).name != "mistakes.py"]
    assert elsewhere == []
    lines = {d["range"]["start"]["line"] + 1 for d in found}
    assert lines == {row for row, _ in marked(MISTAKES)}


def overrides() -> list[dict]:
    """The exceptions of mypy's settings."""
    tomllib = pytest.importorskip("tomllib", reason="a module of Python 3.11")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["tool"]["mypy"]["overrides"]


def test_mypy_looks_at_every_file() -> None:
    """Errors of own modules are let pass only where a tuple of a kernel grows, and only these
    kinds.
    """
    spared = set()
    for entry in overrides():
        own = {m for m in entry["module"] if m.startswith("cubepy")}
        kinds = entry.keys() - {"module", "disallow_untyped_defs"} if own else set()
        assert kinds <= {"disable_error_code"}, entry
        assert not own or set(entry.get("disable_error_code", ())) <= {
            "assignment",
            "index",
            "misc",
        }
        spared |= own if kinds else set()
    grows = re.compile(r"^ +(\w+) = (?:\1 \+ \(|\(\)$|.*, \(\)$)", re.MULTILINE)
    stale = {m for m in spared if not grows.search(files()[m.removeprefix("cubepy.")].read_text())}
    assert not stale, f"no tuple grows there, take it off the list: {stale}"


def test_functions_are_annotated_unless_they_are_of_kernels() -> None:
    declared = r"(?:cb\.)?(?:func|kernel|struct)\b"
    bare = []

    def lacks(node: ast.FunctionDef) -> bool:
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        untyped = [a for a in every if a.annotation is None and a.arg not in ("self", "cls")]
        return bool(untyped) or (node.returns is None and node.name != "__init__")

    def visit(text: str, node: ast.AST, module: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                if any(re.match(declared, ast.unparse(d)) for d in child.decorator_list):
                    continue
            if isinstance(child, ast.FunctionDef) and lacks(child):
                made = (
                    rf"{declared}(?:\([^()]*\))?\({child.name}\b"  # one function, several kernels
                )
                row = text.splitlines()[child.lineno - 1]
                if not re.search(made, text) and "ignore[no-untyped-def]" not in row:
                    bare.append(f"{module}:{child.lineno} {child.name}")
            if isinstance(child, STATEMENTS):
                visit(text, child, module)

    for module, path in files().items():
        visit(path.read_text(), tree(module), module)
    assert not bare
