"""The documentation is true: every snippet runs, shows what it says, and every link leads
somewhere.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cubepy.errors
from cubepy import kernels, nn, quant
from cubepy.__main__ import command_line
from cubepy.config import config, table
from cubepy.lang.builtins import BUILTINS, TOPOLOGY
from cubepy.lang.dtypes import ALL
from cubepy.runtime.memory import layout
from tests.backends.cuda.emulator.device import emulated

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
DOCUMENTED = {"cubepy": ROOT / "cubepy", "cubepy.nn": ROOT / "nn", "cubepy.quant": ROOT / "quant"}
PUBLIC = {
    "cb": cubepy,
    "K": kernels,
    "nn": nn,
    "F": nn.functional,
    "nn.init": nn.init,
    "quant": quant,
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
    """A page is one module, run block by block; an `output` block shows what the block before it
    prints.
    """
    blocks = blocks_of(page)
    file = tmp_path / (re.sub(r"\W", "_", name_of(page)) + ".py")
    file.write_text(as_module(blocks))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    monkeypatch.chdir(tmp_path)
    with config.override(**config.as_dict()):  # what a page sets ends with it
        run_blocks(page, blocks, file, module.__dict__)


def run_blocks(page: Path, blocks: list[Block], file: Path, namespace: dict[str, Any]) -> None:
    """Execute the Python blocks of a page and compare its output blocks with what they print."""
    printed = ""
    for block in blocks:
        where = f"{name_of(page)}:{block.line}"
        if block.info == "python":
            out = io.StringIO()
            code = compile("\n" * (block.line - 1) + block.text, str(file), "exec")
            try:
                with contextlib.redirect_stdout(out):
                    exec(code, namespace)  # the page's own code
            except Exception as error:
                pytest.fail(f"{where}: the snippet raises {type(error).__name__}: {error}")
            printed = out.getvalue()
        elif block.info == "text output":
            if not doctest.OutputChecker().check_output(block.text, printed, LOOSE):
                pytest.fail(
                    f"{where}: the page shows\n{block.text}\nbut the snippet prints\n{printed}"
                )


def test_the_debugging_session_goes_as_shown(tmp_path: Path) -> None:
    """The session of the first hour, typed into pdb, answers what the page shows."""
    blocks = blocks_of(ROOT / "docs/start/first-hour.md")
    program = next(b for b in blocks if b.info == "python no-run")
    session = next(b for b in blocks if b.info == "text session").text
    command, shown = session.split("\n", 1)
    assert command == "$ CUBEPY_BACKEND=python python -m pdb step.py"
    (tmp_path / "step.py").write_text(program.text)
    typed = re.findall(r"^\(Pdb\) (.+)$", session, re.MULTILINE)
    ran = subprocess.run(
        [sys.executable, "-m", "pdb", "step.py"],
        input="\n".join([*typed, "quit"]) + "\n",
        env=os.environ | {"CUBEPY_BACKEND": "python"},
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    answers = re.sub(
        r"^(\(Pdb\) ).+\n", r"\1", shown, flags=re.MULTILINE
    )  # what is typed is not echoed
    assert re.sub(r"\S*step\.py", "step.py", ran.stdout).startswith(answers)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_are_run_or_say_that_they_are_not(page: Path) -> None:
    """The words after ```` ```python ```` are none or `no-run`, so that no snippet escapes by a
    spelling.
    """
    for block in blocks_of(page):
        if block.info.startswith(("python", "py")):
            assert block.info in ("python", "python no-run"), (
                f"{name_of(page)}:{block.line}: {block.info!r}"
            )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_to_files(page: Path) -> None:
    """Links to files of the repository name files that exist, and sections that the page has."""
    for target in links_of(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, section = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        assert file.exists(), f"{name_of(page)} links to {target}, which does not exist"
        if section and file.suffix == ".md":
            assert section in sections_of(file), (
                f"{name_of(page)} links to {target}: no such section"
            )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """`folder/file.py` is a file of the repository, of the package, or of the rooms that pages are
    about.
    """
    rooms = [ROOT, *(ROOT / room for room in ("cubepy", "cubepy/kernels", "backends"))]
    named = re.findall(
        r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|txt|toml|md))`", FENCE.sub("", page.read_text())
    )
    assert not [name for name in named if not any((room / name).exists() for room in rooms)]


def links_of(page: Path) -> list[str]:
    """The targets of a page's links, code left out."""
    text = FENCE.sub("", page.read_text())
    return LINK.findall(CODE.sub("code", text))


def sections_of(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_every_page_is_reached_from_the_index() -> None:
    """A page that nobody links to is a page that nobody reads."""
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in links_of(page)
        if not re.match(r"[a-z]+:", target)
    }
    assert not [name_of(p) for p in PAGES if p not in linked and p.name != "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_understood(page: Path) -> None:
    """What a page says to type after `python -m cubepy` is a command, and its options reach it."""
    for typed in re.findall(r"python -m cubepy ([^`\n|#&]+)", page.read_text()):
        words = [
            word.strip("[]") for word in shlex.split(typed.partition("   ")[0]) if word != "..."
        ]
        try:
            given = command_line().parse_args(words)
        except SystemExit:
            pytest.fail(f"{name_of(page)}: python -m cubepy {typed!r} is refused")
        assert not [
            word for word in getattr(given, "arguments", []) if word.startswith("--backend")
        ], typed


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


def examples_of(name: str) -> list[doctest.DocTest]:
    """The examples in a module's docstrings; what one needs besides its module's names, it imports."""
    module = importlib.import_module(name)
    # `annotations` would carry the module's own __future__ import into its examples.
    names = {k: v for k, v in vars(module).items() if k != "annotations"}
    return doctest.DocTestFinder(exclude_empty=True).find(module, globs=names)


def run_examples(tests: list[doctest.DocTest]) -> None:
    """Run examples on the python backend, which compiles nothing, or on an emulated GPU where they
    name one.

    The emulated one has another number than a real one: nothing that was prepared for it is ever
        launched there.
    """
    runner = doctest.DocTestRunner(optionflags=LOOSE)
    for test in tests:
        with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as m:
            m.setattr(layout, "devices_seen", set())  # those of other tests, which no longer exist
            if 'device="cuda"' in (test.docstring or ""):
                device = stack.enter_context(emulated())
                for example in test.examples:
                    example.source = example.source.replace('"cuda"', f'"{device}"')
            else:
                stack.enter_context(config.override(backend="python"))
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_are_true(name: str) -> None:
    """Doctests of the modules pass."""
    run_examples(examples_of(name))


@pytest.mark.parametrize("name", [*BUILTINS, *TOPOLOGY, *(d.name for d in ALL)])
def test_examples_of_the_language_are_true(name: str) -> None:
    """Doctests of the language's names pass; these are objects, whose docstrings no finder looks
    at.
    """
    text = getattr(cubepy, name).__doc__
    run_examples([doctest.DocTestParser().get_doctest(text, {}, f"cb.{name}", None, 0)])


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_has_an_example_that_is_run(package: str) -> None:
    """What users import is shown at work: in its own docstring or, where it is no function or
    class, its package's.
    """
    module = PUBLIC[package]
    names = getattr(module, "__all__", None) or [
        n
        for n, v in vars(module).items()
        if inspect.isfunction(v) and v.__module__ == module.__name__ and n[0] != "_"
    ]
    language = {
        id(getattr(cubepy, name)) for name in (*BUILTINS, *TOPOLOGY, *(d.name for d in ALL))
    }
    run = {test.docstring for name in modules() for test in examples_of(name) if test.examples}
    missing = []
    for name in names:
        thing = getattr(module, name)
        text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
        if type(thing) in (dict, list, tuple):  # they have no docstring of their own
            shown = f">>> .*\\b{name}\\b"
            found = module.__doc__ in run and re.search(shown, module.__doc__ or "")
        else:
            found = ">>> " in (text or "") and (id(thing) in language or text in run)
        if not found:
            missing.append(name)
    assert not missing


def described(page: str) -> str:
    """A page's text."""
    return (ROOT / "docs" / page).read_text()


def test_the_language_reference_has_every_name() -> None:
    """Builtins, topology, dtypes and declarations of the language are all in language.md."""
    text = described("reference/language.md")
    names = [*BUILTINS, *(n for n in TOPOLOGY if n[-2] != "_"), *(d.name for d in ALL)]
    names += "kernel func struct Comptime Array View over sync use stats memory_stats profile Stream".split()
    assert not [n for n in names if not re.search(rf"\b{n}\b", text)]


def test_the_kernel_page_has_every_signature() -> None:
    """kernels.md shows each function of the library with the signature that it has."""
    text = described("reference/kernels.md")
    missing = []
    for name in kernels.__all__:
        function = getattr(kernels, name)
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters.values()
            plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
            shown = f"K.{name}{inspect.Signature(plain)}"
            if shown not in text:
                missing.append(shown)
        elif name not in text:
            missing.append(name)
    assert not missing


def test_the_error_page_has_every_class() -> None:
    """errors.md lists each error class with the builtin that it derives from."""
    text = described("reference/errors.md")
    for name, cls in vars(cubepy.errors).items():
        if (
            isinstance(cls, type)
            and issubclass(cls, (cubepy.errors.CubeError, Warning))
            and not name.startswith("_")
        ):
            assert f"`{name}`" in text or f"cb.errors.{name}`" in text, name


def test_the_configuration_page_has_the_table_of_settings() -> None:
    """The table of configuration.md is the one that the settings themselves print."""
    assert table() in described("guide/configuration.md")
