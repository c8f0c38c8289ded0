"""Elementwise work on a CPU: a cube does a run of neighbours, line by line."""

from __future__ import annotations

import ast
import functools

import cubepy as cb
from cubepy.compiler.source import source_of
from cubepy.kernels.elementwise.map_gpu import converted, widened
from cubepy.kernels.elementwise.problem import Map
from cubepy.kernels.primitives.vector_width import beside, lanes_on
from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func
from cubepy.tune import CpuRoutine

CHUNK = 8192  # elements of a cube
CUBES = 32  # at least, so that threads finish together


@cb.kernel
def map_flat(
    out: cb.Array, inputs, function: cb.Comptime, lanes: cb.Comptime[int], chunk: cb.Comptime[int]
):
    """out[i] = function(inputs[0][i], ...); a cube does `chunk` neighbours."""
    first = cb.CUBE_POS * chunk
    map_run(
        out,
        inputs,
        (),
        function,
        (False,) * len(inputs),
        first,
        cb.min(first + chunk, out.size),
        lanes,
        False,
    )


@cb.kernel
def map_streaming(
    out: cb.Array, inputs, function: cb.Comptime, lanes: cb.Comptime[int], chunk: cb.Comptime[int]
):
    """The same, stored past the caches: for lines that are aligned."""
    first = cb.CUBE_POS * chunk
    map_run(
        out,
        inputs,
        (),
        function,
        (False,) * len(inputs),
        first,
        cb.min(first + chunk, out.size),
        lanes,
        True,
    )


@cb.kernel
def map_rows(
    out: cb.Array,
    inputs,
    function: cb.Comptime,
    fixed: cb.Comptime[tuple],
    rows,
    lanes: cb.Comptime[int],
    chunk: cb.Comptime[int],
):
    """The same for strided arrays of one shape; `fixed[k]`: input k is constant along the last
    axis.

    A cube does a piece of a row, or several rows where they are short.
    """
    last = out.ndim - 1
    pieces = (out.shape[last] + chunk - 1) // chunk
    row = cb.CUBE_POS // pieces * rows
    first = (cb.CUBE_POS % pieces) * chunk
    stop = cb.min(first + chunk, out.shape[last])
    count = cb.min(rows, out.size // out.shape[last] - row)
    lead = cb.unravel(row, out.shape[:last]) if last > 0 else ()
    for _ in range(count):
        map_run(out, inputs, lead, function, fixed, first, stop, lanes, False)
        lead = following(lead, out.shape)


@cb.func
def following(lead, shape):
    """The coordinates of the next row, without a division."""
    found = ()
    carry = True
    for d in cb.unroll(range(len(lead) - 1, -1, -1)):
        at = cb.select(carry, lead[d] + 1, lead[d])
        carry = at >= shape[d]
        found = (cb.select(carry, 0 * at, at),) + found
    return found


@cb.func
def map_run(
    out,
    inputs,
    lead,
    function,
    fixed: cb.Comptime[tuple],
    first,
    stop,
    lanes: cb.Comptime[int],
    streaming: cb.Comptime[bool],
):
    """Elements [first, stop) of a row: lines whole, without a look at bounds, and what is left."""
    for k, valid in cb.lines(first, stop, lanes):
        line = function(*lines_at(inputs, lead, fixed, k, valid, lanes))
        # converted where it is stored, which rounds 16-bit floats once
        if streaming and valid == lanes:
            out.store_stream(lead + (k,), converted(line, out.dtype, lanes))
        else:
            out.store(lead + (k,), converted(line, out.dtype, lanes), valid=valid)


@cb.func
def lines_at(inputs, lead, fixed: cb.Comptime[tuple], k, count, lanes: cb.Comptime[int]):
    """What the function takes from place k of a row on: a line of every input; narrow floats as
    f32.
    """
    values = ()
    for n in cb.unroll(range(len(inputs))):
        values = values + (widened(line_at(inputs[n], lead, fixed[n], k, count, lanes)),)
    return values


@cb.func
def line_at(x, lead, fixed: cb.Comptime[bool], k, count, lanes: cb.Comptime[int]):
    """Neighbours along the last axis; `count` of them are there, None: all."""
    if fixed:
        return cb.splat(x[lead + (0,)], lanes)
    if count is None:
        return x.load(lead + (k,), lanes)
    return x.load(lead + (k,), lanes, valid=count)


class Flat(CpuRoutine):
    """One row without gaps, in pieces."""

    name = "flat"

    def unfit(self, p: Map, properties: cb.DeviceProperties) -> str | None:
        """Arrays that are one row."""
        return None if p.flat else "for arrays without gaps"

    def launch(self, p: Map, properties: cb.DeviceProperties) -> None:
        """A cube does a piece; results that no cache holds are stored past them."""
        dest, inputs, lanes, head = p.dest, p.inputs, lanes_of(p, properties), p.head()
        if head:
            first = tuple(x[:head] for x in inputs)
            map_flat[1, 1](dest[:head], first, p.function, lanes, CHUNK, mode="unchecked")
            dest, inputs = dest[head:], [x[head:] for x in inputs]
        kernel = map_flat if head is None else map_streaming
        cubes = -(-dest.size // CHUNK)
        kernel[cubes, 1](dest, tuple(inputs), p.function, lanes, CHUNK, mode="unchecked")


class Rows(CpuRoutine):
    """Rows of arrays with any strides."""

    name = "rows"

    def launch(self, p: Map, properties: cb.DeviceProperties) -> None:
        """A cube does some rows, or a piece of one."""
        dest, inputs = p.dest, p.inputs
        fixed = tuple(a.strides[-1] == 0 and a.shape[-1] > 1 for a in inputs)
        count, pieces = dest.size // dest.shape[-1], -(-dest.shape[-1] // CHUNK)
        rows = max(1, min(CHUNK // dest.shape[-1], count // CUBES))
        map_rows[-(-count // rows) * pieces, 1](
            dest,
            tuple(inputs),
            p.function,
            fixed,
            rows,
            lanes_of(p, properties),
            CHUNK,
            mode="unchecked",
        )


def lanes_of(p: Map, properties: cb.DeviceProperties) -> int:
    """Lanes of a line: more where a function calls others."""
    lanes = lanes_on(properties, p.dest, *p.inputs)
    if isinstance(p.function, Builtin) or not plain(p.function):
        return lanes * beside(lanes, p.dest, properties)
    most = max(a.itemsize for a in (p.dest, *p.inputs))
    return lanes * max(1, most // max(2, p.dest.itemsize))  # lines that are packed into one


@functools.lru_cache(256)
def plain(function: Func) -> bool:
    """Whether a function calls nothing."""
    return not any(
        isinstance(node, ast.Call)
        for part in source_of(function.fn).tree.body
        for node in ast.walk(part)
    )
