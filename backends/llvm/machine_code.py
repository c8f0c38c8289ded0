"""Machine code on the host that is written as LLVM IR, or comes as an object file: loaded with llvmlite alone.

Small functions that replay calls or start threads are built-in functions of Python here: through ctypes calls would
take longer than most of the code itself.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from typing import Any

import llvmlite.binding as ll
from llvmlite import ir

from cubepy.errors import BackendCompileError

_FASTCALL = 0x80  # METH_FASTCALL: a function gets an array of arguments and their number
_word = ir.IntType(64)
_lock = threading.RLock()
DATA = (
    object.__basicsize__
)  # where the address of an array's elements is in NumPy's object (see runtime.memory.address)
ITEMS = tuple.__basicsize__  # where the first item is in a tuple
REFUSED = -1


def _number(value: int) -> Any:
    return ir.Constant(_word, value)


class _Method(ctypes.Structure):
    """What Python calls PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def python_function(name: str) -> Any:
    """Where a function of Python is, as a word."""
    return ir.Constant(_word, ctypes.cast(ctypes.pythonapi[name], ctypes.c_void_p).value)


def builtin(code: str, symbol: str) -> Any:
    """Machine code `(itself, address of arguments, their number)` as a built-in function of Python."""
    return builtin_at(load_text(code, symbol), symbol)


def builtin_at(address: int, name: str) -> Any:
    """The same for machine code that is loaded."""
    method = _Method(name.encode(), address, _FASTCALL, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    _alive.append(method)
    return make(ctypes.addressof(method), None, None)


_alive: list[Any] = []


@cache
def host() -> tuple[str, str]:
    """The CPU's name and features, as LLVM has them (NUMBA_CPU_NAME and NUMBA_CPU_FEATURES override)."""
    name = os.environ.get("NUMBA_CPU_NAME") or ll.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = ll.get_host_cpu_features().flatten()
    return name, features


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
