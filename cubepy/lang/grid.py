"""The grid of a launch: how many cubes, of how many units."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from cubepy.errors import LaunchError

Dim3 = tuple[int, int, int]


class Over(NamedTuple):
    """A grid with a unit for each of `size` elements, or for `lanes` of them; the device picks the
    cubes.

    `shape` is that of the elements where they have several axes, else empty.
    """

    size: int
    lanes: int = 1
    shape: tuple[int, ...] = ()

    @property
    def units(self) -> int:
        """How many units have work, where they are in one line."""
        return -(-self.size // self.lanes)

    @property
    def axes(self) -> tuple[int, ...]:
        """How many units have work along X, Y and Z: the axes of the elements from the last one on.

        Raises:
            LaunchError: the elements have more than three axes.
        """
        if len(self.shape) > 3:
            raise LaunchError(
                f"the kernel asks for positions along Y or Z, but cb.over is given the shape "
                f"{self.shape} of {len(self.shape)} axes; a grid has 3",
                hint="join axes, e.g. cb.over((a * b, c, d)), or ask for cb.ABSOLUTE_POS alone",
            )
        if not self.shape:
            return (self.units,)
        *rest, x = self.shape
        return -(-x // self.lanes), *reversed(rest)


def over(n: Any, lanes: int = 1) -> Over:
    """A grid with one unit per `lanes` elements of an array, of a shape, or of a count.

    A kernel that asks for positions along Y or Z gets them along the axes of the shape: X goes
    along the last axis (neighbours in memory), Y along the one before it, Z along the first of
    three. Else the elements are numbered in one line: `cb.ABSOLUTE_POS`. Which of the two it is,
    the kernel decides alone.

    Cubes are of one size whatever the count is, so that no other code is made for another count;
    units that have no work must find that out: `if i < out.size`, or `if row < out.shape[0] and
    column < out.shape[1]`.

    Args:
        n: a count, a shape, or anything with a `shape` or a `size`.
        lanes: elements per unit, at least 1; of a shape, along its last axis.

    Raises:
        LaunchError: for a negative count or lanes below 1.

    Example:
        >>> over(1000, lanes=8).units
        125
        >>> over((20, 30)).axes
        (30, 20)
    """
    shape: Any = ()
    if isinstance(n, int):
        size: Any = n
    elif isinstance(n, tuple):
        shape = tuple([axis_length(a, n) for a in n])
        size = math.prod(shape) if min(shape, default=0) >= 0 else -1
    else:
        size, shape = getattr(n, "size", -1), getattr(n, "shape", ())
        if not isinstance(size, int):  # PyTorch's size() is the shape
            size = math.prod(shape) if callable(size) else int(size)
            shape = tuple(shape)
    if size < 0:
        raise LaunchError(
            f"cb.over needs an array, or a count or shape of at least 0, not {n!r}",
            hint="e.g. cb.over(out), cb.over(1000), cb.over((rows, columns))",
        )
    if not isinstance(lanes, int) or lanes < 1:
        raise LaunchError(
            f"cb.over needs lanes of at least 1, not {lanes!r}",
            hint="as many elements as a unit does: cb.over(out, lanes=8)",
        )
    return Over(size, lanes, shape) if len(shape) > 1 else Over(size, lanes)


def axis_length(value: Any, shape: Any) -> int:
    """The length of an axis of a shape, as an int.

    Raises:
        LaunchError: it is no int.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise LaunchError(f"cb.over needs a shape of ints, not {shape!r}")
    return value if isinstance(value, int) else int(value.__index__())


def cubes_over(axes: tuple[int, ...], units: Dim3) -> Dim3:
    """How many cubes of so many units cover so many units along 1 to 3 axes; at least one.

    Example:
        >>> cubes_over((100, 20), (32, 8, 1))
        (4, 3, 1)
    """
    x, y, z = (max(1, -(-n // u)) for n, u in zip((*axes, 1, 1)[:3], units, strict=True))
    return x, y, z


def dim3(value: Any, what: str, least: int) -> Dim3:
    """Normalise an int or a tuple of 1 to 3 ints to three axes.

    Raises:
        LaunchError: wrong length, not ints, or an axis below `least`.
    """
    axes = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(axes) <= 3:
        raise LaunchError(
            f"{what} has 1 to 3 axes, not {len(axes)}: {value!r}",
            hint="join axes, and part positions in the kernel with cb.unravel",
        )
    out = []
    for axis in axes:
        if not isinstance(axis, int) or isinstance(axis, bool):
            axis = _number(axis, value, what)
        if axis >= MOST:
            raise LaunchError(
                f"{what} must be less than 2**31 along every axis, not {value!r}",
                hint="let a unit do several elements, in a loop",
            )
        if axis < least:
            raise LaunchError(
                f"{what} must be at least {least} along every axis, not {value!r}",
                hint="skip the launch when there is nothing to do" if least == 1 else "",
            )
        out.append(axis)
    return (out + [1, 1])[0], (out + [1, 1])[1], (out + [1, 1])[2]


MOST = 1 << 31
"""One more than the most cubes or units along an axis, on any device."""


def _number(axis: Any, value: Any, what: str) -> int:
    """An axis that is no int, as one.

    Raises:
        LaunchError: it is none.
    """
    try:
        if isinstance(axis, bool):
            raise TypeError
        return int(axis.__index__())
    except (TypeError, AttributeError):
        raise LaunchError(
            f"{what} must be an int or a tuple of ints, not {value!r}",
            hint="the grid is [cubes, units]; int(...) rounds down, and -(-n // units) up",
        ) from None
