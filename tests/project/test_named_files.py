"""What code and pages call by its path or by a module's name is there, in text as well: programs
that tests start, commands of the docs, comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "asv_benchmarks",
    "backends",
    "cubepy",
    "docs",
    "examples",
    "nn",
    "quant",
    "scripts",
    "tests",
)
PATH = re.compile(rf"(?<![\w/.*-])(?:{'|'.join(ROOMS)})/[\w/.-]*\w(?![\w*{{])")
IMPORT = re.compile(r"(?:from|import|-m) (tests\.\w+)")
PAST = ("docs/benchmarks/log", "CHANGELOG.md")  # what was so then
ELSEWHERE = {"tests/kat_vectors"}  # of Random123


def texts() -> Iterator[tuple[str, str]]:
    """Programs and pages: the path from the root, and the text."""
    found = [ROOT / "Makefile", *ROOT.glob("*.md")]
    for room in ROOMS:
        found += [p for kind in ("py", "pyi", "md") for p in (ROOT / room).rglob(f"*.{kind}")]
    for path in found:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(PAST):
            yield name, path.read_text(encoding="utf-8")


def test_files_that_texts_name_exist() -> None:
    missing = [
        (name, path)
        for name, text in texts()
        for path in sorted(set(PATH.findall(text)) - ELSEWHERE)
        if not (ROOT / path).exists()
    ]
    assert not missing


def test_modules_of_tests_that_texts_import_exist() -> None:
    missing = [
        (name, module)
        for name, text in texts()
        for module in sorted(set(IMPORT.findall(text)))
        if not any((ROOT / module.replace(".", "/")).with_suffix(s).exists() for s in ("", ".py"))
    ]
    assert not missing
