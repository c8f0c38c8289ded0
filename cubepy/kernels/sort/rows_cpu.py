"""Rows that a cache of a CPU holds: networks of lines sort them in one launch."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.primitives.vector_width import power_of_two
from cubepy.kernels.sort import bucketsort_cpu, mergesort_cpu, quicksort_cpu
from cubepy.kernels.sort.network_cpu import masks_of, sort_indices, sort_whole_rows
from cubepy.kernels.sort.problem import Sort, Top
from cubepy.kernels.sort.radix_cpu import FEW, sort_short_rows
from cubepy.tune import CpuRoutine

SHORT = 64  # longest row that is sorted beside others, each in a lane
NEAR = 1 << 14  # longest row that is sorted beside the places of its elements


class ShortRows(CpuRoutine):
    """Short rows beside each other, each in a lane; by radix."""

    name = "short_rows"

    def unfit(self, p: Sort, properties: cb.DeviceProperties) -> str | None:
        """Values of rows of at most SHORT."""
        if p.indices is not None:
            return "for values alone"
        return None if p.x.shape[1] <= SHORT else f"for rows of at most {SHORT}"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """A cube sorts as many rows as a line has lanes."""
        m, n = p.x.shape
        lanes = properties.register_bytes // p.wide
        room = max(lanes, power_of_two(n))
        sort_short_rows[-(-m // lanes), 1](
            p.source, p.target, room, p.keys, room, lanes, mode="checked"
        )


class WholeRows(CpuRoutine):
    """A network of lines sorts a row within the cache."""

    name = "network"

    def unfit(self, p: Sort, properties: cb.DeviceProperties) -> str | None:
        """Values of rows that the cache holds, of one row the nearest one."""
        if p.indices is not None:
            return "for values alone"
        m, n = p.x.shape
        near = m == 1 or quicksort_cpu.parts(p, properties)
        most = mergesort_cpu.RUN if near else bucketsort_cpu.ROOM
        return None if n * p.wide <= most else "rows are longer than the cache holds"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """A cube sorts a row."""
        m, n = p.x.shape
        lanes = properties.register_bytes // p.wide
        flat = (p.source.reshape(-1), masks_of(p.keys), p.target.reshape(-1))
        room = bucketsort_cpu.ROOM // p.wide
        sort_whole_rows[m, 1](*flat, n, room, lanes, mode="unchecked")


class Keyed(CpuRoutine):
    """A network of lines sorts keys beside the places of their elements."""

    name = "network_of_places"

    def unfit(self, p: Sort, properties: cb.DeviceProperties) -> str | None:
        """Places of keys of 32 bits; masks are on the host."""
        if p.indices is None or p.keys.bits > 32:
            return "for places, and keys of 32 bits"
        if not isinstance(p.x, np.ndarray):
            return "for arrays of the host"
        return None if p.x.shape[1] <= NEAR else f"for rows of at most {NEAR}"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """A cube sorts a row."""
        indices_by_network(p.x, p.values, p.indices, p.x.shape[1], p.keys, properties)


class FirstKeyed(CpuRoutine):
    """The same for the first elements of a row."""

    name = "network_of_places"

    def unfit(self, p: Top, properties: cb.DeviceProperties) -> str | None:
        """Where a good part of a row is wanted, of keys of 32 bits."""
        if p.x.itemsize > 4:
            return "for keys of 32 bits"
        few = FEW < p.k and p.x.shape[1] <= min(NEAR, 64 * p.k)
        return None if few else f"for more than {FEW} of at most {NEAR} and of 64 times as many"

    def launch(self, p: Top, properties: cb.DeviceProperties) -> None:
        """A cube sorts a row."""
        indices_by_network(p.x, p.values, p.indices, p.k, p.keys, properties)


def indices_by_network(
    x: Any, values: Any, indices: Any, k: int, keys: Any, properties: cb.DeviceProperties
) -> None:
    """The places of the first k of the sorted elements of rows of x, and the elements, into
    contiguous arrays; keys of 32 bits or less.
    """
    m, n = x.shape
    lanes, bits = max(1, properties.register_bytes // 8), f"u{x.itemsize}"
    found = None if values is None else values.view(bits).reshape(-1)
    sort_indices[m, 1](
        x.view(bits).reshape(-1),
        masks_of(keys),
        found,
        indices.reshape(-1),
        n,
        k,
        keys.same_zeros,
        NEAR,
        lanes,
        mode="unchecked",
    )
