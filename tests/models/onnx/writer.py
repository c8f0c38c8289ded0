"""Writes small ONNX files: just enough of protobuf to have something to read."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from cubepy.models.formats.onnx_schema import CODES


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: Any) -> bytes:
    """A field of a number, bytes, text or float."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, (int, np.integer)):
        return varint(number << 3) + varint(int(value))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(number: int, values: Any) -> bytes:
    return b"".join(field(number, v) for v in values)


def entry(key: str, value: str) -> bytes:
    return field(1, key) + field(2, value)


def tensor(name: str, array: Any, raw: bool = True) -> bytes:
    """A tensor whose elements are raw; else (f32, i64) typed and packed."""
    array = np.asarray(array)
    code = CODES[array.dtype]
    start = fields(1, array.shape) + field(2, code) + field(8, name)
    if array.dtype == object:
        return start + fields(6, [str(v).encode() for v in array.reshape(-1)])
    if array.dtype.name in ("int4", "uint4"):
        codes = array.reshape(-1).astype(np.int16).astype(np.uint8) & 15
        codes = np.append(codes, np.zeros(len(codes) % 2, np.uint8))
        return start + field(9, (codes[::2] | codes[1::2] << 4).tobytes())
    if raw:
        return start + field(9, np.ascontiguousarray(array).tobytes())
    if array.dtype == np.float32:
        return start + field(4, array.tobytes())
    return start + field(7, b"".join(varint(int(v)) for v in array.reshape(-1)))


def external(name: str, shape: tuple[int, ...], dtype: Any, **said: str) -> bytes:
    """A tensor whose elements are in another file."""
    start = fields(1, shape) + field(2, CODES[np.dtype(dtype)]) + field(8, name)
    return start + b"".join(field(13, entry(k, v)) for k, v in said.items()) + field(14, 1)


class Graph(bytes):
    """A graph, where an attribute may be one."""


def attribute(name: str, value: Any) -> bytes:
    start = field(1, name)
    if isinstance(value, Graph):
        return start + field(6, bytes(value)) + field(20, 5)
    if isinstance(value, np.ndarray):
        return start + field(5, tensor("", value)) + field(20, 4)
    if isinstance(value, str):
        return start + field(4, value) + field(20, 3)
    if isinstance(value, float):
        return start + field(2, value) + field(20, 1)
    if isinstance(value, int):
        return start + field(3, value) + field(20, 2)
    if all(isinstance(v, int) for v in value):
        return start + fields(8, value) + field(20, 7)
    if all(isinstance(v, str) for v in value):
        return start + fields(9, value) + field(20, 8)
    return start + fields(7, value) + field(20, 6)


def node(op: str, inputs: str, outputs: str, domain: str = "", name: str = "", **how: Any) -> bytes:
    """A node; names are separated by spaces, `_` is an absent one."""
    names = ["" if n == "_" else n for n in inputs.split()]
    made = (
        fields(1, names)
        + fields(2, ["" if n == "_" else n for n in outputs.split()])
        + field(3, name)
        + field(4, op)
    )
    made += b"".join(field(5, attribute(k, v)) for k, v in how.items())
    return made + (field(7, domain) if domain else b"")


def value(name: str, dtype: Any = np.float32, shape: Any = None) -> bytes:
    """A value with its type; texts in the shape are lengths that are open."""
    inner = field(1, CODES[np.dtype(dtype)])
    if shape is not None:
        dims = [field(2, n) if isinstance(n, str) else field(1, n) for n in shape]
        inner += field(2, fields(1, dims))
    return field(1, name) + field(2, field(1, inner))


def map_value(name: str, keys: Any, values: Any) -> bytes:
    """A map with its types."""
    inner = field(1, field(1, CODES[np.dtype(values)]))
    return field(1, name) + field(2, field(5, field(1, CODES[np.dtype(keys)]) + field(2, inner)))


def graph(
    nodes: list[bytes], inputs: list[Any], outputs: list[Any], weights: list[bytes] = ()
) -> Graph:
    """A graph; inputs and outputs are names of f32 tensors, or what `value` gives."""
    made = fields(1, nodes) + field(2, "g") + fields(5, weights)
    made += fields(11, [value(i) if isinstance(i, str) else i for i in inputs])
    made += fields(12, [value(o) if isinstance(o, str) else o for o in outputs])
    return Graph(made)


def model(made: bytes, opset: int = 17, ir: int = 8, more: bytes = b"", **domains: int) -> bytes:
    """A file."""
    sets = field(8, field(2, opset))
    for name, version in domains.items():
        sets += field(8, field(1, name.replace("_", ".")) + field(2, version))
    return field(1, ir) + field(2, "tests") + sets + field(7, bytes(made)) + more
