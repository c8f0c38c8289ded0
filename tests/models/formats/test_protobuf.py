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


LISTS = st.lists(
    st.one_of(
        st.tuples(st.just("many"), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60)),
        st.tuples(st.just("many"), st.lists(st.sampled_from([0, 16, 29, 127, 128]), max_size=900)),
        st.tuples(st.just("half"), st.lists(st.floats(width=32, allow_nan=False), max_size=400)),
        st.tuples(st.just("one"), st.integers(0, 300)),
        st.tuples(st.just("name"), st.text(max_size=9)),
    ),
    max_size=6,
)


@given(LISTS, st.integers(0, 40))
def test_many_numbers_one_after_the_other_are_read_together(parts: list, cut: int) -> None:
    """As one after the other, whatever is before, behind or between; cut off they are an error, or
    what is there.
    """
    numbers = {field.name: k for k, field in SCHEMAS["a"].items()}
    data, right = b"", {}
    for name, given_ in parts:
        data += b"".join(
            writer.field(numbers[name], v)
            for v in (given_ if isinstance(given_, list) else [given_])
        )
        if not isinstance(given_, list):
            right[name] = given_
        elif given_:
            right[name] = [*right.get(name, []), *given_]

    found = read(data)

    assert {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.items()} == right
    data = data[: len(data) - cut]
    try:
        one_by_one = [
            (n, bytes(v) if isinstance(v, memoryview) else v)
            for n, _, v in fields(memoryview(data))
        ]
    except FileFormatError:
        with pytest.raises(FileFormatError):
            read(data)
    else:
        count = sum(n == 2 for n, _ in one_by_one)
        assert len(read(data).get("many", [])) == count


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
