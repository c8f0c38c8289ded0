"""Products with few rows: the matrix is read once, where it stands; nothing is packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.cpu.blocking import ALONE, even
from cubepy.kernels.matmul.cpu.gemv_split_k import multiply_split_k
from cubepy.kernels.matmul.cpu.microkernel import Blueprint, multiply_add, sums_of
from cubepy.kernels.matmul.cpu.standing import (
    StandingPlan,
    cycles,
    multiply_standing,
    row_blocks_of,
    tile_of,
)
from cubepy.kernels.matmul.problem import Epilogue, Product, result_dtype
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.tune import TunedRoutine

MOST_ROWS = 4  # of a, where rows of b lie along N
DOT_ROWS = ((1 << 12, 4), (1 << 18, 16))
"""The same where they lie along K and are summed lane by lane, for b of so many numbers: turning
what caches hold costs little (Zen 5)."""
MOST_DOT_ROWS = 64  # for larger ones
ANY = 1 << 30
FEW_REGISTERS_ROWS = 3  # of a tile of sums of lanes with 16 registers
ROWS_BY_K = (8, 2), (24, 3), (48, 4), (96, 6), (128, 8), (256, 12), (400, 24), (ANY, 40)
WIDE_ROWS_BY_K = (24, 3), (48, 4), (96, 6), (ANY, 12)
"""Rows by K with those, and the same for f64 (Zen 3): lines are added up for every sum."""
ROWS_OF_FEW = (6, 2), (16, 4), (64, 8), (128, 40), (200, 128), (ANY, ANY)
ROWS_OF_MANY = (6, 2), (32, 4), (128, 8), (256, 16), (ANY, 24)
"""The same by K, for f32 and lines of 16, where a line holds all columns of the result, and else
(Xeon)."""
WIDE_LONG, WIDE_DOT_ROWS = 64, (5, 12)  # the same for f64: rows for shorter K, and longer
CHANNELS = 16  # results that a cube makes side by side
MOST_SUMS = 32  # lines of sums of a cube: the longer its part of a row of b, the quicker memory is
FEW_LINES = {1: 8, 2: 4, 3: 3, 4: 2, 5: 2, 6: 2}  # else 1
"""Lines by rows of a, with 16 registers and what caches hold: 1.3 to 2.2 times as quick as more."""
LARGE = 1 << 22  # bytes of b that come from memory
MIDDLE = 1 << 19  # the same, for lines of 16 and one row
LARGER = 1 << 24  # bytes of b that no cache holds
LONG = 8192  # columns of such a b from which on parts of rows are too far from each other
LEAST = 128  # rows of b, of which parts are long
FEW_WHOLE, FEW_LEAST = {1: 1 << 18, 2: 1 << 19}, 96
"""Bytes of b by rows of a, with lines of 32 bytes, and such rows of b (Zen 3)."""
FEW_CORES = 4  # cubes that have parts of K are few
FOLLOWS = "znver5"  # a CPU that asks ahead for parts of rows as quickly as for whole ones

SMALL = 1 << 14  # bytes of b that are quicker where they stand for any number of rows
FEW_ROWS = (1 << 20, 32), (1 << 22, 16)
"""Rows that packing does not pay for, for so many bytes of b; of the first twice as many of f32,
where lines of b hang over the result."""
SHORT, SHORTEST = 16, 5  # of K, and where b is turned for it
FEW_STANDING, SHORT_STANDING = 9, 4
"""With lines of 32 bytes (Zen 3): rows for which an unpacked b in rows is quicker where it is no
larger than `LARGE`, and K up to which any is."""
MOST_ROWS_OF_BYTES = 64  # for which tiles of sums are quicker than whole rows of them (Zen 3)
NARROWEST = 512  # rows of two lines that are read for any number of rows of a


@cb.func
def in_batch(array, z, row, column):
    """An element of the matrix z; an array of two axes is one matrix."""
    return (row, column) if array.ndim == 2 else (z, row, column)


@cb.kernel
def dot_rows(
    a: cb.Array,
    b: cb.Array,
    out: cb.Array,
    bias,
    residual,
    mask,
    alpha,
    fill,
    rows: cb.Comptime[int],
    plan: cb.Comptime,
):
    """out[z, i, n] = a[z, i] . b[z, n], both read along their rows: a is (batch, M, K), b
    (batch, N, K), or both are one matrix.

    A cube does `channels` channels for all rows, `rows` x 4 of them at a time; its part of b stays
    in the cache.
    """
    lanes = plan.lanes
    epilogue = LineEpilogue(
        out, plan.activation, bias, residual, alpha, mask, fill, joined=plan.joined
    )
    m, channels, z = a.shape[a.ndim - 2], b.shape[b.ndim - 2], cb.CUBE_POS_Y
    first, groups = cb.CUBE_POS_X * plan.channels, plan.channels // 4
    buffer = cb.local((rows, groups), sums_of(out), lanes=lanes)
    for row in range(0, m, rows):
        for group in range(groups):
            dot_tile(buffer, group, a, row, b, first + 4 * group, z, rows, lanes)
        for i in range(cb.min(rows, m - row)):
            for j in cb.unroll(range(0, plan.channels, lanes)):
                if first + j < channels:
                    at = tuple(min(j // 4 + g, groups - 1) for g in cb.unroll(range(lanes // 4)))
                    value = added_up(tuple(buffer[i, g] for g in cb.unroll(at)), lanes)
                    valid = cb.min(channels - first - j, plan.channels - j)
                    epilogue.finish(value, (z, row + i, first + j), valid)


def every_other(lanes: int, start: int) -> tuple[int, ...]:
    """The places of every other number of two lines."""
    return tuple(range(start, 2 * lanes, 2))


@cb.func
def added_up(parts, lanes):
    """One line of the sums of neighbours of several, in their order; a line holds as many sums as
    there were lines. Two lines at a time take half the steps of sums of single ones.
    """
    for _ in cb.unroll(range(len(parts).bit_length() - 1)):
        parts = tuple(
            cb.shuffle(parts[2 * p], parts[2 * p + 1], every_other(lanes, 0))
            + cb.shuffle(parts[2 * p], parts[2 * p + 1], every_other(lanes, 1))
            for p in cb.unroll(range(len(parts) // 2))
        )
    return parts[0]


def holds_rows(rows: int, bits: int) -> bool:
    """Whether lines of a tile's rows stay in registers while columns go by: of 16 registers, 3 x 4
    sums leave four, three for rows and one for a column (held the other way round, one is missing).
    """
    return rows == FEW_REGISTERS_ROWS and bits < 512


@cb.func
def dot_tile(buffer, group, a, row, b, channel, z, rows, lanes):
    """buffer[i, group] = parts of the sums a[z, row + i] . b[z, channel + j] for `rows` x 4 pairs,
    a quarter of a line for each.
    """
    m, depth, channels = a.shape[a.ndim - 2], a.shape[a.ndim - 1], b.shape[b.ndim - 2]
    sums = buffer.dtype
    acc = cb.local((rows, 4), sums, lanes=lanes)
    b_lines = cb.local(4, sums, lanes=lanes)
    for i in range(rows):
        for j in range(4):
            acc[i, j] = cb.splat(cb.cast(0, sums), lanes)
    rows_of_b = tuple(cb.min(channel + j, channels - 1) for j in cb.unroll(range(4)))
    sources = tuple(cb.min(row + i, m - 1) for i in cb.unroll(range(rows)))
    whole = depth // lanes * lanes
    for k in range(0, whole, lanes):
        if holds_rows(rows, lanes * sums.bits):
            x_lines = tuple(
                cb.cast(a.load(in_batch(a, z, sources[i], k), lanes), sums)
                for i in cb.unroll(range(rows))
            )
            for j in cb.unroll(range(4)):
                y = cb.cast(b.load(in_batch(b, z, rows_of_b[j], k), lanes), sums)
                for i in cb.unroll(range(rows)):
                    acc[i, j] = multiply_add(x_lines[i], y, acc[i, j])
        else:
            for j in cb.unroll(range(4)):
                b_lines[j] = cb.cast(b.load(in_batch(b, z, rows_of_b[j], k), lanes), sums)
            for i in cb.unroll(range(rows)):
                x = cb.cast(a.load(in_batch(a, z, sources[i], k), lanes), sums)
                for j in range(4):
                    acc[i, j] = multiply_add(x, b_lines[j], acc[i, j])
    if whole < depth:
        left = depth - whole
        for j in cb.unroll(range(4)):
            line = b.load(in_batch(b, z, rows_of_b[j], whole), lanes, valid=left)
            b_lines[j] = cb.cast(line, sums)
        for i in cb.unroll(range(rows)):
            x = cb.cast(a.load(in_batch(a, z, sources[i], whole), lanes, valid=left), sums)
            for j in cb.unroll(range(4)):
                acc[i, j] = multiply_add(x, b_lines[j], acc[i, j])
    for i in cb.unroll(range(rows)):
        buffer[i, group] = added_up(tuple(acc[i, j] for j in cb.unroll(range(4))), lanes)


@dataclass(frozen=True)
class GemvPlan:
    """What changes the code of a product with few rows.

    Attributes:
        dot: results are dot products along the rows of b transposed; else lines lie along the rows
            of b.
        rows: rows of a that are done together.
        lines: lines along the rows of b, side by side (without `dot`).
        lanes: lanes of a line.
        channels: results that a cube makes side by side (with `dot`).
        split_k: whether the sum over K is cut, so that cubes read whole rows of b (without `dot`).
    """

    dot: bool
    rows: int
    lines: int
    lanes: int
    channels: int = 1
    split_k: bool = False


@cache
def blueprint_of(plan: GemvPlan, function: Any, joined: str) -> Blueprint:
    """The kernels' blueprint; the same object every time, so that keys compare quickly."""
    tile = plan.rows, plan.lines, plan.lanes
    return Blueprint(*tile, function, joined=joined, channels=plan.channels)


def whole_rows_are_quicker(problem: Product, properties: cb.DeviceProperties) -> bool:
    """Whether cubes should have a part of K and whole rows of b (see `matmul.cpu.gemv_split_k`), as
    was measured.
    """
    size = problem.k * problem.n * result_dtype(problem).itemsize
    if properties.register_bytes < 64:
        least = FEW_WHOLE.get(problem.m, LARGE) if problem.k >= FEW_LEAST else LARGE
        return size >= least
    if properties.name == FOLLOWS or properties.cores > FEW_CORES:
        return False
    if problem.k < LEAST or size < (MIDDLE if problem.m == 1 else LARGE):
        return False
    return size < LARGER or problem.n >= LONG or problem.m == MOST_ROWS


def suits_integers(problem: Product, properties: cb.DeviceProperties) -> bool:
    """Whether integers have no epilogue, and no dot products of bytes are quicker."""
    bytes_alone = problem.b == "i8" and problem.a in ("i8", "u8") and problem.out == "i32"
    return not problem.epilogue and not (bytes_alone and properties.adds_bytes)


def lanes_of(problem: Product, properties: cb.DeviceProperties) -> int:
    """Lanes of a line of sums."""
    return properties.register_bytes // max(4, result_dtype(problem).itemsize)


def lines_of(problem: Product, properties: cb.DeviceProperties) -> int:
    """Lines along the rows of b that a cube sums side by side."""
    lanes = lanes_of(problem, properties)
    counts = {n: -(-problem.n // (n * lanes)) for n in (32, 16, 8, 6, 5, 4, 3, 2, 1)}
    fitting = {n: c for n, c in counts.items() if n * problem.m <= MOST_SUMS}
    size = problem.k * problem.n * result_dtype(problem).itemsize
    cores = properties.cores
    if properties.vector_registers < 32 and size < LARGE:  # sums that stay in registers
        held = FEW_LINES.get(problem.m, 1)
        return next((n for n in range(held, 1, -1) if n in counts and counts[n] >= cores), 1)
    if properties.register_bytes < 64 or size >= LARGE:
        long = (n for n in fitting if n >= 8 and counts[n] >= 2 * cores and even(counts[n], cores))
        return next(long, 4)
    alone = problem.batch * problem.m * problem.k * problem.n < ALONE
    busy = [n for n in fitting if n <= 16 and (alone or counts[n] >= 2 * properties.cores)]
    return min(busy or [4], key=lambda n: cycles(problem, problem.m, n, lanes))


def fills_lines(plan: GemvPlan, x: Any, y: Any) -> bool:
    """Whether lines are of 64 bytes, for which tiles were measured, and hold all columns of y."""
    size = plan.lanes * x.itemsize
    return size >= 64 and y.shape[2] <= plan.lanes and x.dtype == y.dtype


def most_dot_rows(problem: Product, properties: cb.DeviceProperties) -> int:
    """Rows of a up to which b, whose columns are neighbours, is not turned."""
    size, k, dtype = problem.k * problem.n, problem.k, result_dtype(problem)
    if properties.vector_registers < 32:
        by_k = WIDE_ROWS_BY_K if dtype.bits == 64 else ROWS_BY_K
        most = next(most for limit, most in by_k if k < limit)
        return most if problem.batch == 1 else min(MOST_ROWS, most)
    if dtype.bits == 64:
        return WIDE_DOT_ROWS[0] if k < WIDE_LONG else WIDE_DOT_ROWS[1]
    if properties.register_bytes < 64 or not problem.a == problem.b == "f32":
        if problem.batch > 1:
            return MOST_ROWS
        return next((most for limit, most in DOT_ROWS if size <= limit), MOST_DOT_ROWS)
    if problem.batch == 1 and size > DOT_ROWS[-1][0]:
        return MOST_DOT_ROWS
    rows = ROWS_OF_FEW if problem.n <= properties.lanes(dtype) else ROWS_OF_MANY
    return next(most for limit, most in rows if k < limit)


class UnpackedRoutine(TunedRoutine):
    """Products whose b is read where it stands."""

    def group(self, key: Product) -> int:
        """Where it fits, packing b costs more than it brings."""
        return 1


class GemvRoutine(UnpackedRoutine):
    """Products with few rows: each b is read once, where it stands."""

    name = "gemv"

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Few rows, and an order of b that lines can follow."""
        dtype = result_dtype(problem)
        if not dtype.is_float and not suits_integers(problem, properties):
            return "these integers are for others"
        if problem.packed:
            return "b is not packed"
        if problem.layout == "columns" and lanes_of(problem, properties) < 4:
            return "lines hold fewer than four sums"
        most = MOST_ROWS if problem.layout == "rows" else 0
        if problem.layout == "columns":
            most = most_dot_rows(problem, properties)
        return None if problem.m <= most else f"at most {most} rows when b lies in {problem.layout}"

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[GemvPlan]:
        """Enough cubes to fill all cores, each with long parts of the rows of b; then other
        shares.
        """
        lanes = lanes_of(problem, properties)
        if problem.layout == "columns":
            most = 6 if properties.vector_registers >= 32 else FEW_REGISTERS_ROWS
            rows = -(-problem.m // -(-problem.m // most))  # as many in each tile
            for channels in (CHANNELS, 32, 8, 64):
                yield GemvPlan(True, rows, 4, lanes, channels)
            if problem.m > 4:
                yield GemvPlan(True, 4 if most > 4 else 2, 4, lanes, CHANNELS)
        else:
            if problem.batch == 1 and whole_rows_are_quicker(problem, properties):
                yield GemvPlan(False, problem.m, 1, lanes, split_k=True)
            for lines in dict.fromkeys((lines_of(problem, properties), 4, 2, 8, 1)):
                yield GemvPlan(False, problem.m, lines, lanes)

    def reads_across(self, blueprint: GemvPlan, x: Any, y: Any) -> bool:
        """Whether a is read where it stands, however it lies: single numbers of it are. Instead of
        an a that is larger, b is turned.
        """
        tiles = blueprint.dot and x.shape[1] > y.shape[2] and fills_lines(blueprint, x, y)
        return not blueprint.dot or tiles

    def launch(self, blueprint: GemvPlan, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ b (batch, K, N))."""
        (x, b, out), ending = args[:3], Epilogue(*args[3:])
        bias, residual, function, alpha, mask, fill, joined = ending
        plan, batch = blueprint, out.shape[0]
        if plan.dot and x.strides[2] != x.itemsize and x.shape[2] > 1:
            few = problem.properties.vector_registers < 32
            tile = tile_of(problem.m, problem.k, problem.n, plan.lanes, few)
            return multiply_standing(StandingPlan(*tile, plan.lanes), x, b, out, ending)
        if batch == 1:
            x, b = x[0], b[0]
        kernel_plan = blueprint_of(plan, function, joined)
        whole = out.dtype.kind in "iub"  # which have neither a factor nor a filling
        numbers: tuple[Any, Any] = (None, 0) if whole else (float(alpha), float(fill))
        if plan.dot:
            cubes = -(-out.shape[2] // plan.channels)
            dot_rows[(cubes, batch), 1](
                x,
                b.T if batch == 1 else b.transpose(0, 2, 1),
                out,
                bias,
                residual,
                mask,
                *numbers,
                plan.rows,
                kernel_plan,
                mode="unchecked",
            )
        elif plan.split_k:
            multiply_split_k(x, b, out, bias, residual, mask, *numbers, kernel_plan)
        else:
            standing = StandingPlan(plan.rows, plan.lines, plan.lanes)
            multiply_standing(standing, args[0], args[1], out, ending)
        return None


class StandingRoutine(UnpackedRoutine):
    """Small products, and those of integers, where packing would take longer than it brings."""

    name = "standing"

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """As was measured, most of it with lines of 64 bytes: few rows, few columns, a short K or a
        small b.
        """
        dtype = result_dtype(problem)
        same = problem.a == problem.b == dtype.name
        if not dtype.is_float:
            many = dtype.bits == 8 and dtype.is_int and problem.m > MOST_ROWS_OF_BYTES
            fits = not problem.packed and not many and suits_integers(problem, properties)
            return None if fits else "these integers are for others"
        if problem.packed or not same or dtype.bits < 32:
            return "both matrices and their product are f32 or f64, or of integers"
        if properties.register_bytes < 64:
            small = problem.k * problem.n * dtype.bits // 8 <= LARGE
            few = problem.m <= FEW_STANDING and problem.layout == "rows" and small
            if few or problem.k <= SHORT_STANDING:
                return None
            return "with short lines packing pays unless there are few rows, or K is short"
        lanes, columns = 8 * properties.register_bytes // dtype.bits, problem.layout != "rows"
        if problem.n <= lanes or problem.k <= (SHORTEST if columns else SHORT):
            return None
        if columns:
            return f"more than {lanes} columns, and b lies in {problem.layout}"
        size = problem.k * problem.n * dtype.bits // 8
        hangs = problem.n % (4 * lanes) != 0
        if problem.n <= 2 * lanes and problem.k <= NARROWEST or hangs and size <= SMALL:
            return None
        most = next((rows for limit, rows in FEW_ROWS if size <= limit), 0)
        if hangs and dtype.bits == 32 and size <= FEW_ROWS[0][0]:
            most *= 2
        return None if problem.m <= most else "there are enough rows to pack b for"

    def blueprints(
        self, problem: Product, properties: cb.DeviceProperties
    ) -> Iterator[StandingPlan]:
        """The tile that is thought to be the quickest; then others."""
        lanes = properties.lanes(result_dtype(problem))
        few = properties.vector_registers < 32
        best = tile_of(problem.m, problem.k, problem.n, lanes, few)
        others = ((12, 1), (6, 2), (4, 3)) if few else ((12, 1), (12, 2), (8, 3), (6, 4))
        for rows, lines in dict.fromkeys((best, *others)):
            if rows <= problem.m:
                panels = -(-problem.n // (lines * lanes))
                count = row_blocks_of(problem, rows, panels, properties.cores)
                yield StandingPlan(rows, lines, lanes, count)

    def reads_across(self, blueprint: StandingPlan, x: Any, y: Any) -> bool:
        """Single numbers of a are read, however it lies."""
        return True

    def launch(self, blueprint: StandingPlan, problem: Product, args: tuple[Any, ...]) -> None:
        """Multiply, with both matrices where they stand."""
        x, y, out, *rest = args
        multiply_standing(blueprint, x, y, out, Epilogue(*rest))
