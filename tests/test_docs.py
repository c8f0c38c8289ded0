"""The documentation is true: every snippet runs, shows what it says, and every link leads somewhere."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
DOCUMENTED = {
    "cubepy.lang": ROOT / "cubepy/lang",
    "cubepy.runtime": ROOT / "cubepy/runtime",
    "cubepy.kernels": ROOT / "cubepy/kernels",
    "cubepy.tensor": ROOT / "cubepy/tensor",
    "cubepy.nn": ROOT / "nn",
    "cubepy.quant": ROOT / "quant",
}
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A fenced block: what its fence says, its text, and the 1-based line where the text begins."""

    info: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    content = page.read_text()
    return [
        Block(m["info"].strip(), m["body"], content.count("\n", 0, m.start("body")) + 1)
        for m in FENCE.finditer(content)
    ]


def as_module(blocks: list[Block]) -> str:
    """The Python blocks as one file in which each line stands where it stands on the page."""
    lines: list[str] = []
    for block in blocks:
        if block.info == "python":
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
    return "\n".join(lines) + "\n"


def name_of(page: Path) -> str:
    """The page's path in the repository."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_snippets_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is one module, run block by block; an `output` block shows what the block before it prints."""
    blocks = blocks_of(page)
    file = tmp_path / (re.sub(r"\W", "_", name_of(page)) + ".py")
    file.write_text(as_module(blocks))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    monkeypatch.chdir(tmp_path)
    printed = ""
    for block in blocks:
        where = f"{name_of(page)}:{block.line}"
        if block.info == "python":
            out = io.StringIO()
            code = compile("\n" * (block.line - 1) + block.text, str(file), "exec")
            try:
                with contextlib.redirect_stdout(out):
                    exec(code, module.__dict__)  # the page's own code
            except Exception as error:
                pytest.fail(f"{where}: the snippet raises {type(error).__name__}: {error}")
            printed = out.getvalue()
        elif block.info == "text output":
            if not doctest.OutputChecker().check_output(block.text, printed, LOOSE):
                pytest.fail(f"{where}: the page shows\n{block.text}\nbut the snippet prints\n{printed}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_are_run_or_say_that_they_are_not(page: Path) -> None:
    """The words after ```` ```python ```` are none or `no-run`, so that no snippet escapes by a spelling."""
    for block in blocks_of(page):
        if block.info.startswith(("python", "py")):
            assert block.info in ("python", "python no-run"), f"{name_of(page)}:{block.line}: {block.info!r}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_to_files(page: Path) -> None:
    """Links to files of the repository name files that exist, and sections that the page has."""
    text = FENCE.sub("", page.read_text())
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, section = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        assert file.exists(), f"{name_of(page)} links to {target}, which does not exist"
        if section and file.suffix == ".md":
            assert section in sections_of(file), f"{name_of(page)} links to {target}: no such section"


def sections_of(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_every_page_is_reached_from_the_index() -> None:
    """A page that nobody links to is a page that nobody reads."""
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in LINK.findall(page.read_text())
        if not re.match(r"[a-z]+:", target)
    }
    assert not [name_of(p) for p in PAGES if p not in linked and p.name != "README.md"]


def modules() -> list[str]:
    """The modules whose docstrings are documentation."""
    found = []
    for package, folder in DOCUMENTED.items():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            name = ".".join([package, *parts]).removesuffix(".__init__")
            if ">>>" in file.read_text():
                found.append(name)
    return found


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_are_true(name: str) -> None:
    """Doctests of the public modules pass."""
    result = doctest.testmod(importlib.import_module(name), optionflags=LOOSE)
    assert result.failed == 0
