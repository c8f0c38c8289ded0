"""From generated source to machine code: numba types and lowers it, LLVM optimises it, an object file results.

The object is kept in the cache on disk. Loading needs llvmlite only, so a warm process never imports numba, unless
numba starts its threads (see `threads`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as ll

from cubepy.backends.llvm.printing import Emitted
from cubepy.errors import BackendCompileError

_lock = threading.RLock()


@cache
def host() -> tuple[str, str]:
    """The CPU's name and features, as LLVM has them (NUMBA_CPU_NAME and NUMBA_CPU_FEATURES override)."""
    import os

    name = os.environ.get("NUMBA_CPU_NAME") or ll.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = ll.get_host_cpu_features().flatten()
    return name, features


@cache
def versions() -> str:
    """What machine code depends on besides the source."""
    from importlib.metadata import version

    name, features = host()
    here = Path(__file__).parent
    sources = hashlib.sha256()
    for file in sorted(
        [*here.parent.glob("llvm/ops/*.py"), here.parent / "llvm/passes.py", here / "lowering.py"]
    ):
        sources.update(file.read_bytes())
    return f"ops {sources.hexdigest()[:16]} numba {version('numba')} llvmlite {llvmlite.__version__} {name} {features}"


def compile_object(
    path: Path, emitted: Emitted, symbol: str, fast_math: frozenset[str], noalias: bool
) -> Any:
    """Compile a generated file; gives the object code and the optimised LLVM module.

    Raises:
        BackendCompileError: numba refused the generated code.
    """
    from cubepy.backends.cpu import lowering

    module = load_source(path)
    with _lock:
        try:
            return lowering.lower(module.kernel, emitted.parameters, symbol, fast_math, noalias)
        except RecursionError:  # its caller finds a stack with room
            raise
        except Exception as error:
            raise BackendCompileError(
                f"numba refused the generated code {path}: {type(error).__name__}: {str(error)[:2000]}",
                hint="this is a defect of cubepy; please report it with the file named above",
            ) from error


def load_source(path: Path) -> Any:
    """Import a generated file under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"cubepy_generated_{path.stem[:16]}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _engine() -> Any:
    for initialise in ("initialize", "initialize_native_target", "initialize_native_asmprinter"):
        try:
            getattr(ll, initialise)()
        except RuntimeError as error:
            if "deprecated" not in str(error):  # newer LLVM needs no initialisation and says so
                raise
    name, features = host()
    machine = ll.Target.from_default_triple().create_target_machine(
        cpu=name, features=features, opt=3, jit=True, reloc="default", codemodel="jitdefault"
    )
    return ll.create_mcjit_compiler(ll.parse_assembly(""), machine)


def load_object(code: bytes, symbol: str) -> int:
    """Load object code into the process; gives the address of its entry point.

    Raises:
        BackendCompileError: the object has no such entry point.
    """
    with _lock:
        engine = _engine()
        engine.add_object_file(ll.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address = engine.get_function_address(symbol)
    if not address:
        raise BackendCompileError(f"the object code lacks its entry point {symbol}")
    return int(address)


def load_text(text: str, symbol: str) -> int:
    """Compile LLVM IR and load it into the process; gives the address of a function."""
    with _lock:
        engine = _engine()
        module = ll.parse_assembly(text)
        module.verify()
        engine.add_module(module)
        engine.finalize_object()
    return address_of(symbol)


def address_of(symbol: str) -> int:
    """The address of a function that `load_text` loaded."""
    with _lock:
        return int(_engine().get_function_address(symbol))
