"""What f32 products by plain arithmetic take on a GPU, by a model: which kernel is quickest.

A kernel's tiles are done in rounds of as many as find room on the device, and a round takes as long
as its K. The times are of an H200 (docs/benchmarks/log/matmul-sm90.md); of other devices they say
what is quicker, not how quick it is.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import NamedTuple

from cubepy.kernels.matmul.problem import Product
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.symbolic.number import applied

LAUNCH = 3.0
"""Microseconds of a launch."""
WRITTEN, COPIED = 2.5, 4.2
"""Million bytes of results, and of what a copy reads and writes, in a microsecond."""


class Sizes(NamedTuple):
    """What the model knows of a product: numbers of rows, K, columns and batches, how the second
    operand lies, and whether rows are aligned.
    """

    m: int
    k: int
    n: int
    batch: int
    layout: str
    aligned: bool


class Device(NamedTuple):
    """Its cores, and whether it has a copy engine and clusters."""

    cores: int
    engine: bool
    clusters: bool


class Rate(NamedTuple):
    """Nanoseconds of a tile for an element of K: alone on a core, and of two that share one."""

    alone: float
    pair: float

    def rounds(self, tiles: int, cores: int) -> float:
        """Nanoseconds of all tiles for an element of K."""
        full, rest = divmod(tiles, 2 * cores)
        last = 0.0 if rest == 0 else self.alone if rest <= cores else self.pair
        return full * self.pair + last


SimtTile = tuple[int, int, int, int, int]
SIMT_TILES: dict[SimtTile, Rate] = {
    (128, 128, 8, 2, 2): Rate(135.0, 270.0),
    (64, 64, 16, 1, 1): Rate(44.0, 70.0),
    (64, 32, 32, 1, 1): Rate(24.0, 38.0),
    (32, 32, 64, 2, 1): Rate(13.0, 21.0),
    (32, 16, 128, 1, 1): Rate(9.2, 18.4),
    (16, 16, 128, 1, 1): Rate(5.2, 10.4),
}
"""The kernel for any strides and types (`simt`): rows, columns, K of a stage, and blocks of four
rows and four columns of a unit.
"""
FMA = Rate(111.0, 182.0)
"""Tiles of 128 x 128 that the copy engine brings (`sm90.tma_simt`)."""
MEETING = 100
"""What the first loads and the meeting of planes cost, as K."""
PLANES = {"columns": Rate(7.5, 14.6), "rows": Rate(9.0, 17.0)}
"""Tiles of 32 x 32 whose planes share K (`sm90.tma_simt_split_k`), by how the second operand
lies.
"""


class Multistage(NamedTuple):
    """A tile of `simt_multistage`: rows, columns, blocks of four rows of a unit, teams, and what an
    element of K takes.
    """

    rows: int
    columns: int
    high: int
    teams: int
    rate: Rate

    def tiles(self, problem: Sizes) -> int:
        """How many there are."""
        return problem.batch * -(-problem.m // self.rows) * -(-problem.n // self.columns)


MULTISTAGE = (
    Multistage(128, 128, 4, 2, Rate(98.0, 196.0)),
    Multistage(128, 64, 4, 4, Rate(55.0, 110.0)),
    Multistage(64, 64, 2, 4, Rate(34.0, 57.0)),
    Multistage(32, 64, 2, 8, Rate(17.5, 36.0)),
)
ROOM = {1: 1.0, 2: 1.0, 3: 0.82, 4: 0.91, 5: 0.835, 6: 0.775, 7: 0.8, 8: 0.91}
"""Cubes for each core that run at once, by how many a cluster has: it wants its cores in one part
of the chip.
"""
LEAST = 64
"""K of a cube, at least, where several share it."""


DEPTH, ENDING = 32, 24
"""K of a stage, which is always whole, and what a tile's first loads and last sums cost, as K."""
ALONG_K = {"columns": 1.15, "rows": 1.03}
"""What operands along K cost more, which are copied element by element, by how the second one
lies.
"""
MEETING_CUBE, MEETING_ELEMENT = 0.5, 1 / 15000
"""Microseconds that the sums of a cluster take to meet, for each of its cubes and elements."""
UNALIGNED = {"columns": 1.15, "rows": 1.05}
"""What rows that begin anywhere cost the kernel for any strides more, by the same: those of the
first operand may be aligned, across K.
"""


def written(problem: Sizes) -> float:
    """Microseconds of a launch, and of writing the result."""
    return LAUNCH + 4e-6 * problem.batch * problem.m * problem.n / WRITTEN


def multistage(tile: Multistage, parts: int, problem: Sizes, cores: int) -> float:
    """Microseconds of a tile whose K so many cubes share; sums meet in shared memory.

    What lies along K is copied element by element: two such operands cost more than one.
    """
    each = 1e-3 * (-(-problem.k // (DEPTH * parts)) * DEPTH + ENDING)
    each *= ALONG_K.get(problem.layout, 1.0)
    if parts == 1:
        return written(problem) + each * tile.rate.rounds(tile.tiles(problem), cores)
    rounds = -(-tile.tiles(problem) * parts // int(ROOM[parts] * cores))
    meeting = parts * (MEETING_CUBE + MEETING_ELEMENT * tile.rows * tile.columns)
    return written(problem) + rounds * (each * tile.rate.alone + meeting)


def simt_tiles(problem: Sizes | Product, cores: int) -> list[SimtTile]:
    """The tiles of the kernel for any strides and types, best first: whole rounds of one cube a
    core, since results of a short K are what small tiles do not write well.
    """
    m, n, batch = problem.m, problem.n, problem.batch

    def cost(tile: SimtTile) -> float:
        tiles = batch * -(-m // tile[0]) * -(-n // tile[1])
        return SIMT_TILES[tile].alone * -(-tiles // cores)

    return sorted(SIMT_TILES, key=cost)


def simt(problem: Sizes, cores: int) -> float:
    """Microseconds of the kernel for any strides and types."""
    tile = simt_tiles(problem, cores)[0]
    tiles = problem.batch * -(-problem.m // tile[0]) * -(-problem.n // tile[1])
    k = problem.k if problem.aligned else UNALIGNED.get(problem.layout, 1.0) * problem.k
    return written(problem) + 1e-3 * k * SIMT_TILES[tile].rounds(tiles, cores)


def large_tiles(problem: Sizes, cores: int) -> float:
    """Microseconds of `sm90.tma_simt`, of operands that are aligned and along K."""
    tiles = problem.batch * -(-problem.m // 128) * -(-problem.n // 128)
    return written(problem) + 1e-3 * (problem.k + ENDING) * FMA.rounds(tiles, cores)


def small_tiles(problem: Sizes, cores: int) -> float:
    """Microseconds of `sm90.tma_simt_split_k`, of aligned operands."""
    tiles = problem.batch * -(-problem.m // 32) * -(-problem.n // 32)
    rate = PLANES[problem.layout]
    return written(problem) + 1e-3 * (problem.k + MEETING) * rate.rounds(tiles, cores)


def copied(problem: Sizes, cores: int) -> tuple[float, float]:
    """Microseconds of the kernels for aligned operands, large tiles and small ones, with copies
    that make them so.
    """
    ready = problem._replace(aligned=True, layout="columns")
    elements = problem.batch * problem.k * (problem.n if problem.aligned else problem.m + problem.n)
    more = LAUNCH * (1 if problem.aligned else 2) + 8e-6 * elements / COPIED
    return large_tiles(ready, cores) + more, small_tiles(ready, cores) + more


def parts_of(tiles: int, k: int, cores: int) -> int:
    """The most cubes that can share K so that all tiles are done in one round."""
    for parts, room in reversed(ROOM.items()):
        if tiles * parts <= int(room * cores) and k >= LEAST * parts:
            return parts
    return 1


def candidates(problem: Sizes, cores: int, clusters: bool) -> list[tuple[float, int, int]]:
    """Microseconds of `simt_multistage`, its tiles, and how many cubes share K, best first."""
    found = []
    for number, tile in enumerate(MULTISTAGE):
        parts = parts_of(tile.tiles(problem), problem.k, cores) if clusters else 1
        found.append((multistage(tile, parts, problem, cores), number, parts))
    return sorted(found)


class Choice(NamedTuple):
    """A kernel of plain f32 arithmetic by the name of its routine, which of its tiles, and how many
    cubes share K.
    """

    routine: str
    tile: int = 0
    parts: int = 1


CHOICES = (
    *(Choice("simt_multistage", n, parts) for n in range(len(MULTISTAGE)) for parts in ROOM),
    *(Choice("fma_copied", n) for n in range(2)),
    *map(Choice, ("fma", "fma_planes", "simt")),
)
SURELY = 0.95
"""Of the next kernel's time, from which on `simt_multistage` is taken, and operands are copied."""


@lru_cache(maxsize=4096)
def number_of(
    m: int, k: int, n: int, batch: int, layout: str, aligned: bool, device: Device
) -> int:
    """The number in `CHOICES` of what is quickest."""
    sizes = Sizes(m, k, n, batch, layout, aligned)
    cores, engine, clusters = device
    found = [(simt(sizes, cores), Choice("simt"))]
    if engine and aligned and layout == "columns":
        found.append((large_tiles(sizes, cores), Choice("fma")))
    if engine and aligned and layout in PLANES:
        found.append((small_tiles(sizes, cores), Choice("fma_planes")))
    best = min(found)
    if engine:
        times = copied(sizes, cores)
        best = min(best, *((t / SURELY, Choice("fma_copied", n)) for n, t in enumerate(times)))
    cost, tile, parts = candidates(sizes, cores, clusters)[0]
    best = min(best, (cost / SURELY, Choice("simt_multistage", tile, parts)))
    return CHOICES.index(best[1])


def chosen(problem: Product, properties: DeviceProperties) -> Choice:
    """What is quickest for a product; where lengths are not known yet, they are asked for that
    alone.
    """
    features = properties.features
    device = Device(properties.cores, "tma" in features, "cluster" in features)
    sizes = problem.m, problem.k, problem.n, problem.batch, problem.layout, problem.aligned
    return CHOICES[operator.index(applied(number_of, *sizes, device))]
