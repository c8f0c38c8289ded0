"""Protocol Buffers as they lie in memory: fields of a message, read without a generated class.

A message is a run of fields, each a key (number << 3 | wire type) and what the wire type says: a
varint, 8 bytes, a length with so many bytes, 4 bytes. A *schema* maps field numbers to names and
kinds; what it does not name is skipped. Bytes stay views of the buffer. A length is compared with
what is there before anything is made of it, so a file that lies costs no memory.
Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from cubepy.errors import FileFormatError

DEEPEST = 128
"""Messages inside messages; protobuf's own libraries stop at 100."""
DAMAGED = "the file is damaged, cut off, or of another format; fetch or export it again"
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
MANY = 16
"""Fields with one key after which the next ones are looked at together."""
FEW = 64
"""Bytes of packed numbers up to which a plain loop is quicker than NumPy."""


class Field(NamedTuple):
    """What a field number of a schema stands for.

    Attributes:
        name: in the message that is read.
        kind: ``int``, ``uint``, ``float``, ``double``, ``bytes``, ``text`` or a schema's name.
        repeated: whether there may be several.
    """

    name: str
    kind: str
    repeated: bool = False


Schema = dict[int, Field]


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number of 64 bits that begins at a byte, and the byte behind it.

    Raises:
        FileFormatError: the data end in it, or it is longer than ten bytes.

    Example:
        >>> varint(memoryview(bytes([172, 2, 9])), 0)
        (300, 2)
    """
    result = shift = 0
    for k in range(at, min(at + 10, len(data))):
        byte = data[k]
        result |= (byte & 127) << shift
        if byte < 128:
            return result & 0xFFFFFFFFFFFFFFFF, k + 1
        shift += 7
    rule = "has more than ten bytes" if at + 10 <= len(data) else "is cut off"
    raise FileFormatError(f"a number at byte {at} of a message {rule}", hint=DAMAGED)


def fields(data: memoryview, listed: Collection[int] = ()) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) of each field of a message; bytes are views. Numbers of fields
    whose keys are `listed` may come together, packed, where many are one after the other.

    Raises:
        FileFormatError: a field that ends behind the data, or has an unknown wire type.

    Example:
        >>> [(n, w, bytes(v)) for n, w, v in fields(memoryview(b"\\x0a\\x02hi"))]
        [(1, 2, b'hi')]
    """
    at, end, last, alike = 0, len(data), -1, 0
    while at < end:
        begin = at
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        alike = alike + 1 if key == last else 0
        last = key
        if alike >= MANY and key in listed:
            numbers, at = _alike(data, begin, key)
            alike = 0
            if len(numbers):
                yield number, BYTES, numbers
                continue
            at = begin + 1
        if wire == VARINT:
            value, at = varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, at = varint(data, at)
        elif wire == EIGHT or wire == FOUR:
            length = 8 if wire == EIGHT else 4
        else:
            raise FileFormatError(
                f"field {number} at byte {at} of a message has the wire type {wire}; "
                "0, 1, 2 and 5 are possible",
                hint=DAMAGED,
            )
        if not number:
            raise FileFormatError(f"field 0 at byte {at} of a message", hint=DAMAGED)
        if length > end - at:
            raise FileFormatError(
                f"field {number} at byte {at} of a message would have {length} bytes, but "
                f"{end - at} are left",
                hint=DAMAGED,
            )
        yield number, wire, data[at : at + length]
        at += length


def _alike(data: memoryview, at: int, key: int) -> tuple[memoryview, int]:
    """Numbers of fields with one key of a byte, one after the other, without the keys, and the byte
    behind them; a window of data grows as long as it holds nothing else.
    """
    width = {FOUR: 5, EIGHT: 9}.get(key & 7)
    size = 1024
    while True:
        raw = np.frombuffer(data[at : at + size], np.uint8)
        if width is not None:
            whole = len(raw) // width
            here = raw[: whole * width].reshape(whole, width)
            known = here[:, 0] == key
            count = whole if known.all() else int(known.argmin())
            kept, used = here[:count, 1:], count * width
        else:
            ends = np.flatnonzero(raw < 128)  # of keys and of numbers, in turns
            ends = ends[: len(ends) // 2 * 2]
            keys, numbers = ends[::2], ends[1::2]
            whole = len(keys)
            known = (raw[keys] == key) & (keys == np.concatenate([[0], numbers[:-1] + 1]))
            count = whole if known.all() else int(known.argmin())
            used = int(numbers[count - 1]) + 1 if count else 0
            mask = np.ones(used, bool)
            mask[keys[:count]] = False
            kept = raw[:used][mask]
        if count < whole or at + size >= len(data):
            return memoryview(kept.tobytes()), at + used
        size *= 4


def packed(data: memoryview) -> np.ndarray:
    """Varints one after another, as 64-bit integers without signs.

    Raises:
        FileFormatError: the last one is cut off, or one is longer than ten bytes.

    Example:
        >>> packed(memoryview(bytes([1, 172, 2]))).tolist()
        [1, 300]
    """
    if len(data) <= FEW:
        found, at = [], 0
        while at < len(data):
            value, at = varint(data, at)
            found.append(value)
        return np.array(found, np.uint64)
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise FileFormatError("a list of packed numbers is cut off", hint=DAMAGED)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > 10:
        raise FileFormatError("a packed number has more than ten bytes", hint=DAMAGED)
    result = np.zeros(len(ends), np.uint64)
    for k in range(longest):
        more = lengths > k
        septets = (raw[starts[more] + k] & 127).astype(np.uint64)
        result[more] |= septets << np.uint64(7 * k)
    return result


def message(
    data: memoryview, schemas: dict[str, Schema], kind: str, depth: int = 0
) -> dict[str, Any]:
    """A message and those inside it: the fields that its schema names, where they are there.

    Numbers that repeat are arrays, all else that repeats are lists.

    Raises:
        FileFormatError: a message that is cut off, lies about lengths, is nested too deeply, or
            has another wire type than its schema.

    Example:
        >>> schemas = {"point": {1: Field("name", "text"), 2: Field("at", "int", True)}}
        >>> found = message(memoryview(b"\\x0a\\x01p\\x12\\x02\\x05\\x07"), schemas, "point")
        >>> found["name"], found["at"].tolist()
        ('p', [5, 7])
    """
    if depth > DEEPEST:
        raise FileFormatError(f"messages are nested more than {DEEPEST} deep", hint=DAMAGED)
    schema = schemas[kind]
    found: dict[str, Any] = {}
    for number, wire, value in fields(data, _listed(schema)):
        field = schema.get(number)
        if field is None:
            continue
        if field.kind in ("int", "uint", "float", "double"):
            parts = _numbers(kind, field, wire, value)
            if field.repeated:
                found.setdefault(field.name, []).append(parts)
            elif len(parts):
                found[field.name] = parts[-1].item()
            continue
        if wire != BYTES:
            raise FileFormatError(
                f"{kind}.{field.name} has the wire type {wire}; expected bytes", hint=DAMAGED
            )
        if field.kind == "text":
            value = text(value, f"{kind}.{field.name}")
        elif field.kind != "bytes":
            value = message(value, schemas, field.kind, depth + 1)
        if field.repeated:
            found.setdefault(field.name, []).append(value)
        else:
            found[field.name] = value
    for field in schema.values():
        if field.repeated and field.kind in WIRES and field.name in found:
            parts = found[field.name]
            found[field.name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return found


WIRES: dict[str, tuple[int, np.dtype]] = {
    "int": (VARINT, np.dtype(np.int64)),
    "uint": (VARINT, np.dtype(np.uint64)),
    "float": (FOUR, np.dtype("<f4")),
    "double": (EIGHT, np.dtype("<f8")),
}


_keys: dict[int, tuple[Schema, frozenset[int]]] = {}


def _listed(schema: Schema) -> frozenset[int]:
    """Keys of a byte of a schema's fields of numbers that repeat."""
    found = _keys.get(id(schema))
    if found is None:
        keys = frozenset(
            number << 3 | WIRES[field.kind][0]
            for number, field in schema.items()
            if field.repeated and field.kind in WIRES and number < 16
        )
        found = _keys[id(schema)] = schema, keys
    return found[1]


def _numbers(kind: str, field: Field, wire: int, value: Any) -> np.ndarray:
    """The numbers of one occurrence of a field: one, or several that are packed."""
    expected, dtype = WIRES[field.kind]
    if wire == BYTES:
        if expected == VARINT:
            return packed(value).view(dtype)
        if len(value) % dtype.itemsize:
            raise FileFormatError(
                f"{kind}.{field.name} has {len(value)} bytes, which are no multiple of "
                f"{dtype.itemsize}",
                hint=DAMAGED,
            )
        return np.frombuffer(value, dtype)
    if wire != expected:
        raise FileFormatError(
            f"{kind}.{field.name} has the wire type {wire}; expected {expected}", hint=DAMAGED
        )
    if wire == VARINT:
        return np.array([value], np.uint64).view(dtype)
    return np.array(struct.unpack("<f" if wire == FOUR else "<d", value), dtype)


def text(value: memoryview, what: str) -> str:
    """Bytes as UTF-8.

    Raises:
        FileFormatError: they are something else.
    """
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{what} is no UTF-8 text: {error}", hint=DAMAGED) from None
