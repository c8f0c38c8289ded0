"""safetensors files: memory-mapped in, atomically out.

The format: eight bytes with the length of a header (little-endian), the header (JSON: name ->
dtype, shape, offsets; and `__metadata__`, texts), then the bytes of all tensors without gaps. A
file comes from anywhere, so everything that the header says is checked before any of it is used.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from cubepy.errors import ArgumentError, FileFormatError
from cubepy.kernels.entry.options import shown
from cubepy.lang.dtypes import ALL, as_dtype, dtype_named
from cubepy.nn import arguments
from cubepy.runtime.whole_file import whole_file
from cubepy.tensor import Tensor, as_tensor

MOST_HEADER = 100_000_000  # the limit of the format's own library
DAMAGED = "the file is damaged or no safetensors file; fetch or write it again"
DTYPES = {
    "BOOL": "bool_",
    "U8": "u8",
    "I8": "i8",
    "I16": "i16",
    "U16": "u16",
    "F16": "f16",
    "BF16": "bf16",
    "I32": "i32",
    "U32": "u32",
    "F32": "f32",
    "F64": "f64",
    "I64": "i64",
    "U64": "u64",
    "F8_E4M3": "fp8_e4m3",
    "F8_E5M2": "fp8_e5m2",
}
_CODES = {name: code for code, name in DTYPES.items()}


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file, by name: read-only views of the mapped file, of which nothing is read
    yet.

    Raises:
        FileFormatError: a file that is truncated or whose header is wrong, with the rule and the
            value.
        FileNotFoundError: there is no such file.
        ArgumentError: `path` is no path.

    Example:
        >>> import numpy as np, tempfile
        >>> path = tempfile.mkdtemp() + "/model.safetensors"
        >>> save_safetensors({"w": np.arange(3, dtype=np.float32)}, path)
        >>> load_safetensors(path)
        {'w': tensor([0., 1., 2.])}
    """
    mapped, entries, _, start = _open(path)
    found = {}
    for name, (code, shape, first, _) in entries.items():
        dtype = dtype_named(DTYPES[code]).numpy
        offset = start + first
        if offset % dtype.itemsize:  # allowed by the format, but kernels want aligned elements
            raw = np.frombuffer(
                bytes(mapped[offset : offset + math.prod(shape) * dtype.itemsize]), dtype
            )
        else:
            raw = np.frombuffer(mapped, dtype, math.prod(shape), offset)
        found[name] = as_tensor(raw.reshape(shape))
    return found


def safetensors_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The `__metadata__` of a file; empty if it has none.

    Raises:
        FileFormatError: as `load_safetensors`.

    Example:
        >>> import numpy as np, tempfile
        >>> path = tempfile.mkdtemp() + "/model.safetensors"
        >>> save_safetensors({"w": np.zeros(3)}, path, {"made by": "hand"})
        >>> safetensors_metadata(path)
        {'made by': 'hand'}
    """
    return _open(path)[2]


Entry = tuple[str, tuple[int, ...], int, int]


def _open(path: str | os.PathLike[str]) -> tuple[mmap.mmap, dict[str, Entry], dict[str, str], int]:
    """The mapped file, its checked entries (dtype, shape, first byte, last byte), metadata, where
    data start.
    """

    def refuse(rule: str, hint: str = DAMAGED) -> NoReturn:
        raise FileFormatError(f"{os.fspath(path)}: {rule}", hint=hint)

    with open(arguments.path("path", path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            refuse(
                f"a safetensors file begins with 8 bytes of header length, but it has {size} bytes"
            )
        length = int.from_bytes(file.read(8), "little")
        if length > MOST_HEADER:
            refuse(f"the header would have {length} bytes; at most {MOST_HEADER} are allowed")
        if 8 + length > size:
            refuse(f"the header would have {length} bytes, but only {size - 8} follow its length")
        raw = file.read(length)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header = _parsed(raw, refuse)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        refuse("__metadata__ must map texts to texts")
    entries = {name: _entry(name, item, size - 8 - length, refuse) for name, item in header.items()}
    _check_cover(entries, size - 8 - length, refuse)
    return mapped, entries, metadata, 8 + length


def _parsed(raw: bytes, refuse: Any) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            names = [k for k, _ in pairs]
            refuse(f"the header names {next(k for k in names if names.count(k) > 1)!r} twice")
        return out

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        refuse(f"the header is no JSON text: {error}")
    if not isinstance(header, dict):
        refuse(f"the header must be a JSON object, not {type(header).__name__}")
    return header


def _natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _entry(name: str, item: Any, available: int, refuse: Any) -> Entry:
    if not isinstance(item, dict) or set(item) != {"dtype", "shape", "data_offsets"}:
        refuse(
            f"the entry of tensor {name!r} must have dtype, shape and data_offsets, and "
            "nothing else"
        )
    code, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        refuse(f"tensor {name!r} has the dtype {code!r}", f"cubepy reads {', '.join(DTYPES)}")
    if not isinstance(shape, list) or not all(map(_natural, shape)):
        refuse(f"tensor {name!r} has the shape {shape!r}; expected a list of lengths")
    if len(shape) > 64:
        refuse(f"tensor {name!r} has rank {len(shape)}; at most 64 is possible")
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(map(_natural, offsets))
        or offsets[0] > offsets[1]
    ):
        refuse(
            f"tensor {name!r} has the data_offsets {offsets!r}; expected [begin, end] with "
            "begin <= end"
        )
    if offsets[1] > available:
        refuse(
            f"tensor {name!r} ends at byte {offsets[1]} of the data, but there are "
            f"{available} bytes"
        )
    need = math.prod(shape) * dtype_named(DTYPES[code]).itemsize
    if need != offsets[1] - offsets[0]:
        refuse(
            f"tensor {name!r} is {code} {shape}, {need} bytes, but its data_offsets {offsets} hold "
            f"{offsets[1] - offsets[0]}"
        )
    if any(n > 2**62 for n in shape):
        refuse(f"tensor {name!r} has the shape {shape!r}, which no array can have")
    return code, tuple(shape), offsets[0], offsets[1]


def _check_cover(entries: dict[str, Entry], available: int, refuse: Any) -> None:
    """The tensors must cover the data without overlaps and gaps: nothing hides in a file."""
    end, before = 0, ""
    for name, (_, _, first, last) in sorted(entries.items(), key=lambda e: e[1][2:]):
        if first < end:
            refuse(
                f"tensor {name!r} begins at byte {first}, inside tensor {before!r}, which "
                f"ends at {end}"
            )
        if first > end:
            refuse(f"{first - end} bytes before tensor {name!r} belong to no tensor")
        end, before = last, name
    if end != available:
        refuse(f"{available - end} bytes at the end belong to no tensor")


def save_safetensors(
    tensors: Mapping[str, Any],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors (or arrays) to a file that appears whole or not at all.

    Args:
        tensors: by name; strided ones are written in C order.
        path: of the file; an existing one is replaced.
        metadata: texts by name.

    Raises:
        FileFormatError: a name, dtype or metadata that the format cannot hold.
        ArgumentError: `tensors` or `metadata` is no mapping, `path` no path.
        FileNotFoundError, IsADirectoryError: there is no folder to write in, or the path is one.

    Example:
        >>> import numpy as np, tempfile
        >>> path = tempfile.mkdtemp() + "/model.safetensors"
        >>> save_safetensors({"w": np.eye(2, dtype=np.float32)}, path)
        >>> load_safetensors(path)["w"].shape
        (2, 2)
    """
    if not isinstance(tensors, Mapping):
        raise ArgumentError(
            f"tensors must map names to tensors, not {shown(tensors)}", hint="model.state_dict()"
        )
    target = arguments.path("path", path)
    arrays = {name: _writable(name, value) for name, value in tensors.items()}
    metadata = texts_of(metadata)
    order = sorted(
        arrays, key=lambda name: (-arrays[name].itemsize, name)
    )  # wide ones first: all stay aligned
    offsets, at = {}, 0
    for name in order:
        offsets[name] = [at, at + arrays[name].nbytes]
        at = offsets[name][1]
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    for name, array in arrays.items():
        code = _CODES[as_dtype(array.dtype).name]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": offsets[name]}
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    raw += b" " * (-len(raw) % 8)
    with whole_file(target) as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for name in order:
            file.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def texts_of(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The texts to store with tensors.

    Raises:
        ArgumentError: this is no mapping.
        FileFormatError: it holds something else than texts.

    Example:
        >>> texts_of("made by hand")
        Traceback (most recent call last):
            ...
        cubepy.errors.ArgumentError: metadata must map texts to texts, not 'made by hand'
          Hint: write metadata={"name": "text"}
    """
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ArgumentError(
            f"metadata must map texts to texts, not {shown(metadata)}",
            hint='write metadata={"name": "text"}',
        )
    texts = dict(metadata or {})
    if not all(isinstance(x, str) for pair in texts.items() for x in pair):
        raise FileFormatError(
            f"metadata must map texts to texts, not {shown(texts)}",
            hint="json.dumps(value) makes a text of any value",
        )
    return texts


def _writable(name: Any, value: Any) -> np.ndarray:
    if not isinstance(name, str) or name == "__metadata__":
        raise FileFormatError(f"{name!r} cannot be the name of a tensor in a safetensors file")
    tensor = as_tensor(value)
    if tensor.storage.kind != "dense":
        raise FileFormatError(
            f"tensor {name!r} has {tensor.storage.kind} storage, which is more than one array",
            hint="save quantized models with cb.quant.save(model, path)",
        )
    if tensor.dtype.name not in _CODES:
        raise FileFormatError(
            f"tensor {name!r} has the dtype {tensor.dtype.name}, which the format does not know",
            hint=f"it knows {', '.join(d.name for d in ALL if d.name in _CODES)}",
        )
    return tensor.numpy()
