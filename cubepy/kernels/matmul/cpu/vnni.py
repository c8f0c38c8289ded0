"""Operands of products in words of 32 bits: two bf16 or four bytes, neighbours along K, which one
instruction adds up.

A is read as words where it stands, if it can be. Dot products of bytes want one factor unsigned:
signed bytes of B grow by 128 when they are packed, and `byte_sum` gives what that adds to each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.matmul.cpu.packing import pack_rows, pieces_of
from cubepy.kernels.matmul.cpu.packing_on_stack import PER_WORD
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.movement.copy import copy
from cubepy.runtime import memory

BITS = {"bf16": np.uint16, "i8": np.uint8, "u8": np.uint8}
PACKED_CODES = {"i8": "u8", "u8": "i8"}
"""What panels hold for bytes of a, signed or not (see `codes`)."""


def kind_of(problem: Product, properties: cb.DeviceProperties) -> str:
    """What a product's sums are made of: "bf16", "i8" or "u8" in words; "f32", which are
    numbers of f32 or f64 one by one; "" for neither.
    """
    result = result_dtype(problem)
    if result.is_float:
        pairs = problem.a == problem.b == "bf16" and "bf16_dot" in properties.features
        wide = result.bits > 32 and not problem.a == problem.b == "f64"
        return "" if wide else "bf16" if pairs else "f32"
    meets = PACKED_CODES.get(problem.a) if problem.packed else "i8"
    fits = problem.a in ("i8", "u8") and problem.b == meets and result is cb.i32
    return problem.a if fits and properties.adds_bytes else ""


@cb.kernel
def lay_rows(x: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    """out[batch, row] = x[batch, row] in another dtype, zero beyond its end; a cube does a row."""
    batch, row = cb.CUBE_POS // x.shape[1], cb.CUBE_POS % x.shape[1]
    left, width = x.shape[2], out.shape[2]
    for k in range(0, width, lanes):
        line = x.load((batch, row, k), lanes, valid=cb.max(left - k, 0))
        out.store((batch, row, k), cb.cast(line, out.dtype), valid=width - k)


@cb.kernel
def pack_words(
    b: cb.Array, out: cb.Array, pieces, width: cb.Comptime[int], lanes: cb.Comptime[int]
):
    """out[batch, panel, k, j] = two neighbours along K of column panel * width + j, as one word.

    b holds bits, and its rows are neighbours in memory; rows and columns beyond its end are zero.
    """
    panels, depth = out.shape[1], out.shape[2]
    piece = cb.CUBE_POS % pieces
    panel = cb.CUBE_POS // pieces % panels
    batch = cb.CUBE_POS // (pieces * panels)
    for k in range(piece * depth // pieces, (piece + 1) * depth // pieces):
        for j in cb.unroll(range(0, width, lanes)):
            at = panel * width + j
            both = cb.interleave(
                b.load((batch, 2 * k, at), lanes), b.load((batch, 2 * k + 1, at), lanes)
            )
            out.store((batch, panel, k, j), cb.bitcast(both, cb.u32))


def laid(x: Any, dtype: Any, width: int) -> Any:
    """A copy (batch, M, width) of x (batch, M, K) in a dtype, zero beyond K."""
    out = memory.empty((*x.shape[:2], width), dtype)
    lay_rows[x.shape[0] * x.shape[1], 1](x, out, 16, mode="checked")
    return out


def words_of(x: Any, kind: str) -> Any:
    """x (batch, M, K), neighbours along K, as words (batch, M, ceil(K / count)); a view where that
    can be.
    """
    bits, count = BITS[kind], PER_WORD[kind]
    x, k = x.view(bits), x.shape[2]
    if k % count or any(s % 4 for n, s in zip(x.shape[:2], x.strides) if n > 1):
        x = laid(x, bits, -(-k // count) * count)
    elif any(s % 4 for s in x.strides[:2]):  # of axes of length one: any number does
        x = strided(x, x.shape, (0, 0, x.strides[2]))
    return x.view(np.uint32)


def pack_pairs(b: Any, lines: int, lanes: int) -> Any:
    """Panels of words of b (batch, K, N) of bf16: shape (batch, panels, ceil(K / 2), width)."""
    width = lines * lanes
    batch, k, n = b.shape
    panels, depth = -(-n // width), -(-k // 2)
    out = memory.empty((batch, panels, depth, width), np.uint32)
    if not out.size:
        return out
    pieces = pieces_of(batch * panels, depth)
    cubes = batch * panels * pieces
    if b.strides[2] == b.itemsize or n == 1:
        pack_words[cubes, 1](b.view(BITS["bf16"]), out, pieces, width, lanes, mode="checked")
    else:
        pack_rows[cubes, 1](words_of(turned(b), "bf16"), out, pieces, width, lanes, mode="checked")
    return out


@cb.kernel
def split_words(words: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    """out[0, panel, k] = row k of a panel of words of bf16, in f32; a cube does a row of words."""
    depth = words.shape[2]
    panel, k = cb.CUBE_POS // depth, cb.CUBE_POS % depth
    for j in range(0, words.shape[3], lanes):
        both = words.load((0, panel, k, j), lanes)
        out.store((0, panel, 2 * k, j), cb.bitcast(both << 16, cb.f32))
        if 2 * k + 1 < out.shape[2]:
            out.store((0, panel, 2 * k + 1, j), cb.bitcast(both & 0xFFFF0000, cb.f32))


def widened(panels: Any, k: int) -> Any:
    """Panels of f32, K long, from those of words of bf16."""
    out = memory.empty((*panels.shape[:2], k, panels.shape[3]), np.float32)
    if out.size:
        split_words[panels.shape[1] * panels.shape[2], 1](panels, out, 16, mode="checked")
    return out


def turned(b: Any) -> Any:
    """b (batch, K, N) as (batch, N, K) whose neighbours lie along K; a view where that can be."""
    t = b.transpose(0, 2, 1)
    return copy(t) if t.strides[2] != t.itemsize and b.shape[1] > 1 else t
