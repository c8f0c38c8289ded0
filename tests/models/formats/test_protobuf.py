"""The reader of protobuf messages: what is there, and what files may lie about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubepy.errors import FileFormatError
from cubepy.models.formats.protobuf import FEW, Field, fields, message, packed, varint
from tests.models.onnx import writer

SCHEMAS = {
    "a": {
        1: Field("one", "int"),
        2: Field("many", "int", True),
        3: Field("half", "float", True),
        4: Field("name", "text"),
        5: Field("inner", "a", True),
        6: Field("wide", "double"),
    }
}


def read(data: bytes) -> dict:
    return message(memoryview(data), SCHEMAS, "a")


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=200))
def test_packed_numbers_are_those_that_were_written(numbers: list[int]) -> None:
    raw = b"".join(map(writer.varint, numbers))

    found = packed(memoryview(raw)).view(np.int64)

    assert found.tolist() == numbers
    assert all(varint(memoryview(writer.varint(n)), 0)[0] == n % 2**64 for n in numbers)


def test_numbers_that_repeat_may_be_packed_or_not() -> None:
    single = writer.field(2, 5) + writer.field(2, -7)
    together = writer.field(2, writer.varint(5) + writer.varint(-7))

    assert read(single)["many"].tolist() == read(together)["many"].tolist() == [5, -7]
    assert read(single + together)["many"].tolist() == [5, -7, 5, -7]


def test_the_last_of_several_values_counts_and_unknown_fields_are_skipped() -> None:
    data = writer.field(1, 3) + writer.field(99, b"whatever") + writer.field(1, 4)

    assert read(data) == {"one": 4}


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"\x80", "is cut off"),
        (b"\x08" + b"\xff" * 11, "more than ten bytes"),
        (writer.varint(4 << 3 | 2) + writer.varint(2**62) + b"x", "are left"),
        (b"\x0b", "wire type 3"),
        (b"\x02\x00", "field 0"),
        (writer.field(4, b"\xff\xfe"), "no UTF-8"),
        (writer.field(1, 1.0), "a.one has the wire type 5"),
        (writer.field(3, b"12345"), "no multiple of 4"),
        (writer.field(2, b"\x80" * (FEW + 1)), "cut off"),
        (writer.field(2, b"\x80" * FEW + b"\x80" * 9 + b"\x01"), "more than ten bytes"),
        (writer.field(5, 7), "expected bytes"),
    ],
)
def test_damage_is_an_error_that_names_the_rule(data: bytes, rule: str) -> None:
    with pytest.raises(FileFormatError, match=rule):
        read(data)


def test_messages_are_not_nested_without_end() -> None:
    data = b""
    for _ in range(300):
        data = writer.field(5, data)

    with pytest.raises(FileFormatError, match="nested more than"):
        read(data)


@given(st.binary(max_size=120))
def test_any_bytes_are_fields_or_an_error(data: bytes) -> None:
    try:
        found = list(fields(memoryview(data)))
    except FileFormatError:
        return
    assert sum(len(v) if w in (1, 2, 5) else 1 for _, w, v in found) <= len(data)
