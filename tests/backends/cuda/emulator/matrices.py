"""Matrix units: the layouts of fragments as PTX describes them, and tiles in shared memory with
their bytes permuted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.backends.cuda.emulator.memory import DTYPES, Place

PLANE, GROUP = 32, 128


def wide(words: Any, dtype: np.dtype) -> np.ndarray:
    """The elements of words, exact for products: integers as integers, floats as f64."""
    elements = np.ascontiguousarray(words, np.uint32).view(dtype)
    return elements.astype(np.int64 if dtype.kind in "iu" else np.float64)


def left_rows(words: Any, dtype: np.dtype) -> np.ndarray:
    """(rows, k) from four words of each unit: unit 4 r + t of a plane holds rows r and r + 8, words
    t and t + 4.
    """
    per = 4 // dtype.itemsize
    parts = wide(words, dtype).reshape(
        -1, 8, 4, 2, 2, per
    )  # plane, r, t, half of k, half of the rows, neighbours
    return parts.transpose(0, 4, 1, 3, 2, 5).reshape(-1, 8 * per)


def mma(calls: list[list[Any]]) -> list[Any]:
    """`mma.sync` m16n8 on the fragments of a plane."""
    left, _, right = calls[0][3].partition(".")
    dtype, other = DTYPES[left], DTYPES[right or left]
    per = 4 // dtype.itemsize
    a = left_rows([c[0] for c in calls], dtype)
    b = (
        wide([c[1] for c in calls], other)
        .reshape(8, 4, 2, per)
        .transpose(0, 2, 1, 3)
        .reshape(8, 8 * per)
    )
    sums = np.stack([c[2] for c in calls])
    product = (a @ b.T).reshape(2, 8, 4, 2).transpose(1, 2, 0, 3).reshape(PLANE, 4)
    return list((sums.astype(product.dtype) + product).astype(sums.dtype))


def row_of_tile(p: Place, i: Any) -> np.ndarray:
    """16 bytes of shared memory, as words."""
    assert p.byte(i) % 16 == 0, "a row of a tile must start at a multiple of 16 bytes"
    return p.part(i, 16 // p.dtype.itemsize).view(np.uint32)


def load_matrix(calls: list[list[Any]]) -> list[Any]:
    """8x8 tiles of 16-bit elements; unit k gives the place of row k % 8 of tile k // 8."""
    count, transpose = calls[0][2], calls[0][3]
    out = np.zeros((PLANE, count), np.uint32)
    for tile in range(count):
        square = np.stack([row_of_tile(c[0], c[1]) for c in calls[8 * tile : 8 * tile + 8]])
        if transpose:
            square = np.ascontiguousarray(square.view(np.uint16).T).view(np.uint32)
        out[:, tile] = square.reshape(-1)
    return list(out)


def store_matrix(calls: list[list[Any]]) -> list[Any]:
    """The inverse of `load_matrix`: place, words, element, whether tiles are transposed."""
    for tile in range(len(calls[0][1])):
        square = np.array([c[1][tile] for c in calls], np.uint32).reshape(8, 4)
        if calls[0][3]:
            square = np.ascontiguousarray(square.view(np.uint16).T).view(np.uint32)
        for row, (p, _, i, _) in enumerate(calls[8 * tile : 8 * tile + 8]):
            row_of_tile(p, i)[:] = square[row]
    return [None] * len(calls)


def permuted(at: Any, swizzle: int) -> Any:
    """Bytes of shared memory where bytes of a swizzled tile really lie."""
    assert swizzle in (0, 128), swizzle
    return at ^ ((at >> 7 & 7) << 4) if swizzle else at


def operand(
    shared: np.ndarray,
    p: Place,
    i: int,
    rows: int,
    transpose: bool,
    swizzle: int,
    lead: int,
    stride: int,
) -> np.ndarray:
    """What a descriptor names: rows of 32 bytes of k, as f64."""
    size = p.dtype.itemsize
    width = swizzle // size
    row, k = np.arange(rows)[:, None], np.arange(32 // size)[None]
    if transpose:
        at = row // width * lead + row % width + k // 8 * stride + k % 8 * width
    else:
        at = row // 8 * stride + row % 8 * width + k
    where = permuted(p.byte(i) + at * size, swizzle)
    return (
        shared[where[..., None] + np.arange(size)]
        .reshape(rows, -1)
        .view(p.dtype)
        .astype(np.float64)
    )


class Product:
    """A product of a group of four planes, computed when the first unit waits for it: its operands
    must last so long.
    """

    def __init__(self, op: str, calls: list[list[Any]], shared: np.ndarray, at_once: bool) -> None:
        self.op, self.calls, self.shared = op, calls, shared
        self.made: np.ndarray | None = None
        first = calls[0]
        for call in calls:
            assert [int(v) for v in call[3:5]] == [int(v) for v in first[3:5]] and call[
                5:
            ] == first[5:]
        if op == "wgmma_registers":
            self.rows = left_rows([c[2] for c in calls], DTYPES[first[6]])
        if at_once:
            self.fragments()

    def fragments(self) -> np.ndarray:
        """What each unit adds: 4 r + t of a plane holds columns 2 t and 2 t + 1 of rows r and r + 8
        of its 16 rows.
        """
        if self.made is None:
            first = self.calls[0]
            if self.op == "wgmma":
                _, a, b, at_a, at_b, _, n, _, _, *layout = first
                left = operand(self.shared, a, int(at_a) + layout[8], 64, *layout[:4])
                right = operand(self.shared, b, int(at_b) + layout[9], n, *layout[4:8])
            else:
                _, b, _, at_b, _, n, _, _, *layout = first
                left, right = (
                    self.rows,
                    operand(self.shared, b, int(at_b) + layout[4], n, *layout[:4]),
                )
            parts = (left @ right.T).reshape(4, 2, 8, n // 8, 4, 2)
            self.made = parts.transpose(0, 2, 4, 3, 1, 5).reshape(GROUP, n // 2)
        return self.made

    def add(self, unit: int) -> None:
        """To a unit's sums."""
        call = self.calls[unit % GROUP]
        keep, n, _, start = call[5:9] if self.op == "wgmma" else call[4:8]
        sums = call[0][start : start + n // 2]
        sums[:] = self.fragments()[unit % GROUP] + (sums if keep else 0)
