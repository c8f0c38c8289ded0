"""`cb.tile_dot` without a matrix unit: the instructions that its function is made of, written with
loops, so that all else of it runs on any CPU.

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

import cubepy as cb
from cubepy import kernels as K
from cubepy.backends.cpu import backend
from cubepy.backends.llvm.ops import amx
from cubepy.backends.llvm.ops.types import F32, I8, I16, I32, I64

TILE, TILES, CONFIG = 1024, 8, 64
"""Bytes of a tile, tiles, bytes of the block of shapes, which lies behind them."""
ROWS, SIZES = 48, 16
"""Where the block has the rows of tiles, and the bytes of their rows."""
BYTES, TRAP = I8.as_pointer(), ir.FunctionType(ir.VoidType(), [])


class Instruction:
    """A function `(state, ...)` that does what an instruction does, while it is written."""

    def __init__(self, module: ir.Module, name: str, types: list[Any]) -> None:
        kind = ir.FunctionType(ir.VoidType(), [BYTES, *types])
        self.function = ir.Function(module, kind, f"stand_in_{name}")
        self.function.linkage = "internal"
        self.state, *self.given = self.function.args
        self.b = ir.IRBuilder(self.function.append_basic_block())
        if name.startswith("tdp"):
            self.multiply(name)
        else:
            getattr(self, name)(*self.given)
        self.b.ret_void()

    def at(self, base: Any, offset: Any, of: Any) -> Any:
        return self.b.bitcast(self.b.gep(base, [offset]), of.as_pointer())

    def word(self, tile: Any, row: Any, column: Any) -> Any:
        """Where a word of a tile is."""
        b = self.b
        inside = b.add(b.mul(row, I64(64)), b.mul(column, I64(4)))
        return self.at(self.state, b.add(b.mul(b.zext(tile, I64), I64(TILE)), inside), I32)

    def shape(self, tile: Any) -> tuple[Any, Any]:
        """Rows of a tile, and words of a row."""
        b, t = self.b, self.b.zext(tile, I64)
        rows = b.load(self.at(self.state, b.add(t, I64(TILE * TILES + ROWS)), I8))
        at = self.at(self.state, b.add(b.mul(t, I64(2)), I64(TILE * TILES + SIZES)), I16)
        return b.zext(rows, I64), b.lshr(b.zext(b.load(at, align=1), I64), I64(2))

    def refuse(self, wrong: Any) -> None:
        """What an instruction does with shapes that do not fit."""
        with self.b.if_then(wrong):
            self.b.call(cgutils.get_or_insert_function(self.b.module, TRAP, "llvm.trap"), [])

    def ldtilecfg(self, block: Any) -> None:
        with cgutils.for_range(self.b, I64(CONFIG), intp=I64) as k:
            at = self.b.add(k.index, I64(TILE * TILES))
            self.b.store(self.b.load(self.at(block, k.index, I8)), self.at(self.state, at, I8))

    def tilerelease(self) -> None:
        with cgutils.for_range(self.b, I64(CONFIG), intp=I64) as k:
            self.b.store(I8(0), self.at(self.state, self.b.add(k.index, I64(TILE * TILES)), I8))

    def words(self, tile: Any, emit: Any) -> None:
        """`emit(row, column, whether the shape has it)` for all words of a tile."""
        rows, columns = self.shape(tile)
        b = self.b
        with (
            cgutils.for_range(b, I64(16), intp=I64) as row,
            cgutils.for_range(b, I64(16), intp=I64) as column,
        ):
            r, c = row.index, column.index
            emit(r, c, b.and_(b.icmp_signed("<", r, rows), b.icmp_signed("<", c, columns)))

    def tilezero(self, tile: Any) -> None:
        self.words(tile, lambda r, c, there: self.b.store(I32(0), self.word(tile, r, c)))

    def memory(self, base: Any, stride: Any, row: Any, column: Any) -> Any:
        b = self.b
        return self.at(base, b.add(b.mul(row, stride), b.mul(column, I64(4))), I32)

    def tileloadd64(self, tile: Any, base: Any, stride: Any) -> None:
        def emit(r: Any, c: Any, there: Any) -> None:
            b = self.b
            b.store(I32(0), self.word(tile, r, c))
            with b.if_then(there):
                value = b.load(self.memory(base, stride, r, c), align=1)
                b.store(value, self.word(tile, r, c))

        self.words(tile, emit)

    def tilestored64(self, tile: Any, base: Any, stride: Any) -> None:
        def emit(r: Any, c: Any, there: Any) -> None:
            with self.b.if_then(there):
                value = self.b.load(self.word(tile, r, c))
                self.b.store(value, self.memory(base, stride, r, c), align=1)

        self.words(tile, emit)

    def multiply(self, name: str) -> None:
        """The sums of tile 0 and of the products of tiles 1 and 2."""
        b, (total, left, right) = self.b, self.given
        (rows, columns), (left_rows, depth), shape = map(self.shape, self.given)
        for one, other in ((rows, left_rows), (depth, shape[0]), (columns, shape[1])):
            self.refuse(b.icmp_signed("!=", one, other))
        with (
            cgutils.for_range(b, rows, intp=I64) as m,
            cgutils.for_range(b, columns, intp=I64) as n,
            cgutils.for_range(b, depth, intp=I64) as k,
        ):
            at = self.word(total, m.index, n.index)
            words = (
                b.load(self.word(left, m.index, k.index)),
                b.load(self.word(right, k.index, n.index)),
            )
            b.store(self.added(name, b.load(at), *words), at)

    def added(self, name: str, total: Any, x: Any, y: Any) -> Any:
        """A sum, as bits, and the products of two words."""
        b = self.b
        if name == "tdpbf16ps":
            low = [b.bitcast(b.shl(v, I32(16)), F32) for v in (x, y)]
            high = [b.bitcast(b.and_(v, I32(0xFFFF0000)), F32) for v in (x, y)]
            both = b.fadd(b.fmul(*low), b.fmul(*high))
            return b.bitcast(b.fadd(b.bitcast(total, F32), both), I32)
        signed = (b.sext, b.zext) if name == "tdpbsud" else (b.zext, b.sext)
        for part in range(0, 32, 8):
            factors = (
                widen(b.trunc(b.lshr(v, I32(part)), I8), I32)
                for v, widen in zip((x, y), signed, strict=True)
            )
            total = b.add(total, b.mul(*factors))
        return total


class StandIn(amx._Function):
    """The function of a kind, whose tiles lie on its stack."""

    def call(self, name: str, *arguments: Any) -> None:
        values = [I8(v) if isinstance(v, int) else v for v in arguments]
        known = self.module.globals.get(f"stand_in_{name}")
        made = known or Instruction(self.module, name, [v.type for v in values]).function
        self.b.call(made, [self.state, *values])

    def part(self, *given: Any) -> None:
        if not hasattr(self, "state"):
            with self.b.goto_entry_block():
                self.state = self.b.alloca(I8, I64(TILE * TILES + CONFIG))
        super().part(*given)


def written(module: ir.Module, kind: str) -> ir.Function:
    """What `amx.tile_function` gives, for any CPU."""
    name = f"stand_in_{kind}"
    return module.globals.get(name) or StandIn(module, kind, name).function


@cb.kernel
def tile_product(a: cb.Array, b: cb.Array, out: cb.Array, rows, words, kind: cb.Comptime[cb.DType]):
    sums = cb.local((96, 32), out.dtype)
    for i in range(96):
        for j in range(32):
            sums[i, j] = 7
    cb.tile_dot(sums, rows, a, (0, 0), b, (0, 0), words, kind)
    for i in range(96):
        for j in range(32):
            out[i, j] = sums[i, j]


def compare_tiles(rng: np.random.Generator) -> None:
    """Compare the op with NumPy for any rows and words, none too; what is beyond stays as it is."""
    lengths = [(1, 0), (96, 0), (33, 16), *rng.integers(0, 70, (60, 2)).tolist()]
    for rows, words in lengths:
        rows = max(rows, 1)
        for kind in (cb.bf16, cb.i8, cb.u8):
            per = 4 // kind.itemsize
            one, other = {
                cb.bf16: (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
                cb.i8: (np.int8, np.uint8),
                cb.u8: (np.uint8, np.int8),
            }[kind]
            x = rng.integers(-99, 99, (rows, per * words)).astype(one)
            y = rng.integers(-99, 99, (per * words, 32)).astype(other)
            a = np.full((96, words + 3), 0x7F7F7F7F, np.uint32)
            b = np.full((words + 3, 32), 0x7F7F7F7F, np.uint32)
            a[:rows, :words] = np.ascontiguousarray(x).view(np.uint32)
            pairs = y.reshape(words, per, 32).swapaxes(1, 2)
            b[:words] = np.ascontiguousarray(pairs).view(np.uint32).reshape(words, 32)
            out = np.empty((96, 32), np.float32 if kind is cb.bf16 else np.int32)
            tile_product[1, 1](a, b, out, rows, words, kind)
            want = np.full((96, 32), 7.0)
            want[:rows] = x.astype(np.float64) @ y.astype(np.float64)
            assert np.array_equal(out, want), (kind.name, rows, words)


def compare() -> None:
    """Compare products of every kind and awkward shapes with NumPy's."""
    rng = np.random.default_rng(0)
    compare_tiles(rng)
    shapes = (33, 41, 50), (3, 7, 9), (300, 130, 260), (40, 4100, 36), (1100, 150, 200), (5, 0, 9)
    for m, k, n in shapes:
        a, b = rng.standard_normal((m, k)), rng.standard_normal((n, k))
        x, y = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16).T
        want = x.astype(np.float64) @ y.astype(np.float64)
        for right in (y, np.ascontiguousarray(y), K.prepack(y), K.prepack(np.ascontiguousarray(y))):
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
