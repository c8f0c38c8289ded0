"""Flipping and padding where units work in planes: every unit makes one line of the result."""

from __future__ import annotations

from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.entry.shapes import merged
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.tune import GpuRoutine

UNITS = 256  # of a cube
SHARE, AHEAD = (
    128,
    4,
)  # units of a cube that pads a row by elements, at most, and elements of a unit
SHORT = 64  # elements of a row that keep such a cube busy, at least
LONG = 4096  # elements of a row most of whose lines come from one row of the source


@cb.kernel
def reverse_lines(
    x: cb.Array,
    out: cb.Array,
    lanes: cb.Comptime[int],
    across: cb.Comptime[int],
    even: cb.Comptime[bool],
):
    """out[..., k] = x[..., n - 1 - k]; `across` units lie along a row. `even`: rows are whole
    lines.
    """
    last = out.ndim - 1
    n = out.shape[last]
    width = across * lanes
    blocks = (n + width - 1) // width
    k = multiple(cb.CUBE_POS % blocks * width + cb.UNIT_POS % across * lanes, lanes)
    row = cb.CUBE_POS // blocks * (cb.CUBE_DIM // across) + cb.UNIT_POS // across
    rows = 1
    for d in cb.unroll(range(last)):
        rows = rows * out.shape[d]
    if row < rows and k < n:
        lead = cb.unravel(row, out.shape[:last])
        if even or k + lanes <= n:
            at = n - lanes - k
            line = x.load(lead + (multiple(at, lanes) if even else at,), lanes)
            out.store(lead + (k,), cb.shuffle(line, line, tuple(range(lanes - 1, -1, -1))))
        else:
            for j in range(k, n):
                out[lead + (j,)] = x[lead + (n - 1 - j,)]


@cb.func
def source_of(k, n, mode: cb.Comptime[str]):
    """Where the element at position k of an axis of length n comes from; -1: from nowhere."""
    if mode == "reflect":
        k = cb.abs(k)
        return cb.select(k >= n, 2 * (n - 1) - k, k)
    if mode == "replicate":
        return cb.clamp(k, 0, n - 1)
    return cb.select((k < 0) | (k >= n), -1, k)


@cb.func
def row_behind(row, x, shape, before, how: cb.Comptime[str]):
    """The coordinates of the row of x that a row of the result comes from, and whether there is
    one.
    """
    inside = True
    indices = ()
    for d in cb.unroll(range(x.ndim - 2, -1, -1)):
        at = row % shape[d] if d > 0 else row
        from_x = source_of(at - before[d], x.shape[d], how)
        inside = inside and from_x >= 0
        indices = (cb.max(from_x, 0),) + indices
        row = row // shape[d]
    return indices, inside


@cb.kernel
def pad_lines(
    x: cb.Array,
    flat: cb.Array,
    shape,
    before,
    value,
    how: cb.Comptime[str],
    lanes: cb.Comptime[int],
):
    """A line of the result for every unit, wherever its rows end; `flat` is the result with one
    axis, not `shape`.
    """
    last = x.ndim - 1
    n, total = x.shape[last], shape[last]
    i = multiple(cb.ABSOLUTE_POS * lanes, lanes)
    row = i // total
    k = i - row * total
    at = k - before[last]
    fill = cb.cast(value, flat.dtype)
    if i < flat.size:
        indices, inside = row_behind(row, x, shape, before, how)
        if inside and at >= 0 and at + lanes <= n and k + lanes <= total:
            numbers = tuple(x[indices + (at + j,)] for j in cb.unroll(range(lanes)))
            flat.store(i, cb.line(*numbers))
        else:
            for j in range(i, cb.min(i + lanes, flat.size)):
                there, found = row_behind(j // total, x, shape, before, how)
                from_x = source_of(j % total - before[last], n, how)
                if found and from_x >= 0:
                    flat[j] = x[there + (from_x,)]
                else:
                    flat[j] = fill


@cb.kernel
def pad_units(
    x: cb.Array, out: cb.Array, before, value, how: cb.Comptime[str], ahead: cb.Comptime[int]
):
    """`ahead` elements of a row of out for every unit, a cube's width apart."""
    last = out.ndim - 1
    n, total = x.shape[last], out.shape[last]
    width = cb.CUBE_DIM * ahead
    blocks = (total + width - 1) // width
    begin = cb.CUBE_POS % blocks * width
    row = cb.CUBE_POS // blocks
    lead = cb.unravel(row, out.shape[:last])
    indices, inside = row_behind(row, x, out.shape, before, how)
    k = begin + cb.UNIT_POS
    at = k - before[last]
    fill = cb.cast(value, out.dtype)
    if (
        inside
        and begin >= before[last]
        and begin + width <= n + before[last]
        and begin + width <= total
    ):
        values = tuple(x[indices + (at + j * cb.CUBE_DIM,)] for j in cb.unroll(range(ahead)))
        for j in cb.unroll(range(ahead)):
            out[lead + (k + j * cb.CUBE_DIM,)] = values[j]
    else:
        values = ()
        for j in cb.unroll(range(ahead)):
            from_x = source_of(at + j * cb.CUBE_DIM, n, how)
            there = x[indices + (cb.clamp(from_x, 0, n - 1),)]
            values = values + (cb.select(inside and from_x >= 0, there, fill),)
        for j in cb.unroll(range(ahead)):
            if k + j * cb.CUBE_DIM < total:
                out[lead + (k + j * cb.CUBE_DIM,)] = values[j]


class Flip(NamedTuple):
    """out = x with axes reversed, the last one among them, for arrays of one shape."""

    x: Any
    axes: tuple[int, ...]
    out: Any

    def turned(self) -> Any:
        """A view of x with its axes reversed."""
        back = slice(None, None, -1)
        return self.x[tuple(back if d in self.axes else slice(None) for d in range(self.x.ndim))]


class ReversedLines(GpuRoutine):
    """Lines are read from the end of a row and reversed in registers."""

    name = "lines"

    def launch(self, p: Flip, properties: cb.DeviceProperties) -> None:
        """A unit makes a line; rows that are no neighbours in memory are copied as they are."""
        out, turned = p.out, p.turned()
        dest, source = merged([out, turned])
        if source.strides[-1] != -source.itemsize or dest.strides[-1] != dest.itemsize:
            convert_into(out, turned)
            return
        source = source[(slice(None),) * (source.ndim - 1) + (slice(None, None, -1),)]
        if dest.ndim == 1:
            dest, source = dest[None], source[None]
        lanes = line_of(source, dest)
        n = dest.shape[-1]
        across = min(UNITS, power_of_two(-(-n // lanes)))
        cubes = -(-n // (across * lanes)) * -(-(dest.size // n) // (UNITS // across))
        reverse_lines[cubes, UNITS](source, dest, lanes, across, n % lanes == 0, mode="unchecked")


class Pad(NamedTuple):
    """out = x with `before` elements in front of each axis, and as many behind as it has room for;
    contiguous.
    """

    x: Any
    out: Any
    before: tuple[int, ...]
    value: Any
    mode: str

    def rows(self) -> tuple[Any, Any, tuple[int, ...]]:
        """x, out and `before` with two axes at least."""
        if self.x.ndim > 1:
            return self.x, self.out, self.before
        return self.x[None], self.out[None], (0, *self.before)


class Units(GpuRoutine):
    """Units beside each other make elements of a row."""

    name = "units"

    def unfit(self, p: Pad, properties: cb.DeviceProperties) -> str | None:
        """Rows that keep a cube busy; long ones of narrow elements are better made of lines."""
        n = p.out.shape[-1]
        some = n >= SHORT and (p.x.itemsize >= 4 or n < LONG)
        return None if some else f"for rows from {SHORT} on, of narrow elements below {LONG}"

    def launch(self, p: Pad, properties: cb.DeviceProperties) -> None:
        """A cube does a part of a row."""
        x, out, before = p.rows()
        n = out.shape[-1]
        units = min(SHARE, max(32, power_of_two(-(-n // AHEAD))))
        cubes = out.size // n * -(-n // (units * AHEAD))
        pad_units[cubes, units](x, out, before, p.value, p.mode, AHEAD, mode="unchecked")


class Lines(GpuRoutine):
    """A unit makes a line of the result, wherever its rows end."""

    name = "lines"

    def launch(self, p: Pad, properties: cb.DeviceProperties) -> None:
        """Neighbouring units make neighbouring lines."""
        x, out, before = p.rows()
        flat = out.reshape(-1)
        lanes = line_of(flat)
        cubes = -(-out.size // (UNITS * lanes))
        pad_lines[cubes, UNITS](
            x, flat, out.shape, before, p.value, p.mode, lanes, mode="unchecked"
        )
