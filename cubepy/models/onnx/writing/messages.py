"""Messages of onnx.proto as bytes: fields one after the other, in protobuf's wire format."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cubepy.models.formats.onnx_schema import CODES

IR_VERSION, OPSET = 10, 21


def varint(value: int) -> bytes:
    """An integer in groups of seven bits, low ones first; a negative one has 64 bits.

    Example:
        >>> varint(300).hex()
        'ac02'
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field that is an integer."""
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes | str) -> bytes:
    """A field of bytes: a text, or a message."""
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def blocks(field: int, many: Iterable[bytes | str]) -> bytes:
    """A field that is repeated."""
    return b"".join(block(field, one) for one in many)


def tensor(name: str, array: np.ndarray) -> bytes:
    """A tensor with its elements as they are in memory."""
    dims = b"".join(number(1, n) for n in array.shape)
    head = dims + number(2, CODES[array.dtype]) + block(8, name)
    return head + block(9, np.ascontiguousarray(array).tobytes())


def value_info(name: str, dtype: np.dtype, shape: Sequence[int]) -> bytes:
    """An input or output."""
    lengths = b"".join(block(1, number(1, n)) for n in shape)
    kind = number(1, CODES[dtype]) + block(2, lengths)
    return block(1, name) + block(2, block(1, kind))


def attribute(name: str, value: Any) -> bytes:
    """An attribute: an integer, float, text, tensor, graph, or several integers or floats."""
    head = block(1, name)
    if isinstance(value, bytes):
        return head + block(6, value) + number(20, 5)
    if isinstance(value, np.ndarray):
        return head + block(5, tensor("", value)) + number(20, 4)
    if isinstance(value, str):
        return head + block(4, value) + number(20, 3)
    if isinstance(value, float):
        return head + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, (int, np.integer)):
        return head + number(3, int(value)) + number(20, 2)
    if any(isinstance(v, float) for v in value):
        floats = b"".join(varint(7 << 3 | 5) + struct.pack("<f", v) for v in value)
        return head + floats + number(20, 6)
    return head + b"".join(number(8, int(v)) for v in value) + number(20, 7)


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], attributes: dict[str, Any], name: str
) -> bytes:
    """An operator of the default domain."""
    head = blocks(1, inputs) + blocks(2, outputs) + block(3, name) + block(4, op)
    return head + blocks(5, [attribute(k, v) for k, v in attributes.items()])


def graph(
    nodes: Sequence[bytes],
    weights: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
) -> list[bytes]:
    """A graph, in pieces."""
    pieces = [block(1, one) for one in nodes]
    pieces.append(block(2, "graph"))
    pieces += [block(5, one) for one in weights]
    pieces += [block(11, one) for one in inputs]
    return pieces + [block(12, one) for one in outputs]


def model(pieces: Sequence[bytes], producer: str) -> list[bytes]:
    """A file of a graph in pieces, in pieces."""
    length = sum(map(len, pieces))
    head = number(1, IR_VERSION) + block(2, "cubepy") + block(3, producer)
    return [head, varint(7 << 3 | 2) + varint(length), *pieces, block(8, number(2, OPSET))]
