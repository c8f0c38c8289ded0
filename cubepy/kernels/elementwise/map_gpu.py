"""Elementwise work by whole cubes, for devices with planes: neighbouring units take neighbouring
lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import cubepy as cb
from cubepy.kernels.elementwise.problem import Map, identity
from cubepy.kernels.primitives.functions_half import NARROW
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import GpuRoutine

UNITS = 256  # of a cube
PLANE = 32
"""Units that read a stretch of memory at once, at least."""
QUICK = ("contract", "afn", "nsz")
AHEAD = 4  # lines that a unit reads before it writes the first, of all inputs together
LEAST_BYTES = 16
"""Of arrays that a unit reads before it writes, where lines are short: rows begin anywhere."""
BUSY = 0.9
"""Part of a cube's units that have a line, of which more is not better."""


@dataclass(frozen=True)
class LinePlan:
    """Lanes of a line, lines of a unit, which inputs are constant along the last axis, and whether
    launches may overlap.
    """

    lanes: int
    ahead: int
    fixed: tuple[bool, ...]
    across: int = 1
    early: bool = False


@cb.func
def converted(value, dtype, lanes):
    """A result as a line of the output's dtype; constants fill the line."""
    return cb.splat(cb.cast(value, dtype), lanes)


@cb.func
def read_all(inputs, where, count, plan: cb.Comptime[LinePlan]):
    """A line of every input from the coordinates `where` on; `count` elements are there, None for a
    whole line.
    """
    values = ()
    for n in cb.unroll(range(len(inputs))):
        if plan.fixed[n]:
            values = values + (
                widened(cb.splat(inputs[n][where[: len(where) - 1] + (0,)], plan.lanes)),
            )
        elif count is None:
            values = values + (widened(inputs[n].load(where, plan.lanes)),)
        else:
            values = values + (widened(inputs[n].load(where, plan.lanes, valid=count)),)
    return values


@cb.func
def widened(line):
    """Narrow floats as f32: a function of them is computed there and rounded once, when it is
    stored.
    """
    if line.dtype.is_float and line.dtype.bits < 32:
        return cb.cast(line, cb.f32)
    return line


def lines_of(out: cb.Array, inputs, function: cb.Comptime, plan: cb.Comptime[LinePlan]):
    """out[i] = function(inputs[0][i], ...) for arrays of rank 1; a unit's lines are a cube's width
    apart.
    """
    if plan.early:
        cb.start_next()
        cb.wait_previous()
    hop = cb.CUBE_DIM * plan.lanes
    begin = cb.CUBE_POS * (hop * plan.ahead)
    first = begin + cb.UNIT_POS * plan.lanes
    many = len(inputs)
    if begin + hop * plan.ahead <= out.size:
        values = ()
        for j in cb.unroll(range(plan.ahead)):
            values = values + read_all(inputs, (first + j * hop,), None, plan)
        for j in cb.unroll(range(plan.ahead)):
            result = function(*values[j * many : (j + 1) * many])
            out.store(first + j * hop, converted(result, out.dtype, plan.lanes))
    else:
        for k in range(first, out.size, hop):
            result = function(*read_all(inputs, (k,), out.size - k, plan))
            out.store(k, converted(result, out.dtype, plan.lanes), valid=out.size - k)


map_lines = cb.kernel(lines_of)
quick_lines = cb.kernel(fast_math=QUICK)(lines_of)
"""For functions of `primitives.functions_half`."""


def rows_of(out: cb.Array, inputs, function: cb.Comptime, plan: cb.Comptime[LinePlan]):
    """The same for strided arrays of one shape and of rank 2 or more: `plan.across` units lie along
    the last axis, the others of a cube along the rows.
    """
    last = out.ndim - 1
    n = out.shape[last]
    width = plan.across * plan.lanes
    down = cb.CUBE_DIM // plan.across
    blocks = (n + width - 1) // width
    k = multiple(cb.CUBE_POS % blocks * width + cb.UNIT_POS % plan.across * plan.lanes, plan.lanes)
    first = cb.CUBE_POS // blocks * (down * plan.ahead) + cb.UNIT_POS // plan.across
    rows = 1
    for d in cb.unroll(range(last)):
        rows = rows * out.shape[d]
    many = len(inputs)
    if k + plan.lanes <= n and first + (plan.ahead - 1) * down < rows:
        values = ()
        indices = ()
        for j in cb.unroll(range(plan.ahead)):
            where = cb.unravel(first + j * down, out.shape[:last]) + (k,)
            indices = indices + (where,)
            values = values + read_all(inputs, where, None, plan)
        for j in cb.unroll(range(plan.ahead)):
            result = function(*values[j * many : (j + 1) * many])
            out.store(indices[j], converted(result, out.dtype, plan.lanes))
    elif k < n:
        for row in range(first, cb.min(first + plan.ahead * down, rows), down):
            here = cb.unravel(row, out.shape[:last]) + (k,)
            result = function(*read_all(inputs, here, n - k, plan))
            out.store(here, converted(result, out.dtype, plan.lanes), valid=n - k)


map_rows_wide = cb.kernel(rows_of)
quick_rows = cb.kernel(fast_math=QUICK)(rows_of)
"""For functions of `primitives.functions_half`."""


def units_across(lines: int) -> int:
    """Units along a row of so many lines, a power of two: of those that few units idle with, or
    else the fewest, the most.
    """
    most = min(UNITS, power_of_two(lines))
    widths = [most >> k for k in range(4) if most >> k >= PLANE] or [most]
    return max(widths, key=lambda units: (min(BUSY, lines / (-(-lines // units) * units)), units))


class Lines(GpuRoutine):
    """Neighbouring units take neighbouring lines.

    Copies are fastest when cubes read few bytes in a row; functions hide their own time behind
    several reads.
    """

    name = "lines"

    def launch(self, p: Map, properties: cb.DeviceProperties) -> None:
        """A unit does some lines."""
        function, dest, inputs = p.function, p.dest, p.inputs
        computes = function is not identity
        result = as_dtype(dest.dtype)
        quick = NARROW.get(function) if result.is_float and result.bits == 16 else None
        fixed = tuple(a.strides[-1] == 0 and a.shape[-1] > 1 for a in inputs)
        lanes = line_of(dest, *(a for a, f in zip(inputs, fixed, strict=True) if not f))
        wide = max(1, fixed.count(False))
        ahead = max(1, AHEAD // wide) if computes else 1
        if dest.ndim == 1:
            early = "overlap" in properties.features
            plan = LinePlan(lanes, ahead, fixed, early=early)
            cubes = -(-dest.size // (UNITS * lanes * ahead))
            kernel = map_lines if quick is None else quick_lines
            kernel[cubes, UNITS](dest, tuple(inputs), quick or function, plan, mode="unchecked")
            return
        n = dest.shape[-1]
        across = units_across(-(-n // lanes))
        blocks, down = -(-n // (across * lanes)), UNITS // across
        short = LEAST_BYTES // (lanes * max(a.itemsize for a in (dest, *inputs))) // wide
        if short > ahead and dest.size // n // (down * short) * blocks >= properties.cores:
            ahead = short
        plan = LinePlan(lanes, ahead, fixed, across)
        cubes = -(-(dest.size // n) // (down * ahead)) * blocks
        kernel = map_rows_wide if quick is None else quick_rows
        kernel[cubes, UNITS](dest, tuple(inputs), quick or function, plan, mode="unchecked")
