"""Grids of `cb.over`: a unit for each element, numbered in one line or along the axes, as the
kernel asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors

F = np.float32


@cb.kernel
def along_two(x: cb.Array, y: cb.Array, out: cb.Array):
    row, column = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = x[row, column] * 10 + y[column]


@cb.kernel
def along_three(out: cb.Array):
    z, y, x = cb.ABSOLUTE_POS_Z, cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    if z < out.shape[0] and y < out.shape[1] and x < out.shape[2]:
        out[z, y, x] += z * 10000 + y * 100 + x


@cb.kernel
def in_line(out: cb.Array, *, lanes: cb.Comptime[int] = 1):
    i = cb.ABSOLUTE_POS * lanes
    if i < out.size:
        out.store(i, out.load(i, lanes) + 1)


@cb.kernel
def lines_of_rows(x: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int]):
    row, column = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X * lanes
    if row < out.shape[0] and column < out.shape[1]:
        out.store((row, column), x.load((row, column), lanes) * 2)


@pytest.mark.parametrize("shape", [(1, 1), (3, 70), (33, 5), (9, 256), (0, 4)])
def test_two_axes_are_y_and_x(device: str, shape: tuple[int, int]) -> None:
    x, y = np.arange(np.prod(shape), dtype=F).reshape(shape), np.arange(shape[1], dtype=F)
    for grid in (cb.over(x), cb.over(shape)):
        out = np.zeros_like(x)
        along_two[grid](x, y, out, device=device)
        np.testing.assert_array_equal(out, x * 10 + y)


@pytest.mark.parametrize("shape", [(2, 3, 40), (5, 9, 1), (1, 1, 33)])
def test_three_axes_are_z_y_and_x_and_each_element_has_one_unit(device: str, shape: Any) -> None:
    out = np.zeros(shape, np.int32)
    along_three[cb.over(out)](out, device=device)
    z, y, x = np.indices(shape)
    np.testing.assert_array_equal(out, z * 10000 + y * 100 + x)


@pytest.mark.parametrize("shape", [(7,), (3, 70), (2, 3, 40), (2, 3, 4, 5)])
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_kernel_that_asks_for_one_number_gets_the_elements_in_a_line(
    device: str, shape: Any, lanes: int
) -> None:
    for grid in (cb.over(np.zeros(shape), lanes), cb.over(shape, lanes=lanes)):
        out = np.zeros(shape, F)
        in_line[grid](out, lanes=lanes, device=device)
        assert (out == 1).all()


def test_lanes_go_along_the_last_axis(device: str) -> None:
    x = np.arange(5 * 43, dtype=F).reshape(5, 43)
    out = np.zeros_like(x)
    lines_of_rows[cb.over(out, lanes=8)](x, out, lanes=8, device=device)
    np.testing.assert_array_equal(out, x * 2)


def test_a_bound_launch_and_the_generated_code_have_the_same_grid(device: str) -> None:
    out = np.zeros((2, 3, 40), np.int32)
    run = along_three[cb.over(out)].bind(out, device=device)
    run()
    run()
    assert out[1, 2, 39] == 2 * 10239
    assert "for position_x in range(" in along_three[cb.over(out)].inspect(out, device="cpu").python


def test_a_size_decides_how_many_cubes_there_are_not_how_large() -> None:
    def made(rows: int, columns: int) -> int:
        before = cb.stats().specialised
        along_three[cb.over((2, rows, columns))](np.zeros((2, rows, columns), np.int16))
        return cb.stats().specialised - before

    made(1, 1)
    assert [made(*s) for s in ((1, 600), (600, 1), (31, 33))] == [0, 0, 0]


def test_more_axes_than_a_grid_has_are_refused_where_the_kernel_asks_for_axes() -> None:
    out = np.zeros((2, 2, 2), np.int32)
    with pytest.raises(errors.LaunchError, match=r"\(2, 2, 2, 2\) of 4 axes") as caught:
        along_three[cb.over((2, 2, 2, 2))](out)
    assert "cb.over((a * b, c, d))" in str(caught.value)


@pytest.mark.parametrize("shape", [(2, -1), (2.0, 3), ("a", 2), (True, 2)])
def test_shapes_that_make_no_sense_are_refused(shape: Any) -> None:
    with pytest.raises(errors.LaunchError, match=r"cb\.over needs"):
        cb.over(shape)


class TorchLike:
    """What `cb.over` sees of a tensor of PyTorch: `size` is a method."""

    shape = (3, 70)
    ndim = 2

    def size(self) -> tuple[int, ...]:
        return self.shape


def test_the_shape_of_anything_is_taken() -> None:
    assert cb.over(TorchLike()) == cb.over((3, 70))
    assert cb.over((12,)) == cb.over(12) and cb.over(()) == cb.over(1)
