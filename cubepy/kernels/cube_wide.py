"""What kernels share whose cubes work together: values combined over units, and where a device's routine is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb


@cb.func
def over_units(value, step, group: cb.Comptime[int], board):
    """`step` over the values of `group` neighbouring units, given to all of them, in an order that never changes.

    `group` is a power of two; `board` is shared memory with a place for every plane of the cube, used only
    where a group is wider than a plane (then all units of the cube have to call it).
    """
    for k in cb.unroll(range(6)):
        if (32 >> k) < group and (32 >> k) < cb.PLANE_DIM:
            value = step(value, cb.plane_shuffle_xor(value, 32 >> k))
    if group > cb.PLANE_DIM:
        planes = group // cb.PLANE_DIM
        if cb.UNIT_POS % cb.PLANE_DIM == 0:
            board[cb.UNIT_POS // cb.PLANE_DIM] = value
        cb.sync_cube()
        first = cb.UNIT_POS // group * planes
        value = board[first]
        for k in range(1, planes):
            value = step(value, board[first + k])
        cb.sync_cube()
    return value


@cb.func
def multiple(k, lanes: cb.Comptime[int]):
    """k, a multiple of a power of two, written so that every compiler knows it: lines there can be read whole."""
    return k & -lanes if lanes > 1 else k


@cb.func
def over_lanes(line, step, lanes: cb.Comptime[int]):
    """`step` over the lanes of a line, from the first on."""
    total = line[0]
    for j in cb.unroll(range(1, lanes)):
        total = step(total, line[j])
    return total


@cb.func
def lane_numbers(dtype: cb.Comptime, lanes: cb.Comptime[int]):
    """The line 0, 1, 2, ..."""
    line = cb.splat(cb.cast(0, dtype), lanes)
    for j in cb.unroll(range(1, lanes)):
        number = cb.splat(cb.cast(j, dtype), lanes)
        line = cb.shuffle(line, number, tuple(range(j)) + tuple(range(lanes + j, 2 * lanes)))
    return line


@cb.func
def first_lanes(line, count, other, lanes: cb.Comptime[int]):
    """The first `count` lanes of a line; `other` in those behind."""
    if lanes == 1:
        return cb.select(count > 0, line, cb.splat(other, 1))
    inside = lane_numbers(cb.i32, lanes) < cb.splat(cb.cast(cb.min(count, lanes), cb.i32), lanes)
    return cb.select(inside, line, cb.splat(other, lanes))


def has_planes() -> bool:
    """Whether units of the current device work in planes, so that kernels of whole cubes are the fast ones."""
    return bool(cb.device_properties_of().plane_size > 1)


LINE_BYTES = 16
"""The widest access of one unit."""


def line_of(*arrays: Any) -> int:
    """Lanes of a line along the last axis: 16 bytes of the widest element where every line of every array starts at a
    multiple of its size, else 1 (neighbouring units then read neighbouring elements, which is as good as it gets)."""
    widest = max(a.itemsize for a in arrays)
    lanes = max(1, LINE_BYTES // max(widest, 2))
    for a in arrays:
        size = lanes * a.itemsize
        starts = [a.strides[d] for d in range(a.ndim - 1) if a.shape[d] > 1]
        if a.strides and a.shape[-1] > 1 and a.strides[-1] != a.itemsize:
            return 1
        if address(a) % size or any(s % size for s in starts):
            return 1
    return lanes


def address(array: Any) -> int:
    """Where the first element is."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return int(array.address)


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()
