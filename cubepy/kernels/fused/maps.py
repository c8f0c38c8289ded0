"""Several results of the same elements in one pass: a function of values that gives a tuple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.elementwise.map_cpu import CHUNK, CUBES, following, lines_at
from cubepy.kernels.elementwise.map_gpu import UNITS, LinePlan, converted, read_all
from cubepy.kernels.elementwise.problem import described
from cubepy.kernels.elementwise.routines import MAP
from cubepy.kernels.entry.shapes import merged
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import beside, lanes_on, line_of, power_of_two
from cubepy.lang.declare import Func
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, GpuRoutine, Op


class Maps(NamedTuple):
    """results = function(*inputs) for arrays of one shape, not empty, whose axes are merged."""

    function: Func
    results: list[Any]
    inputs: list[Any]


def fused_map(
    function: Func, inputs: Sequence[Any], shape: tuple[int, ...], dtypes: Sequence[Any]
) -> list[Any]:
    """New arrays of what a function gives for all elements of arrays that broadcast to a shape.

    Args:
        function: of as many values as there are arrays; gives a value, or a tuple of as many as
            there are dtypes.
        inputs: arrays.
        shape: of the results.
        dtypes: of the results.
    """
    results = [memory.empty(shape, np.dtype(d)) for d in dtypes]
    if not results[0].size:
        return results
    if len(results) == 1:
        MAP.run(described(function, list(inputs), results[0]))
        return results
    spread = [x if x.shape == shape else np.broadcast_to(x, shape) for x in inputs]
    arrays = merged([*results, *spread])
    n = len(results)
    FUSED_MAP.run(Maps(function, arrays[:n], arrays[n:]))
    return results


@cb.func
def put(out, where, value, lanes: cb.Comptime[int], valid):
    """Store a line as the array's dtype."""
    out.store(where, converted(value, out.dtype, lanes), valid=valid)


@cb.kernel
def map_several(
    results,
    inputs,
    function: cb.Comptime,
    fixed: cb.Comptime[tuple],
    rows,
    lanes: cb.Comptime[int],
    chunk: cb.Comptime[int],
):
    """results[n][i] = function(inputs[0][i], ...)[n] for arrays of one shape; `fixed[k]`: input k is
    constant along the last axis. A cube does a piece of a row, or several rows where they are short.
    """
    out = results[0]
    last = out.ndim - 1
    pieces = (out.shape[last] + chunk - 1) // chunk
    row = cb.CUBE_POS // pieces * rows
    first = (cb.CUBE_POS % pieces) * chunk
    stop = cb.min(first + chunk, out.shape[last])
    count = cb.min(rows, out.size // out.shape[last] - row)
    lead = cb.unravel(row, out.shape[:last]) if last > 0 else ()
    for _ in range(count):
        for k, valid in cb.lines(first, stop, lanes):
            found = function(*lines_at(inputs, lead, fixed, k, valid, lanes))
            for n in cb.unroll(range(len(results))):
                put(results[n], lead + (k,), found[n], lanes, valid)
        lead = following(lead, out.shape)


@cb.kernel
def map_several_wide(results, inputs, function: cb.Comptime, plan: cb.Comptime[LinePlan]):
    """The same by whole cubes: `plan.across` units lie along the last axis, the others of a cube
    along the rows; a unit does a line.
    """
    out = results[0]
    last = out.ndim - 1
    n = out.shape[last]
    width = plan.across * plan.lanes
    down = cb.CUBE_DIM // plan.across
    blocks = (n + width - 1) // width
    k = multiple(cb.CUBE_POS % blocks * width + cb.UNIT_POS % plan.across * plan.lanes, plan.lanes)
    row = cb.CUBE_POS // blocks * down + cb.UNIT_POS // plan.across
    if row < out.size // n and k < n:
        where = (cb.unravel(row, out.shape[:last]) if last > 0 else ()) + (k,)
        found = function(*read_all(inputs, where, n - k, plan))
        for m in cb.unroll(range(len(results))):
            put(results[m], where, found[m], plan.lanes, n - k)


def fixed_along_rows(arrays: Sequence[Any]) -> tuple[bool, ...]:
    """Which arrays are constant along the last axis."""
    return tuple(a.strides[-1] == 0 and a.shape[-1] > 1 for a in arrays)


class Rows(CpuRoutine):
    """A cube does a piece of a row, or some rows."""

    name = "rows"

    def launch(self, p: Maps, properties: cb.DeviceProperties) -> None:
        """Cubes enough for all threads."""
        dest, fixed = p.results[0], fixed_along_rows(p.inputs)
        lanes = lanes_on(properties, *p.results, *p.inputs)
        lanes *= beside(lanes, dest, properties)
        n = dest.shape[-1]
        count, pieces = dest.size // n, -(-n // CHUNK)
        rows = max(1, min(CHUNK // n, count // CUBES))
        cubes = -(-count // rows) * pieces
        given = tuple(p.results), tuple(p.inputs), p.function, fixed, rows, lanes, CHUNK
        map_several[cubes, 1](*given, mode="unchecked")


class Lines(GpuRoutine):
    """Neighbouring units take neighbouring lines."""

    name = "lines"

    def launch(self, p: Maps, properties: cb.DeviceProperties) -> None:
        """A unit does a line of every result."""
        dest, fixed = p.results[0], fixed_along_rows(p.inputs)
        lanes = line_of(*p.results, *(a for a, f in zip(p.inputs, fixed, strict=True) if not f))
        n = dest.shape[-1]
        across = min(UNITS, power_of_two(-(-n // lanes)))
        down = UNITS // across
        cubes = -(-(dest.size // n) // down) * -(-n // (across * lanes))
        plan = LinePlan(lanes, 1, fixed, across)
        given = tuple(p.results), tuple(p.inputs), p.function, plan
        map_several_wide[cubes, UNITS](*given, mode="unchecked")


FUSED_MAP = Op("fused_map", [Lines(), Rows()])
