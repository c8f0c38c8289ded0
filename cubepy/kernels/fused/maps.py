"""Several results of the same elements in one pass: a function of values that gives a tuple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.kernels.elementwise.problem import as_stored, described
from cubepy.kernels.elementwise.routines import MAP
from cubepy.kernels.entry.shapes import empty_as, merged, strided
from cubepy.kernels.fused import maps_cpu, maps_gpu
from cubepy.kernels.fused.problem import Maps
from cubepy.lang.declare import Func
from cubepy.runtime import memory
from cubepy.tune import Op


def fused_map(
    function: Func,
    inputs: Sequence[Any],
    shape: tuple[int, ...],
    dtypes: Sequence[Any],
    numbers: tuple[Any, ...] = (),
    results: list[Any] | None = None,
) -> list[Any]:
    """New arrays of what a function gives for all elements of arrays that broadcast to a shape.

    Args:
        function: of `numbers` and as many values as there are arrays; gives a value, or a tuple of
            as many as there are dtypes; always a tuple where there are numbers.
        inputs: arrays.
        shape: of the results.
        dtypes: of the results.
        numbers: arrays of rank 1 that the function gets as they are: what is the same for all
            elements.
        results: arrays to write to, of the shape and the dtypes, which may be inputs; new ones if
            there are none.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.func
        ... def both(numbers, a, b):
        ...     return a * numbers[0] + b, a - b
        >>> two, three, ten = (np.full(2, n, np.float32) for n in (2, 3, 10))
        >>> fused_map(both, (two, three), (2,), (np.float32, np.float16), (ten,))
        [array([23., 23.], dtype=float32), array([-1., -1.], dtype=float16)]
    """
    if results is None:
        results = [empty_as(inputs, shape, np.dtype(d)) for d in dtypes]
    if not results[0].size:
        return results
    if len(results) == 1 and not numbers:
        MAP.run(described(function, list(inputs), results[0]))
        return results
    spread = [x if x.shape == shape else np.broadcast_to(x, shape) for x in inputs]
    arrays = merged(as_stored([*results, *spread]))
    n = len(results)
    FUSED_MAP.run(Maps(function, arrays[:n], arrays[n:], numbers))
    return results


def joined_map(
    function: Func,
    inputs: Sequence[Any],
    shape: tuple[int, ...],
    dtypes: Sequence[Any],
    parts: tuple[int, ...],
    axis: int,
) -> list[Any]:
    """New arrays of what a function gives: some of its results in one array, with an axis of their
    own, then the others.

    Args:
        function: of as many values as there are arrays; gives a tuple of as many as dtypes.
        inputs: arrays that broadcast to the shape.
        shape: of a result; not empty.
        dtypes: of the results; one for all parts.
        parts: which results are in the first array, in this order.
        axis: where their axis is in its shape.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.func
        ... def both(a, b):
        ...     return a + b, a - b
        >>> two, three = (np.full(2, n, np.float32) for n in (2, 3))
        >>> joined_map(both, (two, three), (2,), [np.float32] * 2, (1, 0), 0)[0].tolist()
        [[-1.0, -1.0], [5.0, 5.0]]
    """
    whole = memory.empty((*shape[:axis], len(parts), *shape[axis:]), np.dtype(dtypes[parts[0]]))
    others = [memory.empty(shape, np.dtype(d)) for n, d in enumerate(dtypes) if n not in parts]
    first = whole[(slice(None),) * axis + (0,)]
    spread = [x if x.shape == shape else np.broadcast_to(x, shape) for x in inputs]
    head, *arrays = merged([first, *others, *spread])
    strides = (whole.strides[axis], *head.strides)
    results = [strided(whole, (len(parts), *head.shape), strides), *arrays[: len(others)]]
    FUSED_MAP.run(Maps(function, results, arrays[len(others) :], (), parts))
    return [whole, *others]


FUSED_MAP = Op("fused_map", [maps_gpu.Lines(), maps_cpu.Rows()])
