"""The routines of sorts and of searches for the best elements, in order of preference."""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.sort import radix_cpu, rows_cpu
from cubepy.kernels.sort.bucketsort_cpu import Bucketsort
from cubepy.kernels.sort.mergesort_cpu import Mergesort
from cubepy.kernels.sort.onesweep_gpu import Onesweep
from cubepy.kernels.sort.problem import Sort, Top
from cubepy.kernels.sort.quickselect_cpu import Quickselect
from cubepy.kernels.sort.quicksort_cpu import Quicksort
from cubepy.kernels.sort.radix_block_gpu import BlockRadix
from cubepy.kernels.sort.topk_gpu import Search
from cubepy.runtime import memory
from cubepy.tune import Op, Routine

MOST_BEST = 1024  # largest k of topk that is collected without sorting all

SORT = Op(
    "sort",
    [
        BlockRadix(),
        Onesweep(),
        rows_cpu.ShortRows(),
        rows_cpu.WholeRows(),
        Quicksort(),
        Mergesort(),
        Bucketsort(),
        rows_cpu.Keyed(),
        radix_cpu.Rows(),
        radix_cpu.Pieces(),
    ],
)


class SortAll(Routine):
    """All elements are sorted, and the first copied."""

    name = "sort_all"

    def supports(self, p: Top, properties: cb.DeviceProperties) -> str | None:
        """Where a good part of a row is wanted, or there is no other way."""
        if properties.plane_size > 1 or p.k > MOST_BEST or p.x.shape[1] <= 4 * p.k:
            return None
        return "so few need not be sorted"

    def launch(self, p: Top, properties: cb.DeviceProperties) -> None:
        """By the routine of the sort."""
        values = memory.empty(p.x.shape, p.x.dtype)
        indices = memory.empty(p.x.shape, np.int64)
        SORT.run(Sort(p.x, values, indices, p.keys))
        copy(values[:, : p.k], out=p.values)
        copy(indices[:, : p.k], out=p.indices)


TOPK = Op(
    "topk",
    [
        Search(),
        Quickselect(),
        rows_cpu.FirstKeyed(),
        SortAll(),
        radix_cpu.Few(),
        radix_cpu.Collected(),
    ],
)
