"""Machine code that knows tensors of PyTorch by their layouts: one look, where Python would ask for
four attributes.

PyTorch says through DLPack's exchange interface what a tensor is, without making an object. The
code compares that with a table of layouts that were seen, by hash, and gives the token that stands
for the layout.

Words of a row of the table: token (0: none), device, rank with dtype, then lengths and strides of
up to `AXES` axes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.machine_code import loaded
from cubepy.backends.llvm.word_code import WordCode

SYMBOL = "cubepy_gpu_layouts"
AXES = 8
ROW = 3 + 2 * AXES
ROWS = 4096
_FROM_OBJECT = 40  # bytes from the start of DLPackExchangeAPI: dltensor_from_py_object_no_sync
_word, _int = ir.IntType(64), ir.IntType(32)


class _Function(WordCode):
    """`f(tensor)`, the token or None; `f(tensor, token)` keeps the token."""

    def __init__(self) -> None:
        super().__init__(SYMBOL)
        function = self.begin(SYMBOL)
        _, self.values, self.count = function.args

    def nothing(self) -> None:
        """Give None."""
        none = self.known("none")
        self.python("Py_IncRef", none, gives=ir.VoidType())
        self.b.ret(none)


def text() -> str:
    """The function as LLVM IR; it knows PyTorch's function that describes a tensor, the table, and
    None.
    """
    f = _Function()
    b, load = f.b, f.load

    def number(value: int) -> Any:
        return ir.Constant(_word, value)

    described = b.ptrtoint(b.alloca(_word, 6), _word)  # a DLTensor
    mixed = b.alloca(_word)
    code = f.call_at(f.known("from_object"), load(f.values), described, gives=_int)
    with b.if_then(b.icmp_signed("!=", code, ir.Constant(_int, 0))):
        f.python("PyErr_Clear", gives=ir.VoidType())
        f.nothing()
    device, kind, shape, strides = (
        load(described, 1),
        load(described, 2),
        load(described, 3),
        load(described, 4),
    )
    rank = b.and_(kind, number(0xFFFFFFFF))
    lost = b.or_(b.icmp_unsigned(">", rank, number(AXES)), b.icmp_signed("==", strides, number(0)))
    with b.if_then(lost):
        f.nothing()
    multiplier = number(0x9E3779B97F4A7C15 - (1 << 64))
    b.store(b.mul(b.xor(b.mul(kind, multiplier), device), multiplier), mixed)

    def mix(length: Any) -> None:
        stride = load(b.add(length, b.sub(strides, shape)))
        both = b.xor(load(length), b.mul(stride, number(31)))
        now = b.mul(b.xor(b.load(mixed), both), multiplier)
        b.store(b.xor(now, b.lshr(now, number(29))), mixed)

    f.rows(shape, rank, 1, mix)
    slot = b.urem(b.lshr(b.load(mixed), number(20)), number(ROWS))
    row = b.add(f.known("table"), b.mul(slot, number(8 * ROW)))
    keeps = b.icmp_signed("==", f.count, number(2))
    with b.if_then(keeps):
        for n, value in enumerate((load(f.values, 1), device, kind)):
            f.store(b.add(row, number(8 * n)), value)

        f.copy(shape, rank, b.add(row, number(24)))
        f.copy(strides, rank, b.add(row, number(24 + 8 * AXES)))
        f.nothing()
    same = b.and_(
        b.icmp_signed("==", load(row, 1), device), b.icmp_signed("==", load(row, 2), kind)
    )
    same = b.and_(same, b.icmp_signed("!=", load(row), number(0)))
    with b.if_then(b.not_(same)):
        f.nothing()

    def compare(length: Any) -> None:
        at, stride = (b.add(length, b.sub(start, shape)) for start in (row, strides))
        other = b.or_(
            b.icmp_signed("!=", load(at, 3), load(length)),
            b.icmp_signed("!=", load(at, 3 + AXES), load(stride)),
        )
        with b.if_then(other):
            f.nothing()

    f.rows(shape, rank, 1, compare)
    token = load(row)
    f.python("Py_IncRef", token, gives=ir.VoidType())
    b.ret(token)
    return f.text()


def finder(tensors: type) -> tuple[Callable[..., Any], Callable[[], None]] | None:
    """A function that gives the token of a tensor's layout or None, or keeps one; and one that
    forgets all of them.

    Args:
        tensors: PyTorch's class of tensors.

    None where PyTorch has no exchange interface of version 1.
    """
    capsule = getattr(tensors, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    at = pointer(capsule, b"dlpack_exchange_api")
    if not at or ctypes.c_uint32.from_address(at).value != 1:
        return None
    from_object = ctypes.c_void_p.from_address(at + _FROM_OBJECT).value
    if not from_object:
        return None
    table = (ctypes.c_int64 * (ROW * ROWS))()
    _alive.append(table)

    def forget() -> None:
        ctypes.memset(table, 0, ctypes.sizeof(table))

    known = {"from_object": from_object, "table": ctypes.addressof(table), "none": id(None)}
    return loaded(SYMBOL, text, __file__, **known), forget


_alive: list[Any] = []
