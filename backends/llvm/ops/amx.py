"""Products of tiles in memory by a CPU's matrix unit (Intel's AMX: eight tiles of 16 rows of 64
bytes).

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18. Two
tiles of a and two of b make four of the sums, so each that is loaded is used twice; a step takes 16
words along the depth. The shapes of the tiles are set by a block of 64 bytes: where rows or words
are fewer than a tile, nothing beyond them is read. Setting them takes as long as two steps, so rows
are many to a call.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, errors, types

from cubepy.backends.llvm.ops.memory.elements import pointer
from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import I1, I8, I16, I32, I64, literal

INSTRUCTIONS = {"bf16": "tdpbf16ps", "i8": "tdpbsud", "u8": "tdpbusd"}
"""By the elements of a; bytes of b have the other sign."""
SIDE = 16  # rows of a tile, and words of a row
LINE = 4 * SIDE  # bytes of a row
BLOCK = 2 * SIDE  # rows that are multiplied at a time
SUMS, LEFT, RIGHT = (0, 1, 2, 3), (4, 5), (6, 7)  # numbers of the tiles
VOID, BYTES = ir.VoidType(), I8.as_pointer()
SUMS_OF_ROW = ir.VectorType(I32, 2 * SIDE)


def _n(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


class _Function:
    """`(sums, bytes of a row, rows, a, bytes of a row, b, bytes of a row, words)` while it is
    written.
    """

    def __init__(self, module: ir.Module, kind: str, name: str) -> None:
        self.module, self.kind = module, kind
        self.function = ir.Function(
            module, ir.FunctionType(VOID, [BYTES, I64, I64, BYTES, I64, BYTES, I64, I64]), name
        )
        self.function.linkage = "internal"
        self.function.attributes.add("noinline")
        self.sums, self.pitch, self.rows, self.a, self.a_pitch, self.b_, self.b_pitch, words = (
            self.function.args
        )
        self.b = b = ir.IRBuilder(self.function.append_basic_block())
        self.config = b.alloca(I8, _n(LINE))
        self.config.align = LINE
        whole, rest = b.lshr(words, _n(4)), b.and_(words, _n(SIDE - 1))
        with b.if_then(b.icmp_signed(">", whole, _n(0))):
            self.part(_n(0), whole, ir.Constant(I1, 1), _n(SIDE))
        with b.if_then(b.icmp_signed(">", rest, _n(0))):
            self.part(b.mul(whole, _n(SIDE)), _n(1), b.icmp_signed("==", whole, _n(0)), rest)
        with (
            b.if_then(b.icmp_signed("<=", words, _n(0))),
            cgutils.for_range(b, self.rows, intp=I64) as row,
        ):  # sums of nothing
            at = self.at(self.sums, b.mul(row.index, self.pitch))
            b.store(ir.Constant(SUMS_OF_ROW, None), b.bitcast(at, SUMS_OF_ROW.as_pointer()), 4)
        self.call("tilerelease")
        b.ret_void()

    def call(self, name: str, *arguments: Any) -> None:
        """An instruction; tiles are named by bytes that are known."""
        values = [ir.Constant(I8, v) if isinstance(v, int) else v for v in arguments]
        full = f"llvm.x86.{name}"
        kind = ir.FunctionType(VOID, [v.type for v in values])
        self.b.call(self.module.globals.get(full) or ir.Function(self.module, kind, full), values)

    def at(self, base: Any, offset: Any) -> Any:
        return self.b.gep(base, [offset])

    def shape(self, top: Any, low: Any, words: Any) -> None:
        """Set the shapes: rows of the upper and the lower tiles; a's are `words` wide, and b's have
        so many rows.
        """
        b = self.b
        width = b.mul(words, _n(4))
        shapes = (
            [(top, _n(LINE))] * 2
            + [(low, _n(LINE))] * 2
            + [(top, width), (low, width)]
            + [(words, _n(LINE))] * 2
        )
        for k in range(0, LINE, 8):
            self.field(k, _n(0), I64)
        self.field(0, _n(1), I8)  # the palette
        for k, (rows, size) in enumerate(shapes):
            self.field(SIDE + 2 * k, size, I16)
            self.field(3 * SIDE + k, rows, I8)
        self.call("ldtilecfg", self.config)

    def field(self, offset: int, value: Any, kind: ir.IntType) -> None:
        """Write a number into the block that sets shapes."""
        address = self.b.bitcast(self.at(self.config, _n(offset)), kind.as_pointer())
        self.b.store(value if kind == I64 else self.b.trunc(value, kind), address, align=1)

    def part(self, first: Any, steps: Any, fresh: Any, words: Any) -> None:
        """Steps from word `first` on for all rows; the sums begin at zero where they are
        `fresh`.
        """
        b = self.b
        whole, rest = b.lshr(self.rows, _n(5)), b.and_(self.rows, _n(BLOCK - 1))
        with b.if_then(b.icmp_signed(">", whole, _n(0))):
            self.shape(_n(SIDE), _n(SIDE), words)
            with cgutils.for_range(b, whole, intp=I64) as loop:
                self.steps(b.mul(loop.index, _n(BLOCK)), first, steps, fresh, 2)
        row = b.mul(whole, _n(BLOCK))
        with b.if_then(b.icmp_signed(">", rest, _n(SIDE))):
            self.shape(_n(SIDE), b.sub(rest, _n(SIDE)), words)
            self.steps(row, first, steps, fresh, 2)
        few = b.and_(b.icmp_signed(">", rest, _n(0)), b.icmp_signed("<=", rest, _n(SIDE)))
        with b.if_then(few):
            self.shape(rest, _n(1), words)
            self.steps(row, first, steps, fresh, 1)

    def steps(self, row: Any, first: Any, steps: Any, fresh: Any, lefts: int) -> None:
        """The sums of one or two tiles of a's rows, from `row` on, times both of b's columns."""
        b = self.b
        sums, start = (
            self.at(self.sums, b.mul(row, self.pitch)),
            self.at(self.a, b.mul(row, self.a_pitch)),
        )
        below, a_below = b.mul(self.pitch, _n(SIDE)), b.mul(self.a_pitch, _n(SIDE))
        pointers = [
            b.add(below if k // 2 else _n(0), _n(LINE * (k % 2))) for k in SUMS[: 2 * lefts]
        ]
        with b.if_else(fresh) as (yes, no):
            with yes:
                for k in range(2 * lefts):
                    self.call("tilezero", k)
            with no:
                for k, pointer in enumerate(pointers):
                    self.call("tileloadd64", k, self.at(sums, pointer), self.pitch)
        with cgutils.for_range(b, steps, intp=I64) as loop:
            word = b.add(first, b.mul(loop.index, _n(SIDE)))
            left, right = (
                self.at(start, b.mul(word, _n(4))),
                self.at(self.b_, b.mul(word, self.b_pitch)),
            )
            for k, tile in enumerate(RIGHT):
                self.call("tileloadd64", tile, self.at(right, _n(LINE * k)), self.b_pitch)
            for k in range(lefts):
                self.call(
                    "tileloadd64", LEFT[k], self.at(left, a_below) if k else left, self.a_pitch
                )
                for j, tile in enumerate(RIGHT):
                    self.call(INSTRUCTIONS[self.kind], SUMS[2 * k + j], LEFT[k], tile)
        for k, pointer in enumerate(pointers):
            self.call("tilestored64", k, self.at(sums, pointer), self.pitch)


def tile_function(module: ir.Module, kind: str) -> ir.Function:
    """The function of a kind in a module, written where it is not there yet."""
    name = f"cubepy_tile_dot_{kind}"
    return module.globals.get(name) or _Function(module, kind, name).function


@literal_op
def tile_dot(
    sums: Any,
    a: Any,
    b_: Any,
    rows: Any,
    i: Any,
    a_row: Any,
    j: Any,
    b_row: Any,
    words: Any,
    kind: Any,
    pitch: Any,
) -> Any:
    """`tile_dot(sums, a, b, rows, i, a_row, j, b_row, words, kind, pitch)`: sums = rows of a times
    32 columns of b.

    a and b are read from elements i and j on; rows are a_row and b_row elements apart, those of
    sums `pitch` bytes.
    """
    name, distance = literal(kind), literal(pitch)
    if name is None or distance is None:
        return None
    sides = (pointer(sums), pointer(a), pointer(b_))
    if name not in INSTRUCTIONS:
        raise errors.TypingError(f"tile_dot does not multiply {name}")

    def emit(b: Any, total: Any, x: Any, y: Any, *values: Any) -> None:
        count, at_x, row_x, at_y, row_y, depth = values[:6]
        four = _n(4)
        left = b.gep(b.bitcast(x, BYTES), [b.mul(at_x, four)])
        right = b.gep(b.bitcast(y, BYTES), [b.mul(at_y, four)])
        steps = (count, left, b.mul(row_x, four), right, b.mul(row_y, four), depth)
        b.call(tile_function(b.module, name), [b.bitcast(total, BYTES), _n(distance), *steps])

    return types.void(*sides, *[types.int64] * 6, kind, pitch), emit
