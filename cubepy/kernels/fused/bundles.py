"""One function of elements for several sets of arrays in one launch: many small maps of the same
arithmetic, such as the steps of an optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.kernels.fused import bundles_cpu, bundles_gpu
from cubepy.kernels.fused.maps import fused_map
from cubepy.kernels.fused.problem import Bundle
from cubepy.lang.declare import Func
from cubepy.runtime import memory
from cubepy.tune import Op


def bundled_map(
    function: Func,
    members: Sequence[Sequence[Any]],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[Any],
    numbers: tuple[Any, ...] = (),
) -> list[Any]:
    """New arrays of what a function gives for all elements of each member's arrays, member by
    member.

    Args:
        function: of `numbers` and as many values as a member has arrays (see `fused_map`).
        members: arrays of the member's shape, or of one element. What is of one element for one
            member is so for all of them, as are dtypes.
        shapes: of the results of a member; not empty.
        dtypes: of the results of a member.
        numbers: arrays of rank 1 that the function gets as they are.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.func
        ... def less(numbers, a, b):
        ...     return (a - b * numbers[0],)
        >>> one, two, half = np.ones(2, np.float32), np.full(3, 2, np.float32), np.full(1, 0.5)
        >>> bundled_map(less, [(one, one), (two, two)], [(2,), (3,)], [np.float32], (half,))
        [array([0.5, 0.5], dtype=float32), array([1., 1., 1.], dtype=float32)]
    """
    if any(not x.flags.c_contiguous for given in members for x in given):
        return [
            made
            for given, shape in zip(members, shapes, strict=True)
            for made in fused_map(function, given, shape, dtypes, numbers)
        ]
    results = [memory.empty(shape, np.dtype(d)) for shape in shapes for d in dtypes]
    sizes = [r.size for r in results[:: len(dtypes)]]
    wide = max(sizes) > 1
    fixed = tuple([wide and all(x.size == 1 for x in xs) for xs in zip(*members, strict=True)])
    given = [x.reshape(-1) for arrays in members for x in arrays]
    flat = [r.reshape(-1) for r in results]
    BUNDLED_MAP.run(Bundle(function, flat, given, len(members), fixed, numbers))
    return results


BUNDLED_MAP = Op("bundled_map", [bundles_gpu.Pieces(), bundles_cpu.Pieces()])
