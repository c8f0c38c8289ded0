"""States as bytes: matrices of signed codes, and states that each step rounds to unsigned ones.

Each sequence has a range of its own, with zero in it, or all of them have one. With zero points a
of the states and none of the matrix, (h - a) R = h R - a colsum(R).
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.recurrent.panels_cpu import panel_of
from cubepy.runtime import memory
from cubepy.runtime.device import DeviceProperties

WORD = 4  # neighbours that one instruction adds up


def shape_of_codes(
    codes: tuple[int, ...], gates: int, properties: DeviceProperties
) -> tuple[int, ...]:
    """The shape of the panels of codes (D, H, G * H): (D, panels, ceil(H / 4), words * 4)."""
    directions, width, _ = codes
    blocks, lanes = panel_of(gates, 32, properties)
    wide = blocks * lanes
    return directions, -(-width // wide), -(-width // WORD), gates * wide * WORD


@cb.kernel
def pack_codes(
    codes: cb.Array,
    out: cb.Array,
    gates: cb.Comptime[int],
    wide: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """out[d, p, k, (g * wide + j) * 4 + n] = codes[d, 4 * k + n, g, p * wide + j], zero beyond.

    A cube does a gate of a panel.
    """
    panels, words, width = out.shape[1], out.shape[2], codes.shape[1]
    g = cb.CUBE_POS % gates
    p = cb.CUBE_POS // gates % panels
    d = cb.CUBE_POS // (gates * panels)
    for k in range(words):
        for j in range(0, wide, lanes):
            state = p * wide + j
            left = cb.max(cb.min(width - state, lanes), 0)
            rows = tuple(
                codes.load(
                    (d, cb.min(k * 4 + n, width - 1), g * width + cb.min(state, width - 1)),
                    lanes,
                    valid=left if k * 4 + n < width else 0,
                )
                for n in cb.unroll(range(4))
            )
            even, odd = cb.interleave(rows[0], rows[2]), cb.interleave(rows[1], rows[3])
            out.store((d, p, k, (g * wide + j) * 4), cb.interleave(even, odd))


def pack_bytes(codes: Any, gates: int, properties: DeviceProperties) -> Any:
    """The panels of signed codes (D, H, G * H)."""
    shape = shape_of_codes(codes.shape, gates, properties)
    _, lanes = panel_of(gates, 32, properties)
    out = memory.empty(shape, codes.dtype)
    if out.size:
        wide = shape[3] // (gates * WORD)
        cubes = shape[0] * shape[1] * gates
        pack_codes[cubes, 1](contiguous(codes), out, gates, wide, lanes, mode="unchecked")
    return out


@cb.func
def round_row(hidden, at, among, held, to, width, lanes: cb.Comptime[int]):
    """The states of a sequence as codes of the range `among` sequences, with their scale and zero
    point, for this cube.
    """
    codes, ranges = held
    now, d, row = at
    low, high = cb.splat(cb.f32(0), lanes), cb.splat(cb.f32(0), lanes)
    for other in range(among[0], among[1]):
        for k in range(0, width, lanes):
            line = hidden.load((now, d, other, k), lanes)
            low, high = cb.min(low, line), cb.max(high, line)
    least = low.min()
    scale = (high.max() - least) / 255.0
    scale = cb.select(scale == 0.0, cb.f32(1), scale)
    zero = cb.clamp(cb.round(-least / scale), 0.0, 255.0)
    for k in range(0, width, lanes):
        line = hidden.load((now, d, row, k), lanes)
        code = cb.clamp(cb.round(line / scale) + zero, 0.0, 255.0)
        codes.store((cb.CUBE_POS, to, k), cb.cast(cb.cast(code, cb.i32), cb.u8))
    ranges[cb.CUBE_POS, to, 0] = scale
    ranges[cb.CUBE_POS, to, 1] = zero


@cb.func
def sum_codes(sums, panels, d, panel, codes, sources, lines: cb.Comptime[int], rows, lanes):
    """sums[r, j] = the products of a panel's lines with the codes of sequences."""
    for r in range(rows):
        for j in range(lines):
            sums[r, j] = cb.splat(cb.i32(0), lanes)
    for k in range(panels.shape[2]):
        for j in cb.unroll(range(lines)):
            line = panels.load((d, panel, k, j * (4 * lanes)), 4 * lanes)
            for r in cb.unroll(range(rows)):
                word = cb.bitcast(codes.load((cb.CUBE_POS, sources[r], k * 4), 4), cb.u32)
                h = cb.bitcast(cb.splat(word[0], lanes), cb.u8)
                sums[r, j] = cb.dot_i8(sums[r, j], h, line)


@cb.func
def as_numbers(sums, weights, ranges, at, lanes: cb.Comptime[int], gates: cb.Comptime[int]):
    """What lines of integer sums mean; `at`: direction, row of the cube, width, first state."""
    d, row, width, state = at
    column_sums, scales = weights
    scale, zero = ranges[cb.CUBE_POS, row, 0], cb.cast(ranges[cb.CUBE_POS, row, 1], cb.i32)
    valid = cb.min(width - state, lanes)
    return tuple(
        cb.cast(
            sums[g] - column_sums.load((d, g * width + state), lanes, valid=valid) * zero, cb.f32
        )
        * (scales.load((d, g * width + state), lanes, valid=valid) * scale)
        for g in cb.unroll(range(gates))
    )
