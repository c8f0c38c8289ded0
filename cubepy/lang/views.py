"""Views: where a kernel's values come from and go to, composed on the host and inlined in the
kernel.

A kernel that takes a `cb.View` calls `view.read(coords, lanes)` and `view.write(coords, value)`.
`lanes` is comptime; 0 reads one scalar. Lines lie along the last axis and may hang over its end:
what is outside reads as zero and is not written.

Example:
    >>> import numpy as np, cubepy as cb
    >>> from cubepy.lang import views
    >>> @cb.kernel
    ... def copy(x: cb.View, out: cb.Array):
    ...     for i in range(out.shape[0]):
    ...         for j in range(out.shape[1]):
    ...             out[i, j] = x.read((i, j), 0)
    >>> x, out = np.array([[1, 2, 3], [4, 5, 6]]), np.zeros((3, 2), int)
    >>> copy[1, 1](views.permuted(x, (1, 0)), out)
    >>> print(out)
    [[1 4]
     [2 5]
     [3 6]]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.annotations import Array, Comptime, View
from cubepy.lang.builtins import BUILTINS
from cubepy.lang.declare import func
from cubepy.lang.dtypes import f32
from cubepy.lang.struct import struct

cast, interleave, shuffle = (BUILTINS[name] for name in ("cast", "interleave", "shuffle"))
slice_line, splat, unroll = (BUILTINS[name] for name in ("slice_line", "splat", "unroll"))


@func
def permute(coords, axes):
    """The coordinates in the order that `axes` names."""
    out = ()
    for a in unroll(axes):
        out = out + (coords[a],)
    return out


@func
def collapse(coords, stretched):
    """Coordinates of a stretched array: 0 along the stretched axes."""
    out = ()
    for d in unroll(range(len(stretched))):
        if stretched[d]:
            out = out + (0,)
        else:
            out = out + (coords[d],)
    return out


@struct
class Plain:
    """An array as it is."""

    array: Array

    def read(self, coords, lanes):
        if lanes == 0:
            return self.array[coords]
        return self.array.load(coords, lanes)

    def write(self, coords, value):
        self.array.store(coords, value)


@struct
class Permuted:
    """`inner` with its axes in another order: axis d of the view is axis `axes[d]` of `inner`.

    Lines along an axis that is not the last one of `inner` are gathered element by element.
    """

    inner: View
    axes: Comptime[tuple]

    def read(self, coords, lanes):
        if self.axes[len(self.axes) - 1] == len(self.axes) - 1 or lanes == 0:
            return self.inner.read(permute(coords, self.axes), lanes)
        line = splat(self.inner.read(permute(coords, self.axes), 0), lanes)
        for k in unroll(range(1, lanes)):
            moved = coords[: len(coords) - 1] + (coords[len(coords) - 1] + k,)
            one = splat(self.inner.read(permute(moved, self.axes), 0), lanes)
            line = shuffle(line, one, tuple(range(k)) + tuple(range(lanes + k, 2 * lanes)))
        return line

    def write(self, coords, value):
        if self.axes[len(self.axes) - 1] == len(self.axes) - 1:
            self.inner.write(permute(coords, self.axes), value)
        else:
            for k in unroll(range(len(value))):
                moved = coords[: len(coords) - 1] + (coords[len(coords) - 1] + k,)
                self.inner.write(permute(moved, self.axes), splat(value[k], 1))


@struct
class Broadcast:
    """`inner` stretched along the axes where `stretched` is true (there `inner` has length 1)."""

    inner: View
    stretched: Comptime[tuple]

    def read(self, coords, lanes):
        if self.stretched[len(self.stretched) - 1] and lanes != 0:
            return splat(self.inner.read(collapse(coords, self.stretched), 0), lanes)
        return self.inner.read(collapse(coords, self.stretched), lanes)


@struct
class Mapped:
    """A function applied as values are read or written; `others` are views read at the
    same place.
    """

    inner: View
    function: Comptime[Any]
    others: Any

    def read(self, coords, lanes):
        values = (self.inner.read(coords, lanes),)
        for other in unroll(self.others):
            values = values + (other.read(coords, lanes),)
        return self.function(*values)

    def write(self, coords, value):
        values = (value,)
        for other in unroll(self.others):
            values = values + (other.read(coords, len(value)),)
        self.inner.write(coords, self.function(*values))


@struct
class Dequantized:
    """Integers with a scale for every `group` neighbours along the last axis (and a zero point, or
    None).

    `codes` holds one integer an element, or two to a byte when `packed` (low half first).
    """

    codes: Array
    scales: Array
    zeros: Any
    group: Comptime[int]
    packed: Comptime[bool]

    def read(self, coords, lanes):
        width = 1 if lanes == 0 else lanes
        at = coords[len(coords) - 1]
        lead = coords[: len(coords) - 1]
        if self.packed:
            half = self.codes.load(lead + (at // 2,), (width + 1) // 2)
            both = interleave(half & 15, half >> 4)
            codes = cast(slice_line(both, 0, width), f32)
        else:
            codes = cast(self.codes.load(coords, width), f32)
        if self.zeros is not None:
            codes = codes - cast(self.zeros[lead + (at // self.group,)], f32)
        values = codes * cast(self.scales[lead + (at // self.group,)], f32)
        if lanes == 0:
            return values[0]
        return values


def plain(array: np.ndarray) -> Any:
    """A view of an array as it is.

    Example:
        >>> import numpy as np
        >>> plain(np.zeros((2, 3), np.float32)).array.shape
        (2, 3)
    """
    return Plain(array)


def broadcast(array: np.ndarray, shape: tuple[int, ...]) -> Any:
    """A view of an array stretched to a shape, as NumPy does; no element is copied.

    Raises:
        ShapeError: a length that is neither 1 nor that of the shape.

    Example:
        >>> import numpy as np
        >>> broadcast(np.ones((2, 1), np.float32), (3, 2, 4)).stretched
        (True, False, True)
    """
    lengths = (1,) * (len(shape) - array.ndim) + array.shape
    if len(lengths) != len(shape) or any(
        n not in (1, m) for n, m in zip(lengths, shape, strict=True)
    ):
        raise ShapeError(f"an array of shape {array.shape} does not stretch to {shape}")
    padded = array.reshape(lengths)
    return Broadcast(Plain(padded), tuple(a != b for a, b in zip(padded.shape, shape, strict=True)))


def permuted(array: np.ndarray, axes: tuple[int, ...]) -> Any:
    """A view of an array with its axes in another order, as `numpy.transpose`.

    Raises:
        ShapeError: axes that are not those of the array, each one once.

    Example:
        >>> import numpy as np
        >>> permuted(np.zeros((2, 3, 4), np.float32), (2, 0, 1)).axes
        (1, 2, 0)
    """
    if sorted(axes) != list(range(array.ndim)):
        raise ShapeError(
            f"axes must name each of the {array.ndim} axes of the array once, not {axes!r}"
        )
    inverse = tuple(int(i) for i in np.argsort(axes))
    return Permuted(Plain(array), inverse)


def mapped(inner: Any, function: Any, *others: Any) -> Any:
    """A view that applies a `@func` to what is read (or written), with other views as further
    arguments.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> mapped(plain(np.zeros(3, np.float32)), cb.exp).function
        cb.exp
    """
    return Mapped(inner, function, tuple(others))


def dequantized(
    codes: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None = None,
    *,
    group: int,
    packed: bool = False,
) -> Any:
    """A view of integers as floats: `(code - zero) * scale`, computed where it is read.

    Args:
        codes: integers, or bytes of two each (the first in the low half) when `packed`.
        scales, zeros: one for every `group` neighbours along the last axis.
        group: how many neighbours.
        packed: whether bytes hold two.

    Raises:
        ShapeError: scales or zeros that are too few for the codes.

    Example:
        >>> import numpy as np
        >>> dequantized(np.ones((2, 4), np.int8), np.full((2, 2), 0.5, np.float32), group=2).group
        2
    """
    width = codes.shape[-1] * (2 if packed else 1)
    for name, each in (("scales", scales), ("zeros", zeros)):
        if each is not None and (
            each.shape[:-1] != codes.shape[:-1] or each.shape[-1] * group < width
        ):
            raise ShapeError(
                f"{name} of shape {each.shape} are not one for every {group} of {width} "
                "codes in each row"
            )
    return Dequantized(codes, scales, zeros, group, packed)
