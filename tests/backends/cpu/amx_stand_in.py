"""`cb.tile_dot` without a matrix unit: the function that the op calls, written with dot products of
lines.

`python -m tests.backends.cpu.amx_stand_in` multiplies matrices with it; a process of its own, since
the kernels that it compiles are not those of this machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from llvmlite import ir
from numba.core import cgutils

from cubepy import kernels as K
from cubepy.backends.cpu import backend
from cubepy.backends.llvm.ops import amx
from cubepy.backends.llvm.ops.lines import pairs
from cubepy.backends.llvm.ops.numbers import integer
from cubepy.backends.llvm.ops.types import F32, I8, I32, I64, Line

LANES = 16


def _added(b: Any, kind: str, total: Any, word: Any, line: Any) -> Any:
    """One step of 16 sums: a word of a times 16 words of b."""
    spread = b.shuffle_vector(
        b.insert_element(ir.Constant(line.type, ir.Undefined), word, I32(0)),
        ir.Constant(line.type, ir.Undefined),
        ir.Constant(ir.VectorType(I32, LANES), [0] * LANES),
    )
    words = Line("u32", LANES)
    if kind == "bf16":
        return pairs.dot_bf16._define(Line("f32", LANES), words, words)[1](b, total, spread, line)
    bytes_ = ir.VectorType(I8, 4 * LANES)
    first, second = (line, spread) if kind == "i8" else (spread, line)
    dot = integer.dot_i8._define(Line("i32", LANES), Line("u8", 4 * LANES), Line("i8", 4 * LANES))[
        1
    ]
    return dot(b, total, b.bitcast(first, bytes_), b.bitcast(second, bytes_))


def written(module: ir.Module, kind: str) -> ir.Function:
    """What `amx.tile_function` gives, for any CPU."""
    name = f"stand_in_{kind}"
    if name in module.globals:
        return module.globals[name]
    bytes_ = I8.as_pointer()
    function = ir.Function(
        module,
        ir.FunctionType(ir.VoidType(), [bytes_, I64, I64, bytes_, I64, bytes_, I64, I64]),
        name,
    )
    function.linkage = "internal"
    sums, pitch, rows, a, a_pitch, right, b_pitch, words = function.args
    b = ir.IRBuilder(function.append_basic_block())
    line = ir.VectorType(I32, LANES)
    total = ir.VectorType(F32 if kind == "bf16" else I32, LANES)

    def at(base: Any, offset: Any, of: Any) -> Any:
        return b.bitcast(b.gep(base, [offset]), of.as_pointer())

    with (
        cgutils.for_range(b, rows, intp=I64) as row,
        cgutils.for_range(b, I64(2), intp=I64) as half,
    ):
        side = b.mul(half.index, I64(4 * LANES))
        place = at(sums, b.add(b.mul(row.index, pitch), side), total)
        b.store(ir.Constant(total, None), place, align=4)
        with cgutils.for_range(b, words, intp=I64) as k:
            word = b.load(
                at(a, b.add(b.mul(row.index, a_pitch), b.mul(k.index, I64(4))), I32), align=4
            )
            other = b.load(at(right, b.add(b.mul(k.index, b_pitch), side), line), align=4)
            b.store(_added(b, kind, b.load(place, align=4), word, other), place, align=4)
    b.ret_void()
    return function


def compare() -> None:
    """Compare products of every kind and awkward shapes with NumPy's."""
    rng = np.random.default_rng(0)
    for m, k, n in ((33, 41, 50), (3, 7, 9), (300, 130, 260), (40, 4100, 36), (1100, 150, 200)):
        a, b = rng.standard_normal((m, k)), rng.standard_normal((n, k))
        x, y = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16).T
        want = x.astype(np.float64) @ y.astype(np.float64)
        for right in (y, np.ascontiguousarray(y)):
            got = np.asarray(K.matmul(x, right)).astype(np.float64)
            assert np.abs(got - want).max() <= 2**-8 * np.abs(want).max(), ("bf16", m, k, n)
        for dtype in (np.int8, np.uint8):
            low = np.iinfo(dtype).min
            x, y = (
                rng.integers(low, low + 256, (m, k)).astype(dtype),
                rng.integers(-128, 128, (k, n)).astype(np.int8),
            )
            got = K.matmul(x, y, dtype="i32")
            assert np.array_equal(got, x.astype(np.int32) @ y.astype(np.int32)), (
                dtype.__name__,
                m,
                k,
                n,
            )


if __name__ == "__main__":
    properties = replace(backend._properties(), features=backend._properties().features | {"tiles"})
    backend._properties = lambda: properties
    amx.tile_function = written
    compare()
    print("equal")
