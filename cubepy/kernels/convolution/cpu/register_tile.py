"""The tile of sums that fills the registers of a CPU: rows of pixels, lines of filters."""

from __future__ import annotations

import cubepy as cb

TILES = ((6, 4), (8, 3), (12, 2), (12, 1))  # rows and lines that fill 32 registers
FEW_TILES = ((6, 2), (11, 1))  # and 16


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
