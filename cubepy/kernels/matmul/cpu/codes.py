"""Matrices of signed bytes that stay, laid out once as products of bytes read them.

Panels hold words of four neighbours along K. For an a of unsigned bytes they are the codes as they
are; for one of signed bytes, codes that grew by 128 (see `vnni`), and they are unsigned, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul.cpu.blocking import tile_of
from cubepy.kernels.matmul.cpu.packing import pieces_of
from cubepy.kernels.matmul.problem import Product, name_of
from cubepy.kernels.matmul.routines import MATMUL
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.runtime import memory
from cubepy.runtime.device import current
from cubepy.tune import choose

WORD = 4


@cb.kernel
def pack_bytes(
    b: cb.Array,
    out: cb.Array,
    pieces,
    width: cb.Comptime[int],
    lanes: cb.Comptime[int],
    flipped: cb.Comptime[bool],
):
    """out[0, panel, k, 4 * j + r] = b[4 * k + r, panel * width + j], zero beyond; a cube does a
    piece of K of a panel.
    """
    depth = out.shape[2]
    piece, panel = cb.CUBE_POS % pieces, cb.CUBE_POS // pieces
    for k in range(piece * depth // pieces, (piece + 1) * depth // pieces):
        for j in cb.unroll(range(0, width, lanes)):
            at = panel * width + j
            left = cb.max(b.shape[1] - at, 0)
            rows = tuple(
                b.load((k * 4 + r, at), lanes, valid=left if k * 4 + r < b.shape[0] else 0)
                for r in cb.unroll(range(4))
            )
            even, odd = cb.interleave(rows[0], rows[2]), cb.interleave(rows[1], rows[3])
            words = cb.interleave(even, odd)
            if flipped:
                words = words ^ 128
            out.store((0, panel, k, 4 * j), words)


def width_of(properties: cb.DeviceProperties) -> int:
    """Columns of a panel."""
    if "tiles" in properties.features:
        return 32
    _, lines, lanes = tile_of(properties, "i8")
    return lines * lanes


def pack_codes(b: Any, signed: bool, width: int) -> Any:
    """Signed bytes (K, N) in panels, for products with signed bytes or unsigned ones: of shape (1,
    panels, ceil(K / 4), 4 * width).
    """
    k, n = b.shape
    if b.strides[1] != 1 and n > 1:
        b = copy(b)
    panels, depth = -(-n // width), -(-k // WORD)
    out = memory.empty((1, panels, depth, WORD * width), np.uint8)
    if out.size:
        pieces = pieces_of(panels, depth)
        bits, lanes = b.view(np.uint8), min(16, width)
        pack_bytes[panels * pieces, 1](bits, out, pieces, width, lanes, signed, mode="unchecked")
    return out if signed else out.view(np.int8)


def multiply(x: Any, panels: Any, columns: int) -> Any:
    """x (..., K) of bytes times a matrix of so many columns in panels: sums in i32."""
    out = memory.empty((*x.shape[:-1], columns), np.int32)
    if not out.size:
        return out
    rows = contiguous(x).reshape(1, -1, x.shape[-1])
    if not rows.size:
        out[...] = 0
        return out
    problem = Product(
        str(current()),
        rows.shape[1],
        rows.shape[2],
        columns,
        1,
        name_of(rows.dtype),
        name_of(panels.dtype),
        packed=panels.shape[3] // WORD,
        out="i32",
    )
    result = out.reshape(1, -1, columns)
    choose(MATMUL, problem).launch(problem, rows, panels, result, None, None, None, 1.0)
    return out
