"""PyTorch's `.pt`, `.pth` and `.bin` files, read without running anything that is in them.

Such a file is a zip with `data.pkl` and a file for every storage, or, before PyTorch 1.6, pickles
and storages one after the other. A pickle may name any function; this reader knows those that
rebuild tensors, and plain containers, and refuses every other one.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import pickletools
import sys
import zipfile
from collections import OrderedDict
from typing import Any

import numpy as np

from cubepy.errors import FileFormatError
from cubepy.lang.dtypes import dtype_named
from cubepy.models.formats.stored import Refusal, Stored, checked_shape, mapped

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
MOST_DEPTH = 200
MOST_ENTRIES = 2_000_000
FREE_ENTRIES = 10_000
_STORAGES = {
    "FloatStorage": "f32",
    "DoubleStorage": "f64",
    "HalfStorage": "f16",
    "BFloat16Storage": "bf16",
    "LongStorage": "i64",
    "IntStorage": "i32",
    "ShortStorage": "i16",
    "CharStorage": "i8",
    "ByteStorage": "u8",
    "BoolStorage": "bool_",
    "Float8_e4m3fnStorage": "fp8_e4m3",
    "Float8_e5m2Storage": "fp8_e5m2",
    "UntypedStorage": "u8",
}
DTYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool_",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}
"""Dtypes by torch's names."""


class _Kind:
    """A storage class of torch, by the name of our dtype."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Storage:
    """Bytes of a storage, from a byte of the file on."""

    def __init__(self, kind: str, raw: np.ndarray) -> None:
        self.kind, self.raw = kind, raw


class _Deferred:
    """A storage of a file of the old kind, whose bytes come after the pickles."""

    def __init__(self, kind: str, key: str, count: int) -> None:
        self.kind, self.key, self.count = kind, key, count
        self.raw = np.empty(0, np.uint8)


class _Rebuilt:
    """A tensor as the pickle describes it: elements of a storage with strides."""

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any, kind: str = "") -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride
        self.kind = kind or storage.kind


def _rebuild(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> _Rebuilt:
    if not isinstance(storage, (_Storage, _Deferred)):
        raise pickle.UnpicklingError("a tensor of no storage")
    return _Rebuilt(storage, offset, size, stride)


def _rebuild_v3(
    storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any
) -> _Rebuilt:
    if not isinstance(storage, (_Storage, _Deferred)) or not isinstance(dtype, _Kind):
        raise pickle.UnpicklingError("a tensor of no storage")
    return _Rebuilt(storage, offset, size, stride, dtype.name)


def _rebuild_parameter(data: Any, *rest: Any) -> Any:
    return data


class _Size(tuple):
    """`torch.Size`."""

    def __new__(cls, lengths: Any = ()) -> _Size:
        return super().__new__(cls, lengths)


def _encoded(text: Any, coding: Any = "latin1") -> bytes:
    """What old protocols write bytes as."""
    if not isinstance(text, str) or coding != "latin1":
        raise pickle.UnpicklingError("bytes are written as latin1")
    return text.encode("latin1")


_ALLOWED = {
    ("torch._utils", "_rebuild_tensor"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_v3,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch", "Size"): _Size,
    ("collections", "OrderedDict"): OrderedDict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("__builtin__", "set"): set,
    ("_codecs", "encode"): _encoded,
}


class _Unpickler(pickle.Unpickler):
    """Knows how tensors are rebuilt, and plain containers."""

    def __init__(self, file: Any, refuse: Refusal, storage: Any) -> None:
        super().__init__(file, encoding="utf-8", errors="replace")
        self.refuse, self.storage = refuse, storage

    def find_class(self, module: str, name: str) -> Any:
        """One of the few names that there are."""
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _Kind(_STORAGES[name])
        if module == "torch" and name in DTYPES:
            return _Kind(DTYPES[name])
        return self.refuse(
            f"the pickle asks for {module}.{name}, which is neither a tensor nor a container",
            "only weights are read, never code: save model.state_dict(), or use safetensors",
        )

    def persistent_load(self, pid: Any) -> Any:
        """A storage by its name."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            self.refuse(f"a reference that is no storage: {_shown(pid)}")
        _, kind, key, _, count = pid[:5]
        if not isinstance(kind, _Kind) or not isinstance(key, str) or not isinstance(count, int):
            self.refuse("a storage without kind, name or length")
        return self.storage(kind.name, key, count)


def _shown(value: Any) -> str:
    """A value of a file in a message: short, and never written out as a whole."""
    return repr(value[:40]) if isinstance(value, (str, bytes)) else type(value).__name__


def _loaded(file: Any, refuse: Refusal, storage: Any) -> Any:
    """One pickle; whatever is wrong with it becomes an error of the file."""
    try:
        _check(file, refuse)
        return _Unpickler(file, refuse, storage).load()
    except FileFormatError:
        raise
    except RecursionError:
        return refuse("the pickle is nested too deep")
    except MemoryError:
        return refuse("the pickle asks for more memory than there is")
    except Exception as error:  # a garbled pickle raises whatever its opcodes run into
        return refuse(f"the pickle is damaged: {type(error).__name__}: {str(error)[:120]}")


def _check(file: Any, refuse: Refusal) -> None:
    """Refuse what costs more than the file is long: numbers in the memo beyond what was written (it
    is an array as long as the largest), and tuples of tuples that share parts (their hash visits
    each as often as it is reached).
    """
    first = file.tell()
    stack: list[int] = []  # how many objects each one on it holds, 0 for a mark
    memo: dict[int, int] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(file), 1):
        if opcode.name == "MARK":
            stack.append(0)
        elif "GET" in opcode.name:
            stack.append(memo.get(int(argument or 0), 1))
        elif "PUT" in opcode.name or opcode.name == "MEMOIZE":
            number = len(memo) if opcode.name == "MEMOIZE" else int(argument or 0)
            if number > count:
                refuse(f"the pickle has {count} opcodes and the memo number {number}")
            memo[number] = stack[-1] if stack else 1
        else:
            _step(opcode, stack)
            if stack and stack[-1] > MOST_ENTRIES:
                refuse("tuples that hold themselves many times over")
    file.seek(first)


def _step(opcode: pickletools.OpcodeInfo, stack: list[int]) -> None:
    """What an opcode takes from the stack of `_check` and puts there."""
    taken: list[int] = []
    below = len(opcode.stack_before)
    if pickletools.markobject in opcode.stack_before:
        below = opcode.stack_before.index(pickletools.markobject)
        while stack and (top := stack.pop()):
            taken.append(top)
    for _ in range(below):
        if stack:
            taken.append(stack.pop())
    size = 1 + sum(taken)
    if opcode.name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"):
        size = taken[-1] if taken else 1  # what changes has no hash
    stack.extend([size] * len(opcode.stack_after))
    if opcode.name == "DUP" and len(stack) > 1:
        stack[-1] = stack[-2] = size - 1


def read_pickled(path: str | os.PathLike[str]) -> dict[str, Stored]:
    """The tensors of a file by their names; those in containers have dotted names.

    Raises:
        FileFormatError: a file that is damaged, or whose pickle asks for more than tensors.
        FileNotFoundError: there is no such file.
    """
    refuse, data = Refusal(path), mapped(path)
    found = _of_zip(path, data, refuse) if bytes(data[:2]) == b"PK" else _of_legacy(data, refuse)
    named: dict[str, Stored] = {}
    _collect("", found, named, refuse, [0, min(MOST_ENTRIES, FREE_ENTRIES + data.size)])
    if not named:
        refuse("there is no tensor in it", "save model.state_dict()")
    return named


def _of_zip(path: str | os.PathLike[str], data: np.ndarray, refuse: Refusal) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {info.filename: info for info in archive.infolist()}
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError) as error:
        refuse(f"a zip that is damaged: {error}", "the file is cut off; fetch it again")
    pickles = [name for name in infos if name.endswith("/data.pkl") or name == "data.pkl"]
    if len(pickles) != 1:
        script = any("/code/" in name for name in infos)
        hint = "save model.state_dict() of a TorchScript model" if script else "is it PyTorch's?"
        refuse(f"expected one data.pkl in the zip, got {len(pickles)}", hint)
    base = pickles[0][: -len("data.pkl")]
    order = "little"
    if base + "byteorder" in infos:
        order = bytes(_member(data, infos[base + "byteorder"], refuse)).decode("latin1")
    if order != sys.byteorder:
        refuse(f"storages are {order[:8]!r}-endian, this machine is {sys.byteorder}-endian")
    kept: dict[str, _Storage] = {}

    def storage(kind: str, key: str, count: int) -> _Storage:
        info = infos.get(f"{base}data/{key}")
        if info is None:
            refuse(f"the storage {key!r} is missing")
        raw = _member(data, info, refuse)
        if count < 0 or count * dtype_named(kind).itemsize > raw.size:
            refuse(f"the storage {key!r} has {raw.size} bytes, fewer than its {count} elements")
        if key not in kept:
            kept[key] = _Storage(kind, raw)
        return kept[key]

    return _loaded(io.BytesIO(_member(data, infos[pickles[0]], refuse).tobytes()), refuse, storage)


def _member(data: np.ndarray, info: zipfile.ZipInfo, refuse: Refusal) -> np.ndarray:
    """The bytes of a file in a zip, which torch does not compress."""
    if info.compress_type != zipfile.ZIP_STORED:
        refuse(f"{info.filename!r} is compressed in the zip; torch.save compresses nothing")
    at = info.header_offset
    local = bytes(data[at : at + 30]) if 0 <= at <= data.size - 30 else b""
    if local[:4] != b"PK\x03\x04":
        refuse(f"{info.filename!r} is not where the zip says")
    first = (
        at + 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    )
    if first + info.file_size > data.size:
        refuse(f"{info.filename!r} ends behind the file")
    return data[first : first + info.file_size]


def _of_legacy(data: np.ndarray, refuse: Refusal) -> Any:
    """Magic number, protocol, system, the object, names of storages; then storages."""
    if bytes(data[:1]) != b"\x80":
        refuse("neither a zip nor a pickle")
    stream = io.BytesIO(data)  # type: ignore[arg-type]
    deferred: dict[str, _Deferred] = {}

    def storage(kind: str, key: str, count: int) -> _Deferred:
        return deferred.setdefault(key, _Deferred(kind, key, count))

    def none(kind: str, key: str, count: int) -> Any:
        refuse("a storage where none can be")

    if _loaded(stream, refuse, none) != LEGACY_MAGIC:
        refuse("a pickle that torch.save did not write", "save model.state_dict()")
    _loaded(stream, refuse, none)
    system = _loaded(stream, refuse, none)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        refuse("a file of a big-endian machine")
    found = _loaded(stream, refuse, storage)
    keys = _loaded(stream, refuse, none)
    at = stream.tell()
    for key in keys if isinstance(keys, list) else ():
        one = deferred.get(key) if isinstance(key, str) else None
        if one is None:
            refuse(f"the storage {_shown(key)} belongs to no tensor")
        count = int.from_bytes(bytes(data[at : at + 8]), "little")
        size = count * dtype_named(one.kind).itemsize
        if count != one.count or at + 8 + size > data.size:
            refuse(f"the storage {key!r} has {count} elements, which the file does not hold")
        one.raw = data[at + 8 : at + 8 + size]
        at += 8 + size
    return found


def _collect(
    name: str, value: Any, named: dict[str, Stored], refuse: Refusal, seen: list[int]
) -> None:
    """The tensors of nested containers by dotted names; `seen`: how deep, and how many entries are
    left: an entry takes bytes of a file, but one that is there again and again takes few.
    """
    seen[1] -= 1 + len(name) // 16
    if seen[0] > MOST_DEPTH or seen[1] < 0:
        refuse("containers are nested too deep, or hold too much")
    seen[0] += 1
    if isinstance(value, _Rebuilt):
        if name in named:
            refuse(f"two tensors have the name {name!r}")
        named[name] = _stored(name or "tensor", value, refuse)
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    for key, inner in items:
        if isinstance(inner, (_Rebuilt, dict, list, tuple)):
            if not isinstance(key, (str, int)):
                refuse(f"a tensor under a key that is no text: {_shown(key)}")
            _collect(f"{name}.{key}" if name else str(key), inner, named, refuse, seen)
    seen[0] -= 1


def _stored(name: str, tensor: _Rebuilt, refuse: Refusal) -> Stored:
    """A view of a storage, whose strides stay inside of it."""

    def naturals(values: Any) -> bool:
        return isinstance(values, tuple) and all(
            isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**62 for v in values
        )

    if not naturals(tensor.size) or not naturals(tensor.stride) or not naturals((tensor.offset,)):
        refuse(f"tensor {name!r} has no shape, strides or offset of integers")
    if len(tensor.size) != len(tensor.stride):
        refuse(f"tensor {name!r} has {len(tensor.size)} lengths and {len(tensor.stride)} strides")
    shape = checked_shape(name, tensor.size, refuse)
    dtype = dtype_named(tensor.kind).numpy
    raw = tensor.storage.raw
    reach = sum((n - 1) * s for n, s in zip(shape, tensor.stride, strict=True))
    empty = math.prod(shape) == 0
    if not empty and (tensor.offset + reach + 1) * dtype.itemsize > raw.size:
        refuse(f"tensor {name!r} of shape {shape} reaches behind its storage of {raw.size} bytes")
    if empty:
        return Stored(name, tensor.kind, shape, np.empty(shape, dtype))
    if any(n > 1 and s == 0 for n, s in zip(shape, tensor.stride, strict=True)):
        if math.prod(shape) * dtype.itemsize > max(raw.size, 1 << 20):
            refuse(f"tensor {name!r} of shape {shape} repeats a storage of {raw.size} bytes")
    whole = raw[: raw.size // dtype.itemsize * dtype.itemsize]
    if whole.ctypes.data % dtype.itemsize:
        whole = whole.copy()
    elements = whole.view(dtype)[tensor.offset :]
    strides = tuple(s * dtype.itemsize for s in tensor.stride)
    array = np.lib.stride_tricks.as_strided(elements, shape, strides, writeable=False)
    return Stored(name, tensor.kind, shape, array)
