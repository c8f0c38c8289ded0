"""Products with few rows: the matrix is read once, where it stands; nothing is packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.cpu.blocking import even
from cubepy.kernels.matmul.cpu.gemv_split_k import multiply_split_k
from cubepy.kernels.matmul.cpu.microkernel import Blueprint
from cubepy.kernels.matmul.problem import Epilogue, Product, result_dtype
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.tune import TunedRoutine

MOST_ROWS = 4  # of a, where rows of b lie along N
DOT_ROWS = ((1 << 12, 4), (1 << 18, 16))
"""The same where they lie along K and are summed lane by lane, for b of so many numbers: turning
what caches hold costs little (Zen 5)."""
MOST_DOT_ROWS = 64  # for larger ones
CHANNELS = 16  # results that a cube makes side by side
MOST_SUMS = 32  # lines of sums of a cube: the longer its part of a row of b, the quicker memory is
LARGE = 1 << 22  # bytes of b that come from memory
LARGER = 1 << 24  # the same, for lines of 16
LONG = 8192  # columns of b from which on parts of rows are too far from each other
FEW_CORES = 4  # cubes that have parts of K are few
FOLLOWS = "znver5"  # a CPU that asks ahead for parts of rows as quickly as for whole ones


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
    first = cb.CUBE_POS_X * plan.channels
    buffer = cb.local((rows, plan.channels), cb.f32)
    for row in range(0, m, rows):
        for n in range(0, plan.channels, 4):
            dot_tile(buffer, n, a, row, b, first + n, z, rows, lanes)
        for i in range(cb.min(rows, m - row)):
            for j in range(0, plan.channels, lanes):
                if first + j < channels:
                    value = buffer.load((i, j), lanes, valid=plan.channels - j)
                    valid = cb.min(channels - first - j, plan.channels - j)
                    epilogue.finish(value, (z, row + i, first + j), valid)


@cb.func
def dot_tile(buffer, n, a, row, b, channel, z, rows, lanes):
    """buffer[i, n + j] = a[z, row + i] . b[z, channel + j] for `rows` x 4 pairs, summed in lines
    along K.
    """
    m, depth, channels = a.shape[a.ndim - 2], a.shape[a.ndim - 1], b.shape[b.ndim - 2]
    acc = cb.local((rows, 4), cb.f32, lanes=lanes)
    b_lines = cb.local(4, cb.f32, lanes=lanes)
    for i in range(rows):
        for j in range(4):
            acc[i, j] = cb.splat(0.0, lanes)
    rows_of_b = tuple(cb.min(channel + j, channels - 1) for j in cb.unroll(range(4)))
    sources = tuple(cb.min(row + i, m - 1) for i in cb.unroll(range(rows)))
    whole = depth // lanes * lanes
    for k in range(0, whole, lanes):
        for j in cb.unroll(range(4)):
            b_lines[j] = cb.cast(b.load(in_batch(b, z, rows_of_b[j], k), lanes), cb.f32)
        for i in cb.unroll(range(rows)):
            x = cb.cast(a.load(in_batch(a, z, sources[i], k), lanes), cb.f32)
            for j in range(4):
                acc[i, j] = cb.fma(x, b_lines[j], acc[i, j])
    if whole < depth:
        for i in cb.unroll(range(rows)):
            x = cb.cast(
                a.load(in_batch(a, z, sources[i], whole), lanes, valid=depth - whole), cb.f32
            )
            for j in cb.unroll(range(4)):
                y = cb.cast(
                    b.load(in_batch(b, z, rows_of_b[j], whole), lanes, valid=depth - whole), cb.f32
                )
                acc[i, j] = cb.fma(x, y, acc[i, j])
    for i in cb.unroll(range(rows)):
        for j in cb.unroll(range(4)):
            buffer[i, n + j] = acc[i, j].sum()


@cb.kernel
def sum_rows(
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
    """out[z, i, n] = sum over k of a[z, i, k] * b[z, k, n]: lines lie along the rows of b, which is
    (batch, K, N), or one matrix as a is.
    """
    lanes, lines = plan.lanes, plan.lines
    epilogue = LineEpilogue(
        out, plan.activation, bias, residual, alpha, mask, fill, joined=plan.joined
    )
    columns, z = b.shape[b.ndim - 1], cb.CUBE_POS_Y
    first = cb.CUBE_POS_X * (lanes * lines)
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    done = cb.local((rows, lines), cb.f32, lanes=lanes)
    for i in range(rows):
        for j in range(lines):
            acc[i, j] = cb.splat(0.0, lanes)
    for k in range(a.shape[a.ndim - 1]):
        for j in cb.unroll(range(lines)):
            left = columns - first - j * lanes
            y = cb.cast(b.load(in_batch(b, z, k, first + j * lanes), lanes, valid=left), cb.f32)
            for i in cb.unroll(range(rows)):
                acc[i, j] = cb.fma(
                    cb.splat(cb.cast(a[in_batch(a, z, i, k)], cb.f32), lanes), y, acc[i, j]
                )
    for i in range(rows):
        for j in range(lines):
            done[i, j] = acc[i, j]
    for i in range(rows):
        for j in range(lines):
            at = first + j * lanes
            if at < columns:
                epilogue.finish(done[i, j], (z, i, at), columns - at)


@dataclass(frozen=True)
class GemvPlan:
    """What changes the code of a product with few rows.

    Attributes: dot: results are dot products along the rows of b transposed; else lines lie along
        the rows of b. rows: rows of a that are done together. lines: lines along the rows of b,
        side by side (without `dot`). lanes: lanes of a line. channels: results that a cube makes
        side by side (with `dot`). split_k: whether the sum over K is cut, so that cubes read whole
        rows of b (without `dot`).
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
        return size >= LARGE
    if properties.name == FOLLOWS or properties.cores > FEW_CORES or size < LARGER:
        return False
    return problem.n >= LONG or problem.m == MOST_ROWS


def most_dot_rows(problem: Product) -> int:
    """Rows of a up to which b, whose columns are neighbours, is not turned."""
    size = problem.k * problem.n
    return next((most for limit, most in DOT_ROWS if size <= limit), MOST_DOT_ROWS)


class GemvRoutine(TunedRoutine):
    """Float products with few rows: each b is read once, where it stands."""

    name = "gemv"

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Few rows, and an order of b that lines can follow."""
        dtype = result_dtype(problem)
        if not dtype.is_float or dtype.bits > 32:
            return f"sums are in f32, not {dtype.name}"
        if problem.packed:
            return "b is not packed"
        dots = most_dot_rows(problem) if problem.batch == 1 else MOST_ROWS
        most = {"columns": dots, "rows": MOST_ROWS}.get(problem.layout, 0)
        return None if problem.m <= most else f"at most {most} rows when b lies in {problem.layout}"

    def group(self, key: Product) -> int:
        """Where it fits, packing b costs more than it brings."""
        return 1

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[GemvPlan]:
        """Enough cubes to fill all cores, each with long parts of the rows of b; then other
        shares.
        """
        lanes = properties.register_bytes // 4
        if problem.layout == "columns":
            rows = min(problem.m, 6)
            for channels in (CHANNELS, 32, 8, 64):
                yield GemvPlan(True, rows, 4, lanes, channels)
            if problem.m > 4:
                yield GemvPlan(True, 4, 4, lanes, CHANNELS)
        else:
            if problem.batch == 1 and whole_rows_are_quicker(problem, properties):
                yield GemvPlan(False, problem.m, 1, lanes, split_k=True)
            counts = {
                n: -(-problem.n // (n * lanes)) for n in (32, 16, 8) if n * problem.m <= MOST_SUMS
            }
            long = [
                n
                for n, c in counts.items()
                if c >= 2 * properties.cores and even(c, properties.cores)
            ]
            for lines in dict.fromkeys((*long[:1], 4, 2, 8, 1)):
                yield GemvPlan(False, problem.m, lines, lanes)

    def launch(self, blueprint: GemvPlan, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ b (batch, K, N))."""
        (x, b, out), ending = args[:3], Epilogue(*args[3:])
        bias, residual, function, alpha, mask, fill, joined = ending
        plan, batch = blueprint, out.shape[0]
        if batch == 1:
            x, b = x[0], b[0]
        kernel_plan = blueprint_of(plan, function, joined)
        if plan.dot:
            cubes = -(-out.shape[2] // plan.channels)
            dot_rows[(cubes, batch), 1](
                x,
                b.T if batch == 1 else b.transpose(0, 2, 1),
                out,
                bias,
                residual,
                mask,
                float(alpha),
                float(fill),
                plan.rows,
                kernel_plan,
                mode="unchecked",
            )
        elif plan.split_k:
            multiply_split_k(
                x, b, out, bias, residual, mask, float(alpha), float(fill), kernel_plan
            )
        else:
            cubes = -(-out.shape[2] // (plan.lines * plan.lanes))
            sum_rows[(cubes, batch), 1](
                x,
                b,
                out,
                bias,
                residual,
                mask,
                float(alpha),
                float(fill),
                plan.rows,
                kernel_plan,
                mode="unchecked",
            )
