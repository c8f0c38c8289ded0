"""Products of few rows on a GPU: the matrix is read once, at the speed of memory.

Up to 16 rows of 16-bit floats go through matrix units, without shared memory: a sum over K may be
taken in any order, so every unit reads 16 neighbours' bytes of a row of A and of B and calls them
the parts of K that are its own in the fragments. The planes of a cube share K, and their sums meet
in shared memory. Up to 4 rows of f32 are dot products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.operands import NARROW_FLOATS, aligned, fitted
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import GpuRoutine, TunedRoutine

UNITS = 256
PLANES = 8
MOST_ROWS = 16
MOST_DOT_ROWS = 4
SHORT_BYTES, MANY_COLUMNS = 128, 1 << 14
"""Columns so short that a plane has hardly begun when it ends, and of which there are so many, are
tiles' (the filter of a 1 x 1 convolution to one channel).
"""
STEP_WORDS = 64
"""32-bit words of a row that a plane takes in one step of its loop: four loads of 16 bytes a unit.
"""
DOT_STEPS = 4
"""Steps of long dot products whose loads are under way at once."""
LONG = 2048
"""Elements of a long dot product, at least."""


@dataclass(frozen=True)
class Few(Epilogue):
    """What changes the code of a product of few rows, beside the epilogue.

    Attributes:
        dtype: name of the operands' dtype.
        rows: with `dot`, the rows; otherwise 8 or 16.
        groups: with `dot`, columns of a plane; otherwise groups of eight columns of a cube.
        dot: dot products by plain arithmetic instead of matrix units.
        early: a launch may begin while the one before it ends; not with `dot`.
        units: of a cube, which has `PLANES` planes.
        steps: with `dot`, steps of the loop whose loads are under way at once.
    """

    dtype: str
    rows: int = 8
    groups: int = 2
    dot: bool = False
    early: bool = False
    units: int = UNITS
    steps: int = 1

    @property
    def columns(self) -> int:
        """Columns of a cube."""
        return self.groups * 8


@cb.func
def quarter(acc, x, y, low, column, at, left, masked, blueprint):
    """acc += what four words of each row give: two matrix instructions for every eight columns."""
    m, n = x.shape[0], y.shape[0]
    one = words(x, cb.min(low, m - 1), at, left, masked)
    two = cb.splat(cb.cast(0, cb.u32), 4)
    if blueprint.rows > 8:
        two = words(x, cb.min(low + 8, m - 1), at, left, masked)
    first = cb.interleave(cb.slice_line(one, 0, 2), cb.slice_line(two, 0, 2))
    second = cb.interleave(cb.slice_line(one, 2, 2), cb.slice_line(two, 2, 2))
    for c in cb.unroll(range(blueprint.groups)):
        b = words(y, cb.min(column + c * 8 + low, n - 1), at, left, masked)
        acc[c] = cb.mma(first, cb.slice_line(b, 0, 2), acc[c], blueprint.dtype)
        acc[c] = cb.mma(second, cb.slice_line(b, 2, 2), acc[c], blueprint.dtype)


@cb.func
def words(source, row, at, left, masked):
    """Four neighbours of a row; zeros from `left` on."""
    if masked:
        return source.load((row, at), 4, valid=cb.max(left, 0))
    return source.load((row, at), 4)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def few_rows(
    x: cb.Array, y: cb.Array, out: cb.Array, bias, residual, alpha: cb.f32, blueprint: cb.Comptime
):
    """out[0] = epilogue(a @ b.T) for x, y: the words (u32) of a (M, K) and b (N, K), K a multiple
    of 8.
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    if blueprint.early:
        cb.start_next()
        cb.wait_previous()
    width = x.shape[1]
    lane = cb.UNIT_POS_PLANE
    low = lane // 4
    offset = lane % 4 * 4
    column = cb.CUBE_POS * blueprint.columns
    acc = cb.local(blueprint.groups, cb.f32, lanes=4)
    for c in cb.unroll(range(blueprint.groups)):
        acc[c] = cb.splat(0.0, 4)
    whole = width // STEP_WORDS * STEP_WORDS
    for w in range(cb.PLANE_POS * STEP_WORDS, whole, PLANES * STEP_WORDS):
        for q in cb.unroll(range(0, STEP_WORDS, 16)):
            quarter(acc, x, y, low, column, w + q + offset, 0, False, blueprint)
    if whole < width and cb.PLANE_POS == PLANES - 1:
        for q in cb.unroll(range(0, STEP_WORDS, 16)):
            at = whole + q + offset
            quarter(acc, x, y, low, column, at, width - at, True, blueprint)
    sums = cb.shared(PLANES * blueprint.rows * blueprint.columns, cb.f32)
    for c in cb.unroll(range(blueprint.groups)):
        to = (cb.PLANE_POS * blueprint.rows + low) * blueprint.columns + c * 8 + lane % 4 * 2
        sums.store(to, cb.slice_line(acc[c], 0, 2))
        if blueprint.rows > 8:
            sums.store(to + 8 * blueprint.columns, cb.slice_line(acc[c], 2, 2))
    cb.sync_cube()
    for i in range(cb.UNIT_POS, blueprint.rows * blueprint.columns, UNITS):
        total = sums[i]
        for p in cb.unroll(range(1, PLANES)):
            total = total + sums[p * blueprint.rows * blueprint.columns + i]
        epilogue.finish_inside(
            cb.splat(total, 1), 0, i // blueprint.columns, column + i % blueprint.columns
        )


@cb.func
def dot_step(acc, x, y, column, k, left, n, masked, blueprint):
    """acc += four products a unit, for every row and column."""
    for c in cb.unroll(range(blueprint.groups)):
        b = cb.cast(words(y, cb.min(column + c, n - 1), k, left, masked), cb.f32)
        for i in cb.unroll(range(blueprint.rows)):
            acc[i, c] = cb.fma(cb.cast(words(x, i, k, left, masked), cb.f32), b, acc[i, c])


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def dot_rows(
    x: cb.Array, y: cb.Array, out: cb.Array, bias, residual, alpha: cb.f32, blueprint: cb.Comptime
):
    """out[0] = epilogue(x @ y.T) for x (M, K) and y (N, K): a plane has `groups` columns, its units
    share K.
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    n, depth = y.shape[0], x.shape[1]
    lane = cb.UNIT_POS_PLANE
    column = (cb.CUBE_POS * PLANES + cb.PLANE_POS) * blueprint.groups
    acc = cb.local((blueprint.rows, blueprint.groups), cb.f32, lanes=4)
    for i in cb.unroll(range(blueprint.rows)):
        for c in cb.unroll(range(blueprint.groups)):
            acc[i, c] = cb.splat(0.0, 4)
    step = 4 * cb.PLANE_DIM
    whole = depth // step * step
    together = depth // (step * blueprint.steps) * (step * blueprint.steps)
    for k in range(lane * 4, together, step * blueprint.steps):
        for j in cb.unroll(range(blueprint.steps)):
            dot_step(acc, x, y, column, k + j * step, 0, n, False, blueprint)
    if blueprint.steps > 1:
        for k in range(together + lane * 4, whole, step):
            dot_step(acc, x, y, column, k, 0, n, False, blueprint)
    k = whole + lane * 4
    if k + 4 <= depth:
        dot_step(acc, x, y, column, k, 0, n, False, blueprint)
    elif k < depth:
        dot_step(acc, x, y, column, k, depth - k, n, True, blueprint)
    for i in cb.unroll(range(blueprint.rows)):
        for c in cb.unroll(range(blueprint.groups)):
            total = cb.plane_sum(acc[i, c].sum())
            if lane == 0 and column + c < n:
                epilogue.finish_inside(cb.splat(total, 1), 0, i, column + c)


class FewRoutine(GpuRoutine, TunedRoutine):
    """Few rows: b is read once, along its columns."""

    name = "few"

    def group(self, key: Product) -> int:
        """Before all others where it fits."""
        return 4

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """One product of floats, few rows, and neighbours along K."""
        out = result_dtype(problem)
        if problem.batch != 1 or problem.layout != "columns" or not out.is_float or out.bits > 32:
            return "it takes one product of floats, with neighbours along K"
        if problem.k * as_dtype(problem.a).itemsize <= SHORT_BYTES and problem.n >= MANY_COLUMNS:
            return "columns are too short, and too many"
        if "mma" in properties.features and problem.a == problem.b and problem.a in NARROW_FLOATS:
            if problem.k % 8 == 0 and problem.aligned:
                return None if problem.m <= MOST_ROWS else f"at most {MOST_ROWS} rows"
        return (
            None if problem.m <= MOST_DOT_ROWS else f"at most {MOST_DOT_ROWS} rows of {problem.a}"
        )

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Few]:
        """Fewer columns a cube where there are few of them, and where 8 rows need little of x."""
        mma = "mma" in properties.features and problem.a == problem.b and problem.a in NARROW_FLOATS
        dot = not (mma and problem.k % 8 == 0 and problem.aligned)
        rows = problem.m if dot else 8 if problem.m <= 8 else 16
        few = dot and -(-problem.n // (2 * PLANES)) < properties.cores
        steps = DOT_STEPS if dot and problem.k >= LONG else 1
        units = PLANES * properties.plane_size
        for groups in (1, 2, 4) if few or (rows == 8 and not dot) else (2, 4, 1):
            plan = Few(problem.a, rows, groups, dot, units=units, steps=steps)
            # of two launches at once, cubes of 8 rows would stand unevenly on the cores, unless
            # there are many
            many = rows > 8 or -(-problem.n // plan.columns) > 4 * properties.cores
            yield replace(plan, early="overlap" in properties.features and many and not dot)

    def launch(self, blueprint: Few, problem: Product, args: tuple[Any, ...]) -> None:
        """out (1, M, N) = epilogue(x (1, M, K) @ y (1, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        x, y = x if aligned(x) else copy(x), y[0].T
        x = x[0]
        plan = fitted(blueprint, args)
        kernel, columns = dot_rows, plan.groups * PLANES
        if not plan.dot:
            x, y, kernel = x.view("u4"), y.view("u4"), few_rows
        kernel[-(-y.shape[0] // columns), plan.units](
            x, y, out, bias, residual, float(alpha), plan, mode="unchecked"
        )
