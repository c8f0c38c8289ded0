"""The matrices of a recurrence as its steps read them.

A panel is what `blocks` lines of neighbouring states need: for each state k that is multiplied, all
gates' lines, side by side. So a step reads a panel from its beginning to its end.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import cubepy as cb
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.register_transpose import transpose_lines
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.runtime.device import DeviceProperties

SUMS = {16: 4, 32: 8}
"""Lines of sums that one row of states has under way, by the registers of a device."""


@cache
def panel_of(gates: int, bits: int, properties: DeviceProperties) -> tuple[int, int]:
    """Lines of neighbouring states in a panel, and lanes of a line, of sums of so many bits."""
    lanes = max(1, properties.register_bytes // max(4, bits // 8))
    sums = SUMS[32 if properties.vector_registers >= 32 else 16]
    return max(1, sums // gates), lanes


@cache
def narrow_panel_of(width: int, bits: int, properties: DeviceProperties) -> tuple[int, int]:
    """The same of a matrix that projects states to so many, which a panel may hold."""
    blocks, lanes = panel_of(1, bits, properties)
    return min(blocks, -(-width // lanes)), lanes


def shape_of(
    matrix: tuple[int, ...],
    gates: int,
    bits: int,
    properties: DeviceProperties,
    projects: bool = False,
) -> tuple[int, ...]:
    """The shape of the panels of matrices (D, G * H, K): (D, panels, K, G * blocks * lanes)."""
    directions, rows, depth = matrix
    blocks, lanes = panel_of(gates, bits, properties)
    if projects:
        blocks, lanes = narrow_panel_of(rows, bits, properties)
    return directions, -(-rows // (gates * blocks * lanes)), depth, gates * blocks * lanes


@cb.kernel
def pack_panels(
    matrix: cb.Array,
    out: cb.Array,
    gates: cb.Comptime[int],
    wide: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """out[d, p, k, g * wide + j] = matrix[d, g, p * wide + j, k], zero behind the last state.

    A cube does a gate of a panel; squares of lines are transposed in registers.
    """
    panels, width = out.shape[1], matrix.shape[1] // gates
    depth = out.shape[2]
    g = cb.CUBE_POS % gates
    p = cb.CUBE_POS // gates % panels
    d = cb.CUBE_POS // (gates * panels)
    acc = cb.f64 if out.dtype == cb.f64 else cb.f32
    for k in range(0, depth, lanes):
        for j in range(0, wide, lanes):
            lines = tuple(
                cb.cast(states_of(matrix, d, g, p * wide + j + r, k, width, lanes), acc)
                for r in cb.unroll(range(lanes))
            )
            columns = transpose_lines(lines, lanes)
            for c in cb.unroll(range(lanes)):
                if k + c < depth:
                    out.store((d, p, k + c, g * wide + j), cb.cast(columns[c], out.dtype))


@cb.func
def states_of(matrix, d, gate, state, k, width, lanes: cb.Comptime[int]):
    """A line along k of what a gate of a state is made of; zeros behind the last one."""
    valid = cb.min(matrix.shape[2] - k, lanes) if state < width else 0
    row = gate * width + cb.min(state, width - 1)
    return matrix.load((d, row, k), lanes, valid=valid)


def pack(matrix: Any, gates: int, properties: DeviceProperties, projects: bool = False) -> Any:
    """The panels of matrices (D, G * H, K)."""
    bits = as_dtype(matrix.dtype).bits
    shape = shape_of(matrix.shape, gates, bits, properties, projects)
    _, lanes = panel_of(gates, bits, properties)
    out = memory.empty(shape, matrix.dtype)
    if out.size:
        cubes = shape[0] * shape[1] * gates
        wide = shape[3] // gates
        pack_panels[cubes, 1](contiguous(matrix), out, gates, wide, lanes, mode="unchecked")
    return out
