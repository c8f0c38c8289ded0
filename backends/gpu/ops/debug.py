"""Printing from a GPU whose driver has no printf: the values are left for the host."""

from __future__ import annotations

from typing import Any

from numba.core import errors, types

from cubepy.backends.gpu.prints import WORDS
from cubepy.backends.llvm.ops.memory.elements import pointer
from cubepy.backends.llvm.ops.numbers.convert import convert
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I64, described, is_float, is_signed


@op
def print_values(said: Any, site: Any, *values: Any) -> Any:
    """`print_values(said, site, *values)`: leave the number of a site, and the values as words of
    64 bits, behind those of other units (see `gpu.prints`).
    """
    dtypes = [described(v) for v in values]
    if any(lanes for _, lanes in dtypes):
        raise errors.TypingError("print_values prints scalars; extract the lanes of a line")

    def emit(b: Any, at: Any, number: Any, *args: Any) -> None:
        words = [number]
        for v, (d, _) in zip(args, dtypes, strict=True):
            if is_float(d):
                words.append(b.bitcast(convert(b, v, d, "f64"), I64))
            else:
                words.append(convert(b, v, d, "i64" if is_signed(d) else "u64"))
        first = b.add(b.atomic_rmw("add", at, I64(len(words)), "monotonic"), I64(1))
        room = b.icmp_unsigned("<=", first, I64(WORDS - len(words)))
        with b.if_then(room):
            for k, word in enumerate(words):
                b.store(word, b.gep(at, [b.add(first, I64(k))]), align=8)

    plain = [types.unliteral(v) for v in values]
    return types.void(pointer(said), types.int64, *plain), emit
