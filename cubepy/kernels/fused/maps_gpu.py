"""Several results of the same elements by whole cubes: neighbours in memory go to neighbours."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.elementwise.map_gpu import UNITS, LinePlan, read_all, units_across
from cubepy.kernels.fused.problem import Maps, fixed_along_rows, put_all
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.tune import GpuRoutine


@cb.kernel
def map_several_wide(
    results,
    inputs,
    numbers,
    function: cb.Comptime,
    parts: cb.Comptime[tuple],
    plan: cb.Comptime[LinePlan],
):
    """The same by whole cubes: `plan.across` units lie along the last axis, the others of a cube
    along the rows; a unit does a line.
    """
    shape = results[0].shape[1:] if len(parts) > 0 else results[0].shape
    last = len(shape) - 1
    n = shape[last]
    width = plan.across * plan.lanes
    down = cb.CUBE_DIM // plan.across
    blocks = (n + width - 1) // width
    k = multiple(cb.CUBE_POS % blocks * width + cb.UNIT_POS % plan.across * plan.lanes, plan.lanes)
    row = cb.CUBE_POS // blocks * down + cb.UNIT_POS // plan.across
    if row < results[0].size // cb.max(1, len(parts)) // n and k < n:
        lead = cb.unravel(row, shape[:last]) if last > 0 else ()
        found = function(*numbers, *read_all(inputs, lead + (k,), n - k, plan))
        put_all(results, lead, k, found, parts, plan.lanes, n - k)


class Lines(GpuRoutine):
    """Neighbouring units take neighbouring lines."""

    name = "lines"

    def launch(self, p: Maps, properties: cb.DeviceProperties) -> None:
        """A unit does a line of every result."""
        dest, fixed = p.results[0], fixed_along_rows(p.inputs)
        lanes = line_of(*p.results, *(a for a, f in zip(p.inputs, fixed, strict=True) if not f))
        n = dest.shape[-1]
        across = units_across(-(-n // lanes))
        down = UNITS // across
        count = dest.size // max(1, len(p.parts)) // n
        cubes = -(-count // down) * -(-n // (across * lanes))
        plan = LinePlan(lanes, 1, fixed, across)
        given = tuple(p.results), tuple(p.inputs), p.numbers, p.function, p.parts, plan
        map_several_wide[cubes, UNITS](*given, mode="unchecked")
