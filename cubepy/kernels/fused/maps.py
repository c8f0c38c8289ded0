"""Several results of the same elements in one pass: a function of values that gives a tuple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.kernels.elementwise.problem import described
from cubepy.kernels.elementwise.routines import MAP
from cubepy.kernels.entry.shapes import merged
from cubepy.kernels.fused import maps_cpu, maps_gpu
from cubepy.kernels.fused.problem import Maps
from cubepy.lang.declare import Func
from cubepy.runtime import memory
from cubepy.tune import Op


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


FUSED_MAP = Op("fused_map", [maps_gpu.Lines(), maps_cpu.Rows()])
