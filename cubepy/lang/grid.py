"""The grid of a launch: how many cubes, of how many units."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from cubepy.errors import LaunchError

Dim3 = tuple[int, int, int]


class Over(NamedTuple):
    """A grid that covers `size` elements with one unit per `lanes` of them; the device picks the cubes."""

    size: int
    lanes: int = 1

    @property
    def units(self) -> int:
        """How many units have work."""
        return -(-self.size // self.lanes)


def over(n: Any, lanes: int = 1) -> Over:
    """A grid with one unit per `lanes` elements of an array (or of a count).

    Cubes are of one size whatever the count is, so that no other code is made for another count; the units of the last
    one that have no work must find that out: `if i < out.size`.

    Args:
        n: a count, or anything with a `size`.
        lanes: elements per unit, at least 1.

    Raises:
        LaunchError: for a negative count or lanes below 1.

    Example:
        >>> over(1000, lanes=8).units
        125
    """
    size = n if isinstance(n, int) else getattr(n, "size", -1)
    if callable(size):  # PyTorch's size() is the shape
        size = math.prod(n.shape)
    size = int(size)
    if size < 0:
        raise LaunchError(f"cb.over needs a count of at least 0 or an array, not {n!r}")
    if not isinstance(lanes, int) or lanes < 1:
        raise LaunchError(f"cb.over needs lanes of at least 1, not {lanes!r}")
    return Over(size, lanes)


def dim3(value: Any, what: str, least: int) -> Dim3:
    """Normalise an int or a tuple of 1 to 3 ints to three axes.

    Raises:
        LaunchError: wrong length, not ints, or an axis below `least`.
    """
    axes = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(axes) <= 3:
        raise LaunchError(f"{what} has 1 to 3 axes, not {len(axes)}: {value!r}")
    out = []
    for axis in axes:
        if isinstance(axis, bool) or not hasattr(axis, "__index__"):
            raise LaunchError(f"{what} must be an int or a tuple of ints, not {value!r}")
        if axis.__index__() < least:
            raise LaunchError(
                f"{what} must be at least {least} along every axis, not {value!r}",
                hint="skip the launch when there is nothing to do" if least == 1 else "",
            )
        out.append(axis.__index__())
    return (out + [1, 1])[0], (out + [1, 1])[1], (out + [1, 1])[2]
