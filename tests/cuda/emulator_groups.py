"""Ops for the emulator that groups of four planes and the copy engine add: `wgmma`, tensor maps, counting barriers.

Tiles lie in shared memory as the hardware lays them out, with the blocks of 16 bytes permuted, so that a kernel's
places and distances are tested and not only its arithmetic. Copies land late and in any order (or at once: `early`);
products are done when they are started.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import numpy as np

from tests.cuda.emulator import NARROW, PATIENCE, Circle, Pointer, f32, halves, here, together

GROUP = 128


class Counted:
    """A barrier in shared memory: a phase ends when its arrivals and its bytes have come.

    Units of a plane go on together on a GPU, but not here, so a late one may ask for a phase when the next has ended
    too: it is told by the last phase that it asked for.
    """

    def __init__(self, arrivals: int) -> None:
        self.arrivals = self.missing = arrivals
        self.bytes = self.phase = 0
        self.change = threading.Condition()
        self.asked: dict[int, int] = {}

    def update(self, arrivals: int, count: int) -> None:
        """Some arrivals came; `count` bytes more are expected, or fewer where negative."""
        with self.change:
            self.missing -= arrivals
            self.bytes += count
            assert self.missing >= 0, "more arrivals than a barrier counts"
            if self.missing == 0 and self.bytes == 0:
                self.phase, self.missing = self.phase + 1, self.arrivals
                self.change.notify_all()

    def wait(self, parity: int) -> None:
        """Until the phase of this parity has ended."""
        end = time.monotonic() + PATIENCE
        last = self.asked.get(here.unit, -1)
        wanted = self.asked[here.unit] = last if last % 2 == parity % 2 else last + 1
        with self.change:
            while self.phase <= wanted:
                self.change.wait(0.2)
                assert not here.cube.broken and time.monotonic() < end, "a barrier was waited for in vain"


def place(p: Pointer, i: int) -> int:
    """The byte of shared memory where element i lies."""
    return int(p.memory.ctypes.data - here.cube.shared.ctypes.data) + i * int(p.memory.itemsize)


def counted(p: Pointer, i: int) -> Counted:
    return here.cube.counted[place(p, i)]  # type: ignore[no-any-return]


def barrier_init(p: Pointer, count: int, arrivals: int) -> None:
    for i in range(count):
        here.cube.counted[place(p, i)] = Counted(arrivals)


def permuted(at: np.ndarray, swizzle: int) -> np.ndarray:
    """Bytes where bytes of a swizzled tile really lie."""
    return at ^ ((at >> 7 & 7) << 4) if swizzle == 128 else at


def tma_load(to: Pointer, barrier: Pointer, source: Any, i: int, b: int, *coords: int) -> None:
    """A box of an array, zeros beyond it, to its place in shared memory."""
    array, box = source.array, source.box
    kind = np.dtype(f"u{array.itemsize}")
    whole = np.zeros(box, kind)
    inside = [slice(max(0, c), max(0, min(n, c + s))) for c, s, n in zip(coords, box, array.shape, strict=True)]
    part = np.ascontiguousarray(array[tuple(inside)]).view(kind)
    whole[tuple(slice(0, n) for n in part.shape)] = part
    data = whole.reshape(-1).view(np.uint8)
    start = place(to, i)
    assert start % (1024 if source.swizzle else 16) == 0, "a tile must start at a multiple of 1024 bytes"
    shared, arrived = here.cube.shared, counted(barrier, b)

    def land() -> None:
        shared[permuted(start + np.arange(len(data)), source.swizzle)] = data
        arrived.update(0, -len(data))

    if here.cube.early:
        land()
    else:
        threading.Timer(random.uniform(0.0, 0.05), land).start()


def operand(p: Pointer, i: int, rows: int, transpose: bool, swizzle: int, lead: int, stride: int, dtype: str) -> Any:
    """(rows, 16) elements, read as the descriptor says."""
    row, k = np.arange(rows)[:, None], np.arange(16)[None, :]
    width = swizzle // 2
    if transpose:
        at = row // width * lead + row % width + k // 8 * stride + k % 8 * width
    else:
        at = row // 8 * stride + row % 8 * width + k
    where = permuted(place(p, i) + at * 2, swizzle)
    return here.cube.shared[where[..., None] + np.arange(2)].view(np.uint16)[..., 0].view(NARROW[dtype]).astype(f32)


def fragment_rows(fragments: list[Any], dtype: str) -> np.ndarray:
    """(64, 16) from the words of 128 units."""
    a = np.zeros((64, 16))
    for unit, words in enumerate(fragments):
        r, j = unit // 32 * 16 + unit % 32 // 4, unit % 4 * 2
        x = np.asarray(words, np.uint32).view(NARROW[dtype]).astype(f32).reshape(4, 2)
        a[r, j : j + 2], a[r + 8, j : j + 2], a[r, j + 8 : j + 10], a[r + 8, j + 8 : j + 10] = x
    return a


def accumulate(acc: list[Any], start: int, n: int, keep: bool, brought: Any, product: Any) -> None:
    """acc (+)= the product of the group; unit 4 r + j of a plane holds columns 2 j and 2 j + 1 of rows r and r + 8."""
    circle: Circle = here.cube.groups[here.unit // GROUP]
    mine = circle.together(brought, lambda of: [product(of)] * GROUP)
    r, j = here.unit % GROUP // 32 * 16 + here.unit % 32 // 4, here.unit % 4 * 2
    for block in range(n // 8):
        for e in range(4):
            value = mine[r + e // 2 * 8, 8 * block + j + e % 2]
            at = start + 4 * block + e
            acc[at] = f32(acc[at] + value) if keep else f32(value)


def wgmma(
    acc: Any, a: Any, b: Any, ai: int, bi: int, keep: bool, n: int, dtype: str, start: int, *options: Any
) -> None:
    of_a, of_b, (offset_a, offset_b) = options[0:4], options[4:8], options[8:10]

    def product(_: Any) -> np.ndarray:
        left = operand(a, ai + offset_a, 64, *of_a, dtype)
        return left.astype(np.float64) @ operand(b, bi + offset_b, n, *of_b, dtype).T

    accumulate(acc, start, n, keep, None, product)


def wgmma_registers(
    acc: Any, b: Any, a: Any, bi: int, keep: bool, n: int, dtype: str, start: int, *options: Any
) -> None:
    of_b, offset = options[0:4], options[4]
    right = lambda: operand(b, bi + offset, n, *of_b, dtype).T
    accumulate(acc, start, n, keep, a, lambda of: fragment_rows(of, dtype) @ right())


def store_matrix(p: Pointer, words: Any, i: int, transpose: bool) -> None:
    """8x8 tiles to shared memory; unit k gives the place of row k % 8 of tile k // 8."""

    def write(of: list[Any]) -> list[Any]:
        for tile in range(len(of[0][0])):
            square = np.array([w[tile] for w, _ in of], np.uint32).view(np.uint16).reshape(8, 8)
            for row in range(8):
                halves(p, of[8 * tile + row][1])[:] = square.T[row] if transpose else square[row]
        return of

    together((words, i), write)


def add_line(p: Pointer, v: Any, i: int) -> None:
    with here.cube.lock:
        p.memory[i : i + len(v)] += v


def sync_group(number: int, units: int) -> None:
    with here.cube.lock:
        barrier = here.cube.named.setdefault(number, threading.Barrier(units, timeout=PATIENCE))
    barrier.wait()


def nothing(*_: Any) -> None:
    """Ordering: all is done when it is started here."""


GROUP_OPS: dict[str, Any] = {
    "barrier_init": barrier_init, "barrier_fence": nothing, "barrier_arrive": lambda p, i: counted(p, i).update(1, 0),
    "barrier_expect": lambda p, i, n: counted(p, i).update(1, n),
    "barrier_wait": lambda p, i, parity: counted(p, i).wait(parity), "tma_load": tma_load, "wgmma": wgmma,
    "wgmma_registers": wgmma_registers, "wgmma_fence": nothing, "wgmma_commit": nothing, "wgmma_wait": nothing,
    "set_registers": nothing, "fence_async": nothing, "store_matrix": store_matrix, "add_line": add_line,
    "sync_group": sync_group,
}  # fmt: skip
