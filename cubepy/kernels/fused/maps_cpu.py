"""Several results of the same elements on a CPU: a cube does a run of neighbours, line by line."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.elementwise.map_cpu import CHUNK, CUBES, following, lines_at
from cubepy.kernels.fused.problem import Maps, fixed_along_rows, put_all
from cubepy.kernels.primitives.vector_width import beside, lanes_on
from cubepy.tune import CpuRoutine


@cb.kernel
def map_several(
    results,
    inputs,
    numbers,
    function: cb.Comptime,
    fixed: cb.Comptime[tuple],
    parts: cb.Comptime[tuple],
    rows,
    lanes: cb.Comptime[int],
    chunk: cb.Comptime[int],
):
    """results[n][i] = function(*numbers, inputs[0][i], ...)[n] of arrays of one shape; `fixed[k]`:
    input k is constant along the last axis; `parts` of what the function gives lie in results[0]. A
    cube does a piece of a row, or several short rows.
    """
    shape = results[0].shape[1:] if len(parts) > 0 else results[0].shape
    last = len(shape) - 1
    pieces = (shape[last] + chunk - 1) // chunk
    row = cb.CUBE_POS // pieces * rows
    first = (cb.CUBE_POS % pieces) * chunk
    stop = cb.min(first + chunk, shape[last])
    count = cb.min(rows, results[0].size // cb.max(1, len(parts)) // shape[last] - row)
    lead = cb.unravel(row, shape[:last]) if last > 0 else ()
    for _ in range(count):
        for k, valid in cb.lines(first, stop, lanes):
            found = function(*numbers, *lines_at(inputs, lead, fixed, k, valid, lanes))
            put_all(results, lead, k, found, parts, lanes, valid)
        lead = following(lead, shape)


class Rows(CpuRoutine):
    """A cube does a piece of a row, or some rows."""

    name = "rows"

    def launch(self, p: Maps, properties: cb.DeviceProperties) -> None:
        """Cubes enough for all threads."""
        dest, fixed = p.results[0], fixed_along_rows(p.inputs)
        lanes = lanes_on(properties, *p.results, *p.inputs)
        lanes *= beside(lanes, dest, properties)
        n = dest.shape[-1]
        count, pieces = dest.size // max(1, len(p.parts)) // n, -(-n // CHUNK)
        rows = max(1, min(CHUNK // n, count // CUBES))
        cubes = -(-count // rows) * pieces
        given = tuple(p.results), tuple(p.inputs), p.numbers
        how = p.function, fixed, p.parts, rows, lanes, CHUNK
        map_several[cubes, 1](*given, *how, mode="unchecked")
