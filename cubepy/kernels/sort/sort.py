"""Sorting along an axis: values by networks of lines and buckets, places by radix (stable); NaN
last.

Whole launches wait for the last thread, so a sort of values is few of them: rows that a cache holds
take one, longer ones one more for every doubling (`sort.mergesort_cpu`), the longest five
(`sort.bucketsort_cpu`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.entry.arguments import array_of, axis_of
from cubepy.kernels.entry.dispatch import has_planes, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.vector_width import power_of_two
from cubepy.kernels.scan.problem import Scan
from cubepy.kernels.scan.routines import SCAN
from cubepy.kernels.sort import bucketsort_cpu, mergesort_cpu, quicksort_cpu
from cubepy.kernels.sort.keys import Keys
from cubepy.kernels.sort.network_cpu import masks_of, sort_places, sort_whole_rows
from cubepy.kernels.sort.radix_cpu import (
    count_digits,
    move_keys,
    passes_of,
    sort_rows,
    sort_short_rows,
)
from cubepy.lang.dtypes import as_dtype, i32
from cubepy.runtime import memory

SHORT = 64  # longest row that is sorted beside others, each in a lane
ROOM = 8192  # longest row that is sorted within the cache, by one unit
PIECES = 8  # of a long row, at most
NEAR = 1 << 14  # longest row that is sorted beside the places of its elements
FEW, FEW_OF = (
    16,
    1 << 16,
)  # largest k of topk that is kept in order all the time, and the longest row
MOST_BEST = 1024  # largest k of topk that is collected without sorting all


def keys_of(dtype: Any, descending: bool, same_zeros: bool) -> Keys:
    found = as_dtype(dtype)
    if found.storage_only:
        raise DTypeError(f"sort works on dtypes that kernels compute with, not {found.name}")
    bits = 8 * found.itemsize
    kind = "float" if found.is_float else ("signed" if found.kind == "i" else "unsigned")
    infinity = (
        int(np.array(np.inf, found.numpy).view(f"u{found.itemsize}")) if kind == "float" else 0
    )
    return Keys(kind, bits, infinity, descending, same_zeros and kind == "float")


def sorted_rows(x: Any, values: Any, indices: Any, descending: bool) -> None:
    """Sort (rows, n), contiguous, into `values` and its permutation into `indices`; either may be
    None.
    """
    m, n = x.shape
    keys = keys_of(x.dtype, descending, indices is not None)
    source = x.view(f"u{x.itemsize}")
    target: Any = None if values is None else values.view(f"u{x.itemsize}")
    if has_planes():
        from cubepy.kernels.sort.radix_block_gpu import sort_by_planes

        sort_by_planes(source, target, indices, keys)
    elif n <= SHORT and indices is None:
        lanes = cb.device_properties_of().register_bytes // max(4, x.itemsize)
        room = max(lanes, power_of_two(n))
        sort_short_rows[-(-m // lanes), 1](source, target, room, keys, room, lanes, mode="checked")
    elif indices is None:
        wide = max(4, x.itemsize)
        parted = quicksort_cpu.quick() and (wide == 8 or n > mergesort_cpu.FEW)
        if n * wide <= (mergesort_cpu.RUN if m == 1 or parted else bucketsort_cpu.ROOM):
            lanes = cb.device_properties_of().register_bytes // wide
            flat = (source.reshape(-1), masks_of(keys), target.reshape(-1))
            sort_whole_rows[m, 1](*flat, n, bucketsort_cpu.ROOM // wide, lanes, mode="unchecked")
        elif parted and n <= quicksort_cpu.MOST >> (4 if keys.bits <= 16 else 0):
            quicksort_cpu.sort_by_quicksort(source, target, masks_of(keys))
        elif n <= mergesort_cpu.MOST >> (
            2 if keys.bits <= 16 else 0
        ):  # buckets only count keys of so few bits
            mergesort_cpu.sort_by_runs(source, target, masks_of(keys))
        else:
            bucketsort_cpu.sort_by_buckets(source, target, masks_of(keys))
    elif keys.bits <= 32 and n <= NEAR and isinstance(x, np.ndarray):  # its masks are on the host
        places_by_network(x, values, indices, n, keys)
    elif n <= ROOM:
        digits = 11 if n >= 2048 else 8
        sort_rows[m, 1](
            source,
            target,
            indices,
            1 << digits,
            keys,
            digits,
            max(16, power_of_two(n)),
            indices is not None,
            mode="unchecked",
        )
    else:
        _by_pieces(source, target, indices, keys)


def places_by_network(x: Any, values: Any, indices: Any, k: int, keys: Keys) -> None:
    """The places of the first k of the sorted elements of rows of x, and the elements, into
    contiguous arrays; keys of 32 bits or less.
    """
    m, n = x.shape
    lanes, bits = max(1, cb.device_properties_of().register_bytes // 8), f"u{x.itemsize}"
    found = None if values is None else values.view(bits).reshape(-1)
    sort_places[m, 1](
        x.view(bits).reshape(-1), masks_of(keys), found, indices.reshape(-1), n, k, keys.same_zeros, NEAR, lanes,
        mode="unchecked",
    )  # fmt: skip


def _by_pieces(x: Any, values: Any, indices: Any, keys: Keys) -> None:
    """The passes over long rows, cut into pieces."""
    m, n = x.shape
    digits = 11 if keys.bits > 16 else 8
    pieces = max(1, min(PIECES, n // 8192)) if m < PIECES else 1
    piece = -(-n // pieces)
    pieces = -(-n // piece)
    counts = memory.empty((m, 1 << digits, pieces), np.int32)
    places = memory.empty(counts.shape, np.int32)
    for p, (here, order, out, out_order, first, last) in enumerate(
        passes_of(x, values, indices, keys, digits)
    ):
        count_digits[m * pieces, 1](
            here, counts, p * digits, piece, keys, digits, first, mode="unchecked"
        )
        flat = (m, counts.size // m)
        SCAN.run(Scan(counts.reshape(flat), places.reshape(flat), f.add, 0, i32, True))
        move_keys[m * pieces, 1](
            here,
            order,
            places,
            out,
            out_order,
            p * digits,
            piece,
            keys,
            digits,
            first,
            last,
            mode="unchecked",
        )


def in_rows(x: Any, axis: Any, name: str) -> tuple[Any, int, tuple[int, ...]]:
    """The array with `axis` last and contiguous, the axis, and the permutation that made it so."""
    array = array_of(x)
    if axis is None:
        array, axis = contiguous(array).reshape(-1), 0
    if array.ndim == 0:
        raise ShapeError(f"{name} needs an array of rank 1 or more")
    d = axis_of(axis, array.ndim)
    moved = (*(k for k in range(array.ndim) if k != d), d)
    return contiguous(array.transpose(moved)), d, moved


def order_back(moved: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    return tuple(moved.index(d) for d in range(len(moved)))


def _sort(x: Any, axis: Any, descending: bool, out: Any, by_index: bool) -> Any:
    wrap = wrapper(x)
    rows, d, moved = in_rows(x, axis, "argsort" if by_index else "sort")
    shape = list(rows.shape[:-1])
    shape.insert(d, rows.shape[-1])
    target = output(out, tuple(shape), np.int64 if by_index else rows.dtype)
    if target.size:
        straight = d == rows.ndim - 1 and target.flags.c_contiguous
        done = target if straight else memory.empty(rows.shape, target.dtype)
        n = rows.shape[-1]
        flat = done.reshape(-1, n)
        sorted_rows(
            rows.reshape(-1, n), None if by_index else flat, flat if by_index else None, descending
        )
        if not straight:
            copy(done.transpose(order_back(moved)), out=target)
    return finish(target, out, wrap)


@repeated
def sort(x: Any, axis: Any = -1, descending: bool = False, *, out: Any = None) -> Any:
    """The elements in order along an axis, as `numpy.sort`: NaN last (first when descending).

    Args:
        x: array of any shape, strides and dtype.
        axis: int; None sorts the flattened array.
        descending: largest first.
        out: array to write.

    Example:
        >>> import numpy as np
        >>> sort(np.array([3, 1, 2])), sort(np.array([3.0, np.nan, 2.0]), descending=True)
        (array([1, 2, 3]), array([nan,  3.,  2.]))
    """
    return _sort(x, axis, descending, out, by_index=False)


@repeated
def argsort(x: Any, axis: Any = -1, descending: bool = False, *, out: Any = None) -> Any:
    """The indices (i64) that sort an axis, as `numpy.argsort(x, axis, stable=True)`: equal elements
    keep their order.

    Args:
        x, axis, descending, out: as for `sort`.

    Example:
        >>> import numpy as np
        >>> argsort(np.array([3, 1, 3, 2]), descending=True)
        array([0, 2, 3, 1])
    """
    return _sort(x, axis, descending, out, by_index=True)
