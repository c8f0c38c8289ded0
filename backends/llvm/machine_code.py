"""Machine code on the host that is written as LLVM IR, or comes as an object file: loaded with
llvmlite alone.

Small functions that replay calls or start threads are built-in functions of Python here: through
ctypes calls would take longer than most of the code itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as ll

from cubepy.backends.llvm import object_loader
from cubepy.errors import BackendCompileError
from cubepy.runtime import cache as disk

_FASTCALL = 0x80  # METH_FASTCALL: a function gets an array of arguments and their number
_lock = threading.RLock()
DATA = (
    object.__basicsize__
)  # where the address of an array's elements is in NumPy's object (see runtime.memory.address)
ITEMS = tuple.__basicsize__  # where the first item is in a tuple
REFUSED = -1
ADDRESSES, NAMES = "_addresses", "_names"  # of a module: a table, and what belongs into it
MOST = 16
"""Addresses in such a table."""


class _Method(ctypes.Structure):
    """What Python calls PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def builtin_at(address: int, name: str) -> Any:
    """Machine code `(itself, address of arguments, their number)` as a built-in function of
    Python.
    """
    method = _Method(name.encode(), address, _FASTCALL, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    _alive.append(method)
    return make(ctypes.addressof(method), None, None)


_alive: list[Any] = []
WRITERS = tuple(Path(__file__).with_name(name) for name in ("word_code.py", "replay_table.py"))
SMALL = 1
"""LLVM's level for small functions: 2 and 3 run no faster, and at 0 a call that is replayed takes
70 ns more.
"""


@cache
def host() -> tuple[str, str]:
    """The CPU's name and features, as LLVM has them (NUMBA_CPU_NAME and NUMBA_CPU_FEATURES
    override).
    """
    name = os.environ.get("NUMBA_CPU_NAME") or ll.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = ll.get_host_cpu_features().flatten()
    return name, features


@cache
def _machine(level: int) -> Any:
    name, features = host()
    return ll.Target.from_default_triple().create_target_machine(
        cpu=name, features=features, opt=level, jit=True, reloc="default", codemodel="jitdefault"
    )


@cache
def _engine() -> Any:
    for initialise in ("initialize", "initialize_native_target", "initialize_native_asmprinter"):
        try:
            getattr(ll, initialise)()
        except RuntimeError as error:
            if "deprecated" not in str(error):  # newer LLVM needs no initialisation and says so
                raise
    return ll.create_mcjit_compiler(ll.parse_assembly(""), _machine(3))


def load_object(code: bytes, symbol: str) -> object_loader.Laid:
    """Load object code into the process, which may let go of it with what this gives.

    Raises:
        BackendCompileError: the object has no such entry point.
    """
    found = object_loader.load(code, symbol, ll.address_of_symbol)
    return object_loader.Laid(_by_llvm(code, symbol)) if found is None else found


def _by_llvm(code: bytes, symbol: str) -> int:
    """The same by LLVM's loader."""
    with _lock:
        engine = _engine()
        engine.add_object_file(ll.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address = engine.get_function_address(symbol)
    if not address:
        raise BackendCompileError(f"the object code lacks its entry point {symbol}")
    return int(address)


def loaded(symbol: str, text: Callable[[], str], source: str, **known: int) -> Any:
    """A function of Python by machine code that is written with a `WordCode` (see `load_written`).

    Args:
        symbol: of the function.
        text: gives the module as LLVM IR, the same in every process.
        source: the file that `text` is in.
        known: addresses that the code asks for by these names; other names are functions of Python.
    """
    load_written(symbol, text, (source,), **known)
    return builtin_at(address_of(symbol), symbol)


def load_written(
    symbol: str, text: Callable[[], str], sources: Sequence[str], **known: int
) -> None:
    """Load a module that is written with a `WordCode`, from the cache on disk where it is there.

    The entry is named by the sources of what writes it: to write the text takes longer than to load
    the code.

    Args:
        symbol: of the module, and of one of its functions.
        text: gives the module as LLVM IR, the same in every process.
        sources: the files that `text` is in.
        known: addresses that the code asks for by these names; other names are functions of Python.
    """
    layout = f"{sys.implementation.cache_tag} {DATA} {ITEMS} {bytes.__basicsize__}"
    files = (*map(Path, sources), *WRITERS)
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    key = disk.digest(f"{symbol} {llvmlite.__version__} {host()} {layout}", *hashes)
    code = disk.read(key)
    if code is None:
        code = _compiled(text())
        disk.write(key, code)
    with _lock:
        _by_llvm(code, symbol)
        table, names = (_engine().get_global_value_address(symbol + p) for p in (ADDRESSES, NAMES))
    listed = ctypes.string_at(names).decode().split("\n")
    words = (ctypes.c_int64 * len(listed)).from_address(table)
    for n, name in enumerate(listed):
        pythons = None if name in known else ctypes.cast(ctypes.pythonapi[name], ctypes.c_void_p)
        words[n] = known[name] if pythons is None else pythons.value or 0


def _compiled(text: str) -> bytes:
    with _lock:
        _engine()
        module = ll.parse_assembly(text)
        module.verify()
        return bytes(_machine(SMALL).emit_object(module))


def address_of(symbol: str) -> int:
    """The address of a function that `load_written` loaded."""
    with _lock:
        return int(_engine().get_function_address(symbol))
