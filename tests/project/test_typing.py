"""What editors and type checkers know of cubepy: programs of users pass, their mistakes are found."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cubepy.compiler.expressions import ARRAY_METHODS, LINE_METHODS
from cubepy.lang.builtins import BUILTINS, TOPOLOGY

ROOT = Path(__file__).resolve().parents[2]
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
        assert re.search(rf'^def {name}\([^"]*?\) -> [\w\[\]]+:\n    """\w?', text, re.MULTILINE), (
            name
        )
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
