"""Parameters of a kernel's entry point: words of 64 bits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

_i32, _i64 = ir.IntType(32), ir.IntType(64)


def number(builder: Any, word: Any, value_type: Any, kind: str) -> Any:
    """A word as a number of a kind: f32 lies in the low half of its word."""
    if kind == "f64":
        return builder.bitcast(word, value_type)
    if kind == "f32":
        return builder.bitcast(builder.trunc(word, _i32), value_type)
    if kind == "bool_":
        return builder.icmp_unsigned("!=", word, ir.Constant(_i64, 0))
    return word if value_type == _i64 else builder.trunc(word, value_type)
