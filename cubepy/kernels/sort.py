"""Sorting along an axis: values by networks of lines and buckets, places by radix (stable); NaN last.

Whole launches wait for the last thread, so a sort of values is few of them: rows that a cache holds take one, longer
ones five (`sort_buckets`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels import functions as f
from cubepy.kernels import sort_buckets, topk_planes
from cubepy.kernels.arguments import array_of, axis_of, finish, output, placed, whole, wrapper
from cubepy.kernels.cube_wide import has_planes, power_of_two
from cubepy.kernels.elementwise import contiguous
from cubepy.kernels.radix import Keys, count_digits, move_keys, sort_rows, sort_short_rows, top_rows
from cubepy.kernels.scan import scan_along_rows
from cubepy.kernels.sort_lines import masks_of, sort_whole_rows
from cubepy.lang.dtypes import as_dtype, i32
from cubepy.runtime import memory

SHORT = 64  # longest row that is sorted beside others, each in a lane
ROOM = 8192  # longest row that is sorted within the cache, by one unit
PIECES = 8  # of a long row, at most
MOST_BEST = 1024  # largest k of topk that is collected without sorting all


def _keys(dtype: Any, descending: bool, same_zeros: bool) -> Keys:
    found = as_dtype(dtype)
    if found.storage_only:
        raise DTypeError(f"sort works on dtypes that kernels compute with, not {found.name}")
    bits = 8 * found.itemsize
    kind = "float" if found.is_float else ("signed" if found.kind == "i" else "unsigned")
    infinity = int(np.array(np.inf, found.numpy).view(f"u{found.itemsize}")) if kind == "float" else 0
    return Keys(kind, bits, infinity, descending, same_zeros and kind == "float")


def _sorted_rows(x: Any, values: Any, indices: Any, descending: bool) -> None:
    """Sort (rows, n), contiguous, into `values` and its permutation into `indices`; either may be None."""
    m, n = x.shape
    keys = _keys(x.dtype, descending, indices is not None)
    source = x.view(f"u{x.itemsize}")
    target = None if values is None else values.view(f"u{x.itemsize}")
    if has_planes():
        from cubepy.kernels.radix_planes import sort_by_planes

        sort_by_planes(source, target, indices, keys)
    elif n <= SHORT and indices is None:
        lanes = cb.device_properties_of().register_bytes // max(4, x.itemsize)
        room = max(lanes, power_of_two(n))
        sort_short_rows[-(-m // lanes), 1](source, target, room, keys, room, lanes, mode="checked")
    elif indices is None:
        wide = max(4, x.itemsize)
        if n * wide <= sort_buckets.ROOM:
            lanes = cb.device_properties_of().register_bytes // wide
            flat = (source.reshape(-1), masks_of(keys), target.reshape(-1))
            sort_whole_rows[m, 1](*flat, n, sort_buckets.ROOM // wide, lanes, mode="unchecked")
        else:
            sort_buckets.sort_by_buckets(source, target, masks_of(keys))
    elif n <= ROOM:
        digits = 11 if n >= 2048 and keys.bits > 16 else 8
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


def _by_pieces(x: Any, values: Any, indices: Any, keys: Keys) -> None:
    """The passes over long rows, cut into pieces."""
    m, n = x.shape
    digits = 11 if keys.bits > 16 else 8
    passes = -(-keys.bits // digits)
    pieces = max(1, min(PIECES, n // 8192)) if m < PIECES else 1
    piece = -(-n // pieces)
    pieces = -(-n // piece)
    counts = memory.empty((m, 1 << digits, pieces), np.int32)
    places = memory.empty(counts.shape, np.int32)
    wide = np.uint64 if keys.bits == 64 else np.uint32
    spare = [memory.empty((m, n), wide) for _ in range(min(passes - 1, 2))]
    spare_order = [memory.empty((m, n), np.int32) if indices is not None else None for _ in spare]
    here, order = x, None
    for p in range(passes):
        first, last = p == 0, p == passes - 1
        out, out_order = (values, indices) if last else (spare[p % 2], spare_order[p % 2])
        count_digits[m * pieces, 1](here, counts, p * digits, piece, keys, digits, first, mode="unchecked")
        flat = (m, counts.size // m)
        scan_along_rows(counts.reshape(flat), places.reshape(flat), f.add, 0, i32, True)
        move_keys[m * pieces, 1](
            here, order, places, out, out_order, p * digits, piece, keys, digits, first, last, mode="unchecked"
        )
        here, order = out, out_order


def _prepared(x: Any, axis: Any, name: str) -> tuple[Any, int, tuple[int, ...]]:
    """The array with `axis` last and contiguous, the axis, and the permutation that made it so."""
    array = array_of(x)
    if axis is None:
        array, axis = contiguous(array).reshape(-1), 0
    if array.ndim == 0:
        raise ShapeError(f"{name} needs an array of rank 1 or more")
    d = axis_of(axis, array.ndim)
    moved = (*(k for k in range(array.ndim) if k != d), d)
    return contiguous(array.transpose(moved)), d, moved


def _back(rows: Any, target: Any, moved: tuple[int, ...]) -> None:
    """Write what was sorted along the last axis to where the axis came from."""
    target[...] = rows.transpose(tuple(int(k) for k in np.argsort(moved)))


def _sort(x: Any, axis: Any, descending: bool, out: Any, by_index: bool) -> Any:
    wrap = wrapper(x)
    rows, d, moved = _prepared(x, axis, "argsort" if by_index else "sort")
    shape = list(rows.shape[:-1])
    shape.insert(d, rows.shape[-1])
    target = output(out, tuple(shape), np.int64 if by_index else rows.dtype)
    if target.size:
        straight = d == rows.ndim - 1 and target.flags.c_contiguous
        done = target if straight else memory.empty(rows.shape, target.dtype)
        n = rows.shape[-1]
        flat = done.reshape(-1, n)
        _sorted_rows(rows.reshape(-1, n), None if by_index else flat, flat if by_index else None, descending)
        if not straight:
            _back(done, target, moved)
    return finish(target, out, wrap)


@placed
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


@placed
def argsort(x: Any, axis: Any = -1, descending: bool = False, *, out: Any = None) -> Any:
    """The indices (i64) that sort an axis, as `numpy.argsort(x, axis, stable=True)`: equal elements keep their order.

    Args:
        x, axis, descending, out: as for `sort`.

    Example:
        >>> import numpy as np
        >>> argsort(np.array([3, 1, 3, 2]), descending=True)
        array([0, 2, 3, 1])
    """
    return _sort(x, axis, descending, out, by_index=True)


@placed
def topk(input: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, Any]:
    """The k largest (or smallest) elements along an axis and their indices, as `torch.topk`.

    Args:
        input: array of any shape, strides and dtype.
        k: how many; at most the length of the axis.
        axis: int.
        largest: whether the largest are wanted (NaN counts as the largest).
        sorted: results are in order in any case; of equal elements the first ones are taken.

    Returns:
        values and indices (i64), with length k along the axis.

    Raises:
        ShapeError: k is negative or longer than the axis.

    Example:
        >>> import numpy as np
        >>> topk(np.array([3, 1, 4, 1, 5]), 2)
        (array([5, 4]), array([4, 2]))
    """
    wrap = wrapper(input)
    rows, _d, moved = _prepared(input, axis, "topk")
    n = rows.shape[-1]
    k = whole(k, "k")
    if not 0 <= k <= n:
        raise ShapeError(f"topk of {k} elements of an axis of length {n}")
    shape = (*rows.shape[:-1], k)
    values, indices = memory.empty(shape, rows.dtype), memory.empty(shape, np.int64)
    if values.size:
        flat = rows.reshape(-1, n)
        if has_planes() and topk_planes.worth_it(rows.size, n, k, rows.itemsize):
            bits, keys = f"u{rows.itemsize}", _keys(rows.dtype, largest, same_zeros=True)
            found, at = values.reshape(-1, k).view(bits), indices.reshape(-1, k)
            topk_planes.top_by_planes(flat.view(bits), found, at, k, keys)
        elif has_planes() or k > MOST_BEST or n <= 4 * k:
            all_values, all_indices = memory.empty(flat.shape, flat.dtype), memory.empty(flat.shape, np.int64)
            _sorted_rows(flat, all_values, all_indices, largest)
            values[...] = all_values[:, :k].reshape(shape)
            indices[...] = all_indices[:, :k].reshape(shape)
        else:
            keys = _keys(rows.dtype, largest, same_zeros=True)
            lanes = max(1, cb.device_properties_of().register_bytes // max(4, rows.itemsize))
            unsigned = f"u{rows.itemsize}"
            top_rows[flat.shape[0], 1](
                flat.view(unsigned), values.reshape(-1, k).view(unsigned), indices.reshape(-1, k), k, 256, keys,
                max(128, power_of_two(2 * k) + lanes), lanes, mode="checked",
            )  # fmt: skip
    order = tuple(int(a) for a in np.argsort(moved))
    return wrap(values.transpose(order)), wrap(indices.transpose(order))
