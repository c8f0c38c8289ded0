"""The first elements of sorted rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import whole
from cubepy.kernels.entry.dispatch import has_planes, placed, repeated
from cubepy.kernels.entry.results import wrapper
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.kernels.primitives.vector_width import power_of_two
from cubepy.kernels.sort import quickselect_cpu, topk_gpu
from cubepy.kernels.sort.radix_cpu import top_few, top_rows
from cubepy.kernels.sort.sort import (
    FEW,
    FEW_OF,
    MOST_BEST,
    NEAR,
    in_rows,
    keys_of,
    order_back,
    places_by_network,
    sorted_rows,
)
from cubepy.runtime import memory


@repeated
def _topk(input: Any, k: int, axis: int, largest: bool, *, out: None = None) -> tuple[Any, Any]:
    """`topk`, as it is repeated."""
    wrap = wrapper(input)
    rows, _, moved = in_rows(input, axis, "topk")
    n = rows.shape[-1]
    k = whole(k, "k")
    if not 0 <= k <= n:
        raise ShapeError(f"topk of {k} elements of an axis of length {n}")
    shape = (*rows.shape[:-1], k)
    values, indices = memory.empty(shape, rows.dtype), memory.empty(shape, np.int64)
    if values.size:
        flat = rows.reshape(-1, n)
        if has_planes() and topk_gpu.worth_it(rows.size, n, k, rows.itemsize):
            bits, keys = f"u{rows.itemsize}", keys_of(rows.dtype, largest, same_zeros=True)
            found, at = values.reshape(-1, k).view(bits), indices.reshape(-1, k)
            topk_gpu.top_by_planes(flat.view(bits), found, at, k, keys)
        elif FEW < k and quickselect_cpu.worth_it(n, k, rows.itemsize):
            keys = keys_of(rows.dtype, largest, same_zeros=True)
            quickselect_cpu.top_by_quickselect(
                flat, values.reshape(-1, k), indices.reshape(-1, k), keys
            )
        elif not has_planes() and FEW < k and n <= min(NEAR, 64 * k) and rows.itemsize <= 4:
            keys = keys_of(rows.dtype, largest, same_zeros=True)
            places_by_network(flat, values.reshape(-1, k), indices.reshape(-1, k), k, keys)
        elif has_planes() or k > MOST_BEST or n <= 4 * k:
            all_values, all_indices = (
                memory.empty(flat.shape, flat.dtype),
                memory.empty(flat.shape, np.int64),
            )
            sorted_rows(flat, all_values, all_indices, largest)
            copy(all_values[:, :k], out=values.reshape(-1, k))
            copy(all_indices[:, :k], out=indices.reshape(-1, k))
        elif k <= FEW and n <= FEW_OF:
            keys = keys_of(rows.dtype, largest, same_zeros=True)
            lanes = max(1, cb.device_properties_of().register_bytes // max(4, rows.itemsize))
            found = values.reshape(-1, k).view(f"u{rows.itemsize}")
            top_few[flat.shape[0], 1](
                flat.view(found.dtype),
                found,
                indices.reshape(-1, k),
                k,
                keys,
                FEW,
                lanes,
                mode="unchecked",
            )
        else:
            keys = keys_of(rows.dtype, largest, same_zeros=True)
            lanes = max(1, cb.device_properties_of().register_bytes // max(4, rows.itemsize))
            unsigned = f"u{rows.itemsize}"
            top_rows[flat.shape[0], 1](
                flat.view(unsigned), values.reshape(-1, k).view(unsigned), indices.reshape(-1, k), k, 256, keys,
                max(128, power_of_two(2 * k) + lanes), lanes, mode="checked",
            )  # fmt: skip
    order = order_back(moved)
    return wrap(contiguous(values.transpose(order))), wrap(contiguous(indices.transpose(order)))


@placed
def topk(
    input: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Any, Any]:
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
    return _topk(input, k, axis, largest)  # type: ignore[no-any-return]
