"""The tile of sums that fills the registers of a CPU: rows of pixels, lines of filters."""

from __future__ import annotations

import cubepy as cb

TILES = ((6, 4), (8, 3), (12, 2), (12, 1))  # rows and lines that fill 32 registers
FEW_TILES = ((6, 2), (11, 1))  # and 16


@cb.func
def add_column(acc, line, panels, k, x, starts, at):
    """acc[i, j] += x[starts[i] + at] * line j of the panel's row that begins at k: an element of
    each row of the tile times the same lines, which are loaded once.
    """
    rows, lines = acc.shape
    lanes = len(acc[0, 0])
    for j in range(lines):
        line[j] = panels.load(k + j * lanes, lanes)
    for i in cb.unroll(range(rows)):
        element = cb.splat(cb.cast(x[starts[i] + at], cb.f32), lanes)
        for j in range(lines):
            acc[i, j] = cb.fma(element, line[j], acc[i, j])


def tiles(properties: cb.DeviceProperties) -> tuple[tuple[int, int], ...]:
    """Rows and lines of the register tiles of a CPU."""
    return TILES if properties.vector_registers >= 32 else FEW_TILES


def tile_for(filters: int, properties: cb.DeviceProperties) -> tuple[int, int, int]:
    """Rows, lines and lanes of the register tile that wastes least on so many filters of
    a group.
    """
    lanes = properties.register_bytes // 4

    def cost(shape: tuple[int, int]) -> float:
        rows, lines = shape
        loads = (rows + lines) / (rows * lines)  # of which there are as many as products in a cycle
        return -(-filters // (lines * lanes)) * lines * max(1.0, loads * 0.9 + 0.5)

    return (*min(tiles(properties), key=cost), lanes)


def tile(properties: cb.DeviceProperties, width: int = 0) -> tuple[int, int, int]:
    """Rows, lines and lanes of the register tile for panels of so many filters; 0: the widest."""
    lanes = properties.register_bytes // 4
    known = tiles(properties)
    rows, lines = next((t for t in known if t[1] * lanes == width), known[0])
    return rows, lines, lanes
