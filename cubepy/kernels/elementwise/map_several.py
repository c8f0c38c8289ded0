"""Elementwise work with several results, and with numbers that are the same for all elements: the
steps of optimizers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.elementwise.map_cpu import CHUNK
from cubepy.kernels.elementwise.map_gpu import UNITS, converted, widened
from cubepy.kernels.primitives.vector_width import lanes_on, line_of
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, GpuRoutine, Op


class SeveralMap(NamedTuple):
    """dests = function(numbers, *inputs) for arrays that are one row of one length each.

    Attributes:
        function: gives a tuple, a value for each of `dests`.
        numbers: of rank 1: what is the same for all elements.
    """

    function: Any
    dests: tuple[Any, ...]
    inputs: tuple[Any, ...]
    numbers: Any


@cb.kernel
def several_run(
    dests,
    inputs,
    numbers: cb.Array,
    function: cb.Comptime,
    lanes: cb.Comptime[int],
    chunk: cb.Comptime[int],
):
    """dests[n][i] = function(numbers, inputs[0][i], ...)[n]; a cube does `chunk` neighbours."""
    first = cb.CUBE_POS * chunk
    stop = cb.min(first + chunk, dests[0].size)
    for k, valid in cb.lines(first, stop, lanes):
        values = tuple(widened(x.load(k, lanes, valid=valid)) for x in cb.unroll(inputs))
        found = function(numbers, *values)
        for n in cb.unroll(range(len(dests))):
            dests[n].store(k, converted(found[n], dests[n].dtype, lanes), valid=valid)


@cb.kernel
def several_lines(dests, inputs, numbers: cb.Array, function: cb.Comptime, lanes: cb.Comptime[int]):
    """The same; a unit does a line."""
    k = cb.ABSOLUTE_POS * lanes
    if k < dests[0].size:
        left = dests[0].size - k
        values = tuple(widened(x.load(k, lanes, valid=left)) for x in cb.unroll(inputs))
        found = function(numbers, *values)
        for n in cb.unroll(range(len(dests))):
            dests[n].store(k, converted(found[n], dests[n].dtype, lanes), valid=left)


class Run(CpuRoutine):
    """Pieces of the row, line by line."""

    name = "run"

    def launch(self, p: SeveralMap, properties: cb.DeviceProperties) -> None:
        """A cube does a piece."""
        lanes = lanes_on(properties, *p.dests, *p.inputs)
        cubes = -(-p.dests[0].size // CHUNK)
        several_run[cubes, 1](
            p.dests, p.inputs, p.numbers, p.function, lanes, CHUNK, mode="unchecked"
        )


class SeveralLines(GpuRoutine):
    """Neighbouring units take neighbouring lines."""

    name = "lines"

    def launch(self, p: SeveralMap, properties: cb.DeviceProperties) -> None:
        """A unit does a line."""
        lanes = line_of(*p.dests, *p.inputs)
        cubes = -(-p.dests[0].size // (UNITS * lanes))
        several_lines[cubes, UNITS](
            p.dests, p.inputs, p.numbers, p.function, lanes, mode="unchecked"
        )


SEVERAL = Op("map_several", [SeveralLines(), Run()])


def map_several(function: Any, numbers: Any, *inputs: Any, results: int) -> list[Any]:
    """New arrays of what a function gives for each element, in one pass.

    Args:
        function: a `@cb.func` of `numbers` and a value of each input; gives a tuple.
        numbers: an array of rank 1, beside the inputs, in the dtype in which it is computed.
        inputs: arrays of one shape and dtype, in C order.
        results: how many values the function gives.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.func
        ... def both(numbers, a, b):
        ...     return a * numbers[0] + b, a - b
        >>> two, three = np.full(2, 2, np.float32), np.full(2, 3, np.float32)
        >>> map_several(both, np.full(1, 10, np.float32), two, three, results=2)
        [array([23., 23.], dtype=float32), array([-1., -1.], dtype=float32)]
    """
    like = inputs[0]
    made = [memory.empty(like.shape, like.dtype) for _ in range(results)]
    if like.size:
        flat = tuple(x.reshape(-1) for x in inputs)
        SEVERAL.run(SeveralMap(function, tuple(m.reshape(-1) for m in made), flat, numbers))
    return made
