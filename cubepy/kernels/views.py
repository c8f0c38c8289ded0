"""Views: where a kernel's values come from and go to, composed on the host and inlined in the kernel.

A kernel that takes a `cb.View` calls `view.read(coords, lanes)` and `view.write(coords, value)`. `lanes` is
comptime; 0 reads one scalar. Lines lie along the last axis and may hang over its end: what is outside reads
as zero and is not written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb


@cb.func
def permute(coords, axes):
    """The coordinates in the order that `axes` names."""
    out = ()
    for a in cb.unroll(axes):
        out = out + (coords[a],)
    return out


@cb.func
def collapse(coords, stretched):
    """Coordinates of a stretched array: 0 along the stretched axes."""
    out = ()
    for d in cb.unroll(range(len(stretched))):
        if stretched[d]:
            out = out + (0,)
        else:
            out = out + (coords[d],)
    return out


@cb.struct
class Plain:
    """An array as it is."""

    array: cb.Array

    def read(self, coords, lanes):
        if lanes == 0:
            return self.array[coords]
        return self.array.load(coords, lanes)

    def write(self, coords, value):
        self.array.store(coords, value)


@cb.struct
class Permuted:
    """`inner` with its axes in another order: axis d of the view is axis `axes[d]` of `inner`.

    Lines along an axis that is not the last one of `inner` are gathered element by element.
    """

    inner: cb.View
    axes: cb.Comptime[tuple]

    def read(self, coords, lanes):
        if self.axes[len(self.axes) - 1] == len(self.axes) - 1 or lanes == 0:
            return self.inner.read(permute(coords, self.axes), lanes)
        line = cb.splat(self.inner.read(permute(coords, self.axes), 0), lanes)
        for k in cb.unroll(range(1, lanes)):
            moved = coords[: len(coords) - 1] + (coords[len(coords) - 1] + k,)
            one = cb.splat(self.inner.read(permute(moved, self.axes), 0), lanes)
            line = cb.shuffle(line, one, tuple(range(k)) + tuple(range(lanes + k, 2 * lanes)))
        return line

    def write(self, coords, value):
        if self.axes[len(self.axes) - 1] == len(self.axes) - 1:
            self.inner.write(permute(coords, self.axes), value)
        else:
            for k in cb.unroll(range(len(value))):
                moved = coords[: len(coords) - 1] + (coords[len(coords) - 1] + k,)
                self.inner.write(permute(moved, self.axes), cb.splat(value[k], 1))


@cb.struct
class Broadcast:
    """`inner` stretched along the axes where `stretched` is true (there `inner` has length 1)."""

    inner: cb.View
    stretched: cb.Comptime[tuple]

    def read(self, coords, lanes):
        if self.stretched[len(self.stretched) - 1] and lanes != 0:
            return cb.splat(self.inner.read(collapse(coords, self.stretched), 0), lanes)
        return self.inner.read(collapse(coords, self.stretched), lanes)


@cb.struct
class Mapped:
    """A function applied as values are read or written; `others` are views read at the same place."""

    inner: cb.View
    function: cb.Comptime[Any]
    others: Any

    def read(self, coords, lanes):
        values = (self.inner.read(coords, lanes),)
        for other in cb.unroll(self.others):
            values = values + (other.read(coords, lanes),)
        return self.function(*values)

    def write(self, coords, value):
        values = (value,)
        for other in cb.unroll(self.others):
            values = values + (other.read(coords, len(value)),)
        self.inner.write(coords, self.function(*values))


@cb.struct
class Dequantized:
    """Integers with a scale for every `group` neighbours along the last axis (and a zero point, or None).

    `codes` holds one integer an element, or two to a byte when `packed` (low half first).
    """

    codes: cb.Array
    scales: cb.Array
    zeros: Any
    group: cb.Comptime[int]
    packed: cb.Comptime[bool]

    def read(self, coords, lanes):
        width = 1 if lanes == 0 else lanes
        at = coords[len(coords) - 1]
        lead = coords[: len(coords) - 1]
        if self.packed:
            half = self.codes.load(lead + (at // 2,), (width + 1) // 2)
            both = cb.interleave(half & 15, half >> 4)
            codes = cb.cast(cb.slice_line(both, 0, width), cb.f32)
        else:
            codes = cb.cast(self.codes.load(coords, width), cb.f32)
        if self.zeros is not None:
            codes = codes - cb.cast(self.zeros[lead + (at // self.group,)], cb.f32)
        values = codes * cb.cast(self.scales[lead + (at // self.group,)], cb.f32)
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
    """A view of an array stretched to a shape, as NumPy does; no element is copied."""
    padded = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    return Broadcast(Plain(padded), tuple(a != b for a, b in zip(padded.shape, shape, strict=True)))


def permuted(array: np.ndarray, axes: tuple[int, ...]) -> Any:
    """A view of an array with its axes in another order, as `numpy.transpose`."""
    inverse = tuple(int(i) for i in np.argsort(axes))
    return Permuted(Plain(array), inverse)


def mapped(inner: Any, function: Any, *others: Any) -> Any:
    """A view that applies a `@cb.func` to what is read (or written), with other views as further arguments."""
    return Mapped(inner, function, tuple(others))


def dequantized(
    codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None = None, *, group: int, packed: bool = False
) -> Any:
    """A view of integers as floats: `(code - zero) * scale`, computed where it is read."""
    return Dequantized(codes, scales, zeros, group, packed)
