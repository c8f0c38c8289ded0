"""Machine code as built-in functions of Python: through ctypes calls would take longer than most of the code itself."""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir

_FASTCALL = 0x80  # METH_FASTCALL: a function gets an array of arguments and their number
_word = ir.IntType(64)


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
    from cubepy.backends.cpu import compile as native

    return builtin_at(native.load_text(code, symbol), symbol)


def builtin_at(address: int, name: str) -> Any:
    """The same for machine code that is loaded."""
    method = _Method(name.encode(), address, _FASTCALL, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    _alive.append(method)
    return make(ctypes.addressof(method), None, None)


_alive: list[Any] = []
