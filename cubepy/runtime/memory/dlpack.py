"""DLPack: giving device memory to other libraries and taking theirs, without a copy.

The capsule holds a C struct that is made here with ctypes (versions 0 and 1 of the standard). It
keeps the array alive until its consumer calls the deleter.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

from cubepy.errors import DeviceError, DTypeError
from cubepy.lang import dtypes as dt
from cubepy.runtime.device import Device
from cubepy.runtime.memory.hazards import Tracked
from cubepy.runtime.memory.layout import Layout, layout_of

CPU, CUDA, CUDA_HOST, ROCM = 1, 2, 3, 10
_DEVICES = {"cpu": CPU, "cuda": CUDA, "hip": ROCM}
_READ_ONLY, _IS_COPIED = 1, 2
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL, _FP8_E4M3, _FP8_E5M2 = 0, 1, 2, 4, 6, 10, 12


class _Device(ctypes.Structure):
    _fields_ = (("kind", c_int32), ("ordinal", c_int32))


class _DType(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("offset", c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [c_void_p, ctypes.c_char_p, c_void_p]
_python.PyCapsule_GetPointer.restype = c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_IsValid.restype = ctypes.c_int
_python.PyCapsule_IsValid.argtypes = [c_void_p, ctypes.c_char_p]
_python.PyCapsule_SetName.restype = ctypes.c_int
_python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_NAME, _NAME_1 = b"dltensor", b"dltensor_versioned"
_USED, _USED_1 = b"used_dltensor", b"used_dltensor_versioned"

_alive: dict[int, tuple[Any, ...]] = {}


@_Deleter
def _release(at: int) -> None:
    _alive.pop(at, None)


def _holders(entry: tuple[Any, ...]) -> int:
    """How many references there are to a capsule, which is the last part of an entry."""
    return sys.getrefcount(entry[-1])


_ALONE = _holders((object(),))


def _let_go() -> None:
    """Forget arrays in capsules that nobody has, and nobody took over.

    A destructor could do that at once, if it could keep the error of who refuses a capsule: nothing
    that Python runs can.
    """
    for at, entry in tuple(_alive.items()):
        if _holders(entry) <= _ALONE:
            capsule = id(entry[-1])
            if any(_python.PyCapsule_IsValid(capsule, name) for name in (_NAME, _NAME_1)):
                _alive.pop(at, None)


def device_of(device: Device) -> tuple[int, int]:
    """A device as DLPack numbers it."""
    return _DEVICES[device.backend], device.ordinal


def export(array: Any, versioned: bool, copied: bool = False) -> Any:
    """A capsule that gives an array away.

    Args:
        array: a `DeviceArray`.
        versioned: make the struct of version 1 (it can say "read-only"), else of version 0.
        copied: whether the array is a copy made for this.

    Raises:
        BufferError: a read-only array for a consumer that cannot be told, or strides that are no
            multiple of the element.
    """
    layout: Layout = array.layout
    if not array.writeable and not versioned:
        raise BufferError("a read-only array cannot be given away by DLPack before version 1")
    code, bits = _code_of(layout.dtype)
    if any(s % layout.itemsize for s in layout.strides):
        raise BufferError(f"strides {layout.strides} are no multiple of the element")
    n = max(1, layout.ndim)
    shape = (c_int64 * n)(*layout.shape)
    strides = (c_int64 * n)(*(s // layout.itemsize for s in layout.strides))
    managed = _Versioned() if versioned else _Managed()
    kind, ordinal = device_of(layout.device)
    managed.tensor = _Tensor(
        array.address if layout.size else None,
        _Device(kind, ordinal),
        layout.ndim,
        _DType(code, bits, 1),
        shape,
        strides,
        0,
    )
    managed.deleter = ctypes.cast(_release, c_void_p).value
    if versioned:
        managed.major, managed.minor = 1, 0
        managed.flags = (0 if array.writeable else _READ_ONLY) | (_IS_COPIED if copied else 0)
    at = ctypes.addressof(managed)
    _let_go()
    capsule = _python.PyCapsule_New(at, _NAME_1 if versioned else _NAME, None)
    _alive[at] = (managed, shape, strides, array, capsule)
    return capsule


class _Taken(Tracked):
    """Memory of another library, given back by its deleter when the last array on it is
    collected.
    """

    __slots__ = ("_delete", "address")

    def __init__(self, address: int, managed: int, deleter: int | None) -> None:
        super().__init__()
        self.address = address
        self._delete: tuple[Any, int] | None = (_Deleter(deleter), managed) if deleter else None

    def __del__(self) -> None:
        delete: tuple[Any, int] | None = getattr(self, "_delete", None)
        if delete is not None:
            delete[0](delete[1])


def take(capsule: Any) -> tuple[int, Layout, Tracked, bool]:
    """What a capsule of another library holds: address, layout, owner, and whether it may be
    written.

    Raises:
        DeviceError: memory of a device that cubepy does not know.
        DTypeError: elements that cubepy does not know.
    """
    versioned = bool(_python.PyCapsule_IsValid(id(capsule), _NAME_1))
    at = _python.PyCapsule_GetPointer(capsule, _NAME_1 if versioned else _NAME)
    managed: Any = (_Versioned if versioned else _Managed).from_address(at)
    if versioned and managed.major > 1:
        raise DeviceError(
            f"the DLPack version {managed.major} is not known", hint="ask its library for version 1"
        )
    tensor = managed.tensor
    backend = {CUDA: "cuda", ROCM: "hip"}.get(tensor.device.kind)
    if backend is None:
        raise DeviceError(
            f"DLPack memory of the device type {tensor.device.kind} is no GPU memory that "
            "cubepy knows"
        )
    dtype = _dtype_of(tensor.dtype)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = (
        tuple(s * dtype.itemsize for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    )
    layout = layout_of(shape, strides, dtype, Device(backend, tensor.device.ordinal))
    _python.PyCapsule_SetName(capsule, _USED_1 if versioned else _USED)
    owner = _Taken((tensor.data or 0) + tensor.offset, at, managed.deleter)
    return owner.address, layout, owner, not (versioned and managed.flags & _READ_ONLY)


_CODES: dict[dt.DType, tuple[int, int]] = {
    dt.bool_: (_BOOL, 8),
    dt.bf16: (_BFLOAT, 16),
    dt.fp8_e4m3: (_FP8_E4M3, 8),
    dt.fp8_e5m2: (_FP8_E5M2, 8),
    **{d: (_INT, d.bits) for d in (dt.i8, dt.i16, dt.i32, dt.i64)},
    **{d: (_UINT, d.bits) for d in (dt.u8, dt.u16, dt.u32, dt.u64)},
    **{d: (_FLOAT, d.bits) for d in (dt.f16, dt.f32, dt.f64)},
}
_NAMES = {code: d for d, code in _CODES.items()}


def _code_of(dtype: np.dtype) -> tuple[int, int]:
    found = _CODES.get(dt.as_dtype(dtype))
    if found is None:
        raise DTypeError(f"DLPack has no name for {dtype}", hint="give away x.view('uint8')")
    return found


def _dtype_of(given: Any) -> np.dtype:
    found = _NAMES.get((given.code, given.bits)) if given.lanes == 1 else None
    if found is None:
        raise DTypeError(
            f"the DLPack dtype (code {given.code}, {given.bits} bits, {given.lanes} lanes) "
            "is not known"
        )
    return found.numpy
