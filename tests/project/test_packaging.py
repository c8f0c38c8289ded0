"""The package as users install it: complete, light to import, and usable from anywhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_importing_cubepy_imports_neither_numba_nor_llvmlite(tmp_path: Path) -> None:
    code = "import sys, cubepy; print(sorted({'numba', 'llvmlite'} & set(sys.modules)))"
    assert python("-c", code, cwd=tmp_path).stdout.strip() == "[]"


def test_declaring_a_kernel_compiles_nothing(tmp_path: Path) -> None:
    (tmp_path / "declares.py").write_text(
        "import sys\nimport cubepy as cb\n@cb.kernel\ndef k(x: cb.Array):\n    x[0] = 1\n"
        "print('numba' in sys.modules, cb.stats().compiled)\n"
    )
    assert python("declares.py", cwd=tmp_path).stdout.split() == ["False", "0"]


def test_info_works_in_an_empty_folder(tmp_path: Path) -> None:
    done = python("-m", "cubepy", "info", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"cubepy"' in done.stdout


def test_wheel_holds_every_module(tmp_path: Path) -> None:
    command = [
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    done = python(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = {n for n in zipfile.ZipFile(wheel).namelist() if n.endswith((".py", ".pyi", ".typed"))}
    want = set()
    for folder in ("cubepy", "backends", "nn", "quant"):
        name = folder if folder == "cubepy" else f"cubepy/{folder}"
        for file in (ROOT / folder).rglob("*.*"):
            if file.suffix not in (".py", ".pyi", ".typed"):
                continue
            want.add(f"{name}/{file.relative_to(ROOT / folder).as_posix()}")
    assert want <= held, sorted(want - held)
    assert all(n.startswith("cubepy/") for n in held), "nothing generic lands in site-packages"


def test_the_folder_names_alone_cannot_be_imported() -> None:
    done = python("-c", "import nn", cwd=ROOT)
    assert "import cubepy.nn" in done.stderr


def test_a_checkout_is_complete_wherever_it_lies(tmp_path: Path) -> None:
    """On PYTHONPATH, not installed: the parts come from the same checkout, not from one that is
    installed.
    """
    tree, elsewhere = tmp_path / "tree", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in ("cubepy", "backends", "nn", "quant", "tests", "scripts"):
        (tree / folder).parent.mkdir(exist_ok=True)
        (tree / folder).symlink_to(ROOT / folder)
    code = (
        "import sys, cubepy, cubepy.nn, cubepy.quant.report, cubepy.backends.python.backend\n"
        "print(*{m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'cubepy'}, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    files = done.stdout.split()
    assert len(files) > 20
    assert [f for f in files if not f.startswith(str(tree))] == []


@pytest.mark.parametrize("name", ["cubepy", "tests", "scripts", "setup", "examples", "docs"])
def test_what_lies_beside_the_package_is_not_in_it(name: str) -> None:
    assert (ROOT / name).exists() or (ROOT / f"{name}.py").exists()
    assert importlib.util.find_spec(f"cubepy.{name}") is None


def test_extras_are_those_that_users_are_told_of() -> None:
    """What pages, hints and the Makefile say to install exists, and nothing is offered that nothing
    speaks of.
    """
    table = (
        (ROOT / "pyproject.toml")
        .read_text()
        .partition("[project.optional-dependencies]")[2]
        .partition("\n[")[0]
    )
    offered = set(re.findall(r"^(\w+) = \[", table, re.MULTILINE))
    pages = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    sources = [
        file
        for folder in ("cubepy", "backends", "nn", "quant")
        for file in (ROOT / folder).rglob("*.py")
    ]
    named = {
        name
        for file in (*pages, *sources)
        for name in re.findall(r"(?:cubepy|'\.|\"\.)\[(\w+)\]", file.read_text())
    }
    assert named == offered
