"""From generated source to machine code: numba types and lowers it, LLVM optimises it, an object
file results.

The object is kept in the cache on disk. Loading needs llvmlite only (`backends.llvm.machine_code`),
so a warm process never imports numba, unless numba starts its threads (see `threads`).
"""

from __future__ import annotations

import hashlib
import threading
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite

from cubepy.backends.llvm.emitted import Emitted
from cubepy.backends.llvm.generated_source import load_source
from cubepy.backends.llvm.machine_code import host
from cubepy.errors import BackendCompileError

_lock = threading.RLock()  # numba compiles one function at a time


def numba_version() -> str:
    """The version of numba, which is not imported for it; nor is what reads metadata, unless more
    than one version seems to be installed.
    """
    spec = find_spec("numba")
    if spec is not None and spec.origin is not None:
        near = [*Path(spec.origin).parents[1].glob("numba-*.dist-info")]
        if len(near) == 1:
            return near[0].name.removeprefix("numba-").removesuffix(".dist-info")
    return str(import_module("importlib.metadata").version("numba"))


@cache
def toolchain() -> str:
    """What compiles, and for which processor."""
    name, features = host()
    return f"numba {numba_version()} llvmlite {llvmlite.__version__} {name} {features}"


@cache
def versions() -> str:
    """What machine code depends on besides the source."""
    here = Path(__file__).parent
    sources = hashlib.sha256()
    for file in sorted(
        [
            *here.parent.glob("llvm/ops/**/*.py"),
            here.parent / "llvm/generated_source.py",
            here.parent / "llvm/optimise.py",
            here.parent / "llvm/passes.py",
            here.parent / "llvm/straight.py",
            here / "lowering.py",
        ]
    ):
        sources.update(file.read_bytes())
    return f"ops {sources.hexdigest()[:16]} {toolchain()}"


def compile_object(
    path: Path, emitted: Emitted, symbol: str, fast_math: frozenset[str], noalias: bool
) -> Any:
    """Compile a generated file; gives the object code and the optimised LLVM module.

    Raises:
        BackendCompileError: numba refused the generated code.
    """
    from cubepy.backends.cpu import lowering

    with _lock:
        try:
            return lowering.lower(
                lambda: load_source(path).kernel,
                emitted.text,
                emitted.parameters,
                symbol,
                fast_math,
                noalias,
            )
        except RecursionError:  # its caller finds a stack with room
            raise
        except Exception as error:
            raise BackendCompileError(
                f"numba refused the generated code {path}: {type(error).__name__}: "
                f"{str(error)[:2000]}",
                hint="this is a defect of cubepy; please report it with the file named above",
            ) from error
