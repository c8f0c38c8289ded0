"""The windows of images as columns (im2col), and images as sums of windows (col2im)."""

from __future__ import annotations

from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.movement.copy import contiguous
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.tune import Op, Routine

UNITS = 256


@cb.kernel
def write_columns(x: cb.Array, out: cb.Array, how, grid, units: cb.Comptime[int]):
    """out[plane, k, l] = what element k of window l sees of a plane (plane, row, column); a cube
    does a part of a line along l.

    how: of both axes the windows' lengths, dilation, padding, stride. grid: windows along columns,
    cubes of a line, elements of a cube.
    """
    kernel, dilation, padding, stride = how
    across, parts, chunk = grid
    lines, part = cb.CUBE_POS // parts, cb.CUBE_POS % parts
    plane, k = lines // out.shape[1], lines % out.shape[1]
    i = k // kernel[1] * dilation[0] - padding[0]
    j = k % kernel[1] * dilation[1] - padding[1]
    for at in range(part * chunk + cb.UNIT_POS, cb.min((part + 1) * chunk, out.shape[2]), units):
        row, column = at // across * stride[0] + i, at % across * stride[1] + j
        value = cb.cast(0, out.dtype)
        if row >= 0 and row < x.shape[1] and column >= 0 and column < x.shape[2]:
            value = x[plane, row, column]
        out[plane, k, at] = value


@cb.kernel
def add_columns(
    x: cb.Array, out: cb.Array, how, grid, acc: cb.Comptime[Any], units: cb.Comptime[int]
):
    """out[plane, row, column] = the sum of what windows have of it; a cube does a part of a plane.

    x: (plane, k, l), see `write_columns`. grid: windows along both axes, cubes of a plane, elements
    of a cube.
    """
    kernel, dilation, padding, stride = how
    down, across, parts, chunk = grid
    plane, part = cb.CUBE_POS // parts, cb.CUBE_POS % parts
    width = out.shape[2]
    size = out.shape[1] * width
    for at in range(part * chunk + cb.UNIT_POS, cb.min((part + 1) * chunk, size), units):
        row, column = at // width, at % width
        total = cb.cast(0, acc)
        for i in range(kernel[0]):
            y = row + padding[0] - i * dilation[0]
            if y >= 0 and y % stride[0] == 0 and y // stride[0] < down:
                first = y // stride[0] * across
                for j in range(kernel[1]):
                    z = column + padding[1] - j * dilation[1]
                    if z >= 0 and z % stride[1] == 0 and z // stride[1] < across:
                        one = x[plane, i * kernel[1] + j, first + z // stride[1]]
                        total += cb.cast(one, acc)
        out[plane, row, column] = cb.cast(total, out.dtype)


class Columns(NamedTuple):
    """Windows and images.

    Attributes:
        x, out: planes of images (P, H, W), and columns (P, K, L), or the reverse.
        how: of both axes the windows' lengths, dilation, padding, stride.
        counts: windows along both axes.
    """

    x: Any
    out: Any
    how: tuple[tuple[int, int], ...]
    counts: tuple[int, int]


def _shared(size: int, properties: cb.DeviceProperties) -> tuple[int, int, int]:
    """Units of a cube, cubes of so many neighbours, elements of a cube."""
    if properties.plane_size == 1:
        return 1, 1, size
    units = min(UNITS, 1 << max(5, (size - 1).bit_length()))
    return units, -(-size // units), units


class Writing(Routine):
    """Every element from its own number."""

    name = "elements"

    def launch(self, p: Columns, properties: cb.DeviceProperties) -> None:
        """Units of planes do an element each, a cube of a CPU a line."""
        units, parts, chunk = _shared(p.out.shape[2], properties)
        grid = p.counts[1], parts, chunk
        write_columns[p.out.shape[0] * p.out.shape[1] * parts, units](
            p.x, p.out, p.how, grid, units, mode="unchecked"
        )


class Adding(Routine):
    """Every pixel sums what windows have of it."""

    name = "pixels"

    def launch(self, p: Columns, properties: cb.DeviceProperties) -> None:
        """Units of planes do a pixel each, a cube of a CPU a plane."""
        units, parts, chunk = _shared(p.out.shape[1] * p.out.shape[2], properties)
        found = as_dtype(p.out.dtype)
        acc = cb.f32 if found.is_float and found.bits < 32 else found
        add_columns[p.out.shape[0] * parts, units](
            p.x, p.out, p.how, (*p.counts, parts, chunk), acc, units, mode="unchecked"
        )


UNFOLD = Op("unfold", [Writing()])
FOLD = Op("fold", [Adding()])


def unfold(x: Any, how: tuple[tuple[int, int], ...], counts: tuple[int, int]) -> Any:
    """The windows of images (N, C, H, W) as columns (N, C * K, L).

    Example:
        >>> import numpy as np
        >>> x = np.array([[[[1.0, 2.0, 3.0]]]])
        >>> unfold(x, ((1, 2), (1, 1), (0, 0), (1, 1)), (1, 2))
        array([[[1., 2.],
                [2., 3.]]])
    """
    n, c, *size = x.shape
    window, many = how[0][0] * how[0][1], counts[0] * counts[1]
    out = memory.empty((n, c * window, many), x.dtype)
    if out.size:
        planes = contiguous(x).reshape(n * c, *size)
        UNFOLD.run(Columns(planes, out.reshape(n * c, window, many), how, counts))
    return out


def fold(
    x: Any, size: tuple[int, int], how: tuple[tuple[int, int], ...], counts: tuple[int, int]
) -> Any:
    """Images (N, C, *size) as the sums of windows that are columns (N, C * K, L).

    Example:
        >>> import numpy as np
        >>> x = np.array([[[1.0, 2.0], [2.0, 3.0]]])
        >>> fold(x, (1, 3), ((1, 2), (1, 1), (0, 0), (1, 1)), (1, 2))
        array([[[[1., 4., 3.]]]])
    """
    window, many = how[0][0] * how[0][1], counts[0] * counts[1]
    n, c = x.shape[0], x.shape[1] // window
    out = memory.empty((n, c, *size), x.dtype)
    if out.size:
        columns = contiguous(x).reshape(n * c, window, many)
        FOLD.run(Columns(columns, out.reshape(n * c, *size), how, counts))
    return out
