"""Images read between their pixels, at positions that are data, and the gradients of that.

A position has corners, the two pixels beside it along each axis, or one, the nearest. What lies
outside counts as zero; the other paddings move positions inside before. The corners of all axes
are in C order: of two axes (0, 0), (0, 1), (1, 0) and (1, 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb

AWAY = 4.0
"""How many pixels outside nothing of an image is seen, by any mode."""


@dataclass(frozen=True)
class Sampling:
    """How images are read.

    Attributes:
        axes: of an image, 2 or 3.
        nearest: one pixel, not all corners.
        padding: "zeros", "border" or "reflection".
        align: -1 and 1 are the middles of the outermost pixels, not their edges.
        acc: the dtype of sums.
        exact: the dtype of positions.
        index: the dtype of pixels counted in an image.
        lanes: positions of a line.
    """

    axes: int
    nearest: bool
    padding: str
    align: bool
    acc: Any
    exact: Any
    index: Any
    lanes: int

    @property
    def corners(self) -> int:
        """Pixels that a position reads."""
        return 1 if self.nearest else 1 << self.axes

    def behind(self, corner: int, k: int) -> int:
        """Whether a corner is the second pixel along axis k."""
        return corner >> (self.axes - 1 - k) & 1

    def picks(self, k: int) -> tuple[int, ...]:
        """Where the coordinates of axis k are in a line of a grid: the last axis comes first."""
        return tuple(range(self.axes - 1 - k, self.lanes * self.axes, self.axes))


@cb.func
def position_of(given, length, how: cb.Comptime[Sampling]):
    """Where positions from -1 to 1 are in pixels of an axis, and what that changes by with them."""
    known = given == given
    g = cb.select(known, given, -1.0)
    n = cb.cast(length, how.exact)
    at = (g + 1) * ((n - 1) / 2) if how.align else ((g + 1) * n - 1) / 2
    slope = cb.select(known, cb.splat((n - 1) / 2 if how.align else n / 2, how.lanes), 0.0)
    if how.padding == "zeros":
        at = cb.min(cb.max(at, -AWAY), n - 1 + AWAY)
    else:
        if how.padding == "reflection":
            low = cb.cast(0.0 if how.align else -0.5, how.exact)
            span = n - 1 if how.align else n
            away = cb.abs(at - low)
            folds = cb.floor(away / span)
            rest = away - folds * span
            odd = folds - cb.floor(folds / 2) * 2 > 0.5
            slope = cb.select(odd, -slope, slope)
            slope = cb.select(at < low, -slope, slope)
            at = low + cb.select(odd, span - rest, rest)
            at = cb.select(at == at, at, 0.0)  # of one pixel, and of infinity
        slope = cb.select(at > 0, slope, 0.0)
        slope = cb.select(at < n - 1, slope, 0.0)
        at = cb.min(cb.max(at, 0.0), n - 1)
    return at, slope


@cb.func
def pixels_of(grid, image, first, size, how: cb.Comptime[Sampling]):
    """Of a line of positions of an image, for each of its axes: the first pixel, how far behind it
    the position is (0 to 1), and the slope.
    """
    lanes, axes = how.lanes, how.axes
    left = grid.shape[1] - first * axes
    many = grid.load((image, first * axes), lanes * axes, valid=left)
    given = tuple(
        cb.cast(cb.shuffle(many, many, how.picks(k)), how.exact) for k in cb.unroll(range(axes))
    )
    found = tuple(position_of(given[k], size[k], how) for k in cb.unroll(range(axes)))
    floors = tuple(cb.round(at) if how.nearest else cb.floor(at) for at, _ in found)
    shares = tuple(cb.cast(found[k][0] - floors[k], how.acc) for k in cb.unroll(range(axes)))
    return tuple(cb.cast(f, how.index) for f in floors), shares, tuple(slope for _, slope in found)


@cb.func
def pixel_at(lows, size, corner: cb.Comptime[int], how: cb.Comptime[Sampling]):
    """The pixels in an image of a corner, moved inside."""
    pixel = cb.splat(cb.cast(0, how.index), how.lanes)
    for k in cb.unroll(range(how.axes)):
        n = cb.cast(size[k], how.index)
        pixel = pixel * n + cb.min(cb.max(lows[k] + how.behind(corner, k), 0), n - 1)
    return pixel


@cb.func
def within(lows, size, corner: cb.Comptime[int], how: cb.Comptime[Sampling]):
    """Where a corner is inside of an image."""
    inside = lows[0] >= -how.behind(corner, 0)
    for k in cb.unroll(range(how.axes)):
        step = how.behind(corner, k)
        if k > 0:
            inside = inside & (lows[k] >= -step)
        inside = inside & (lows[k] < cb.cast(size[k], how.index) - step)
    return inside


@cb.func
def weight_of(shares, corner: cb.Comptime[int], without: cb.Comptime[int], how: cb.Comptime):
    """The weight of a corner, along all axes but one."""
    weight = cb.splat(cb.cast(1, how.acc), how.lanes)
    for k in cb.unroll(range(how.axes)):
        if k != without:
            weight = weight * (shares[k] if how.behind(corner, k) else 1 - shares[k])
    return weight


@cb.func
def picked(x, image, c, pixels, lanes: cb.Comptime[int]):
    """x[image, c, pixels[j]] for each lane j."""
    return cb.line(*tuple(x[image, c, pixels[j]] for j in cb.unroll(range(lanes))))


@cb.func
def halved(parts):
    """Lines of twice the lanes, of two each."""
    return tuple(
        cb.concat(parts[2 * k], parts[2 * k + 1]) for k in cb.unroll(range(len(parts) // 2))
    )


@cb.func
def joined(parts):
    """One line of the lanes of 2, 4, 8 or 16."""
    two = halved(parts)
    four = halved(two) if len(two) > 1 else two
    eight = halved(four) if len(four) > 1 else four
    sixteen = halved(eight) if len(eight) > 1 else eight
    return sixteen[0]


@cb.func
def pairs(x, image, c, pixels, lanes: cb.Comptime[int]):
    """The same, and the pixels behind: neighbours are read together."""
    both = joined(tuple(x.load((image, c, pixels[j]), 2) for j in cb.unroll(range(lanes))))
    even, odd = tuple(range(0, 2 * lanes, 2)), tuple(range(1, 2 * lanes, 2))
    return cb.shuffle(both, both, even), cb.shuffle(both, both, odd)


@cb.func
def corners_of(x, image, c, pixels, inside, clear: cb.Comptime[bool], how: cb.Comptime[Sampling]):
    """What a channel has at all corners, zero outside; `clear`: they are inside."""
    if clear:
        found = tuple(
            pairs(x, image, c, pixels[q], how.lanes) for q in cb.unroll(range(0, how.corners, 2))
        )
        return tuple(cb.cast(found[q // 2][q % 2], how.acc) for q in cb.unroll(range(how.corners)))
    return tuple(
        cb.cast(cb.select(inside[q], picked(x, image, c, pixels[q], how.lanes), 0), how.acc)
        for q in cb.unroll(range(how.corners))
    )


@cb.func
def weighed(values, weights):
    """The sum of products."""
    total = values[0] * weights[0]
    for q in cb.unroll(range(1, len(values))):
        total = total + values[q] * weights[q]
    return total


@cb.func
def is_clear(inside, how: cb.Comptime[Sampling]):
    """Whether all corners of a line are inside."""
    every = inside[0]
    for q in cb.unroll(range(1, how.corners)):
        every = every & inside[q]
    return every.all()


@cb.kernel
def sample(
    x: cb.Array, grid: cb.Array, out: cb.Array, size, each, total, how: cb.Comptime[Sampling]
):
    """out[b, c, p] = x[b, c] at grid[b, p]; a unit does a line of positions of `each` channels.

    x is (images, channels, pixels), the grid (images, positions * axes).
    """
    if cb.ABSOLUTE_POS < total:
        channels, count, lanes = out.shape[1], out.shape[2], how.lanes
        lines, groups = (count + lanes - 1) // lanes, (channels + each - 1) // each
        image, group, line = cb.unravel(cb.ABSOLUTE_POS, (out.shape[0], groups, lines))
        p, left = line * lanes, count - line * lanes
        lows, shares, _ = pixels_of(grid, image, p, size, how)
        pixels = tuple(pixel_at(lows, size, q, how) for q in cb.unroll(range(how.corners)))
        inside = tuple(within(lows, size, q, how) for q in cb.unroll(range(how.corners)))
        weights = tuple(weight_of(shares, q, -1, how) for q in cb.unroll(range(how.corners)))
        first, stop = group * each, cb.min(group * each + each, channels)
        if how.nearest:
            for c in range(first, stop):
                (value,) = corners_of(x, image, c, pixels, inside, False, how)
                out.store((image, c, p), cb.cast(value, out.dtype), valid=left)
        elif how.lanes > 1 and is_clear(inside, how):
            for c in range(first, stop):
                values = corners_of(x, image, c, pixels, inside, True, how)
                value = cb.cast(weighed(values, weights), out.dtype)
                out.store((image, c, p), value, valid=left)
        else:
            for c in range(first, stop):
                values = corners_of(x, image, c, pixels, inside, False, how)
                value = cb.cast(weighed(values, weights), out.dtype)
                out.store((image, c, p), value, valid=left)


@cb.func
def slopes_of(values, shares, k: cb.Comptime[int], how: cb.Comptime[Sampling]):
    """What the weighed sum changes by along axis k: differences of corners beside each other."""
    total = cb.splat(cb.cast(0, how.acc), how.lanes)
    step = how.corners >> (k + 1)
    for q in cb.unroll(range(how.corners)):
        if not how.behind(q, k):
            total = total + (values[q + step] - values[q]) * weight_of(shares, q, k, how)
    return total


@cb.kernel
def sample_by_grid(
    x: cb.Array, grid: cb.Array, grad, out: cb.Array, size, total, how: cb.Comptime[Sampling]
):
    """The gradient of `sample` by the grid, from that by its result; a unit does a line."""
    if cb.ABSOLUTE_POS < total:
        count, lanes = grad.shape[2], how.lanes
        lines = (count + lanes - 1) // lanes
        image, line = cb.unravel(cb.ABSOLUTE_POS, (grad.shape[0], lines))
        p, left = line * lanes, count - line * lanes
        lows, shares, slopes = pixels_of(grid, image, p, size, how)
        pixels = tuple(pixel_at(lows, size, q, how) for q in cb.unroll(range(how.corners)))
        inside = tuple(within(lows, size, q, how) for q in cb.unroll(range(how.corners)))
        sums = cb.local(how.axes, how.acc, lanes=lanes)
        for k in cb.unroll(range(how.axes)):
            sums[k] = cb.splat(cb.cast(0, how.acc), lanes)
        if lanes > 1 and is_clear(inside, how):
            for c in range(x.shape[1]):
                values = corners_of(x, image, c, pixels, inside, True, how)
                g = cb.cast(grad.load((image, c, p), lanes, valid=left), how.acc)
                for k in cb.unroll(range(how.axes)):
                    sums[k] = sums[k] + slopes_of(values, shares, k, how) * g
        else:
            for c in range(x.shape[1]):
                values = corners_of(x, image, c, pixels, inside, False, how)
                g = cb.cast(grad.load((image, c, p), lanes, valid=left), how.acc)
                for k in cb.unroll(range(how.axes)):
                    sums[k] = sums[k] + slopes_of(values, shares, k, how) * g
        for k in cb.unroll(range(how.axes)):
            found = cb.cast(sums[k], how.exact) * slopes[k]
            for j in cb.unroll(range(lanes)):
                if j < left:
                    at = (p + j) * how.axes + how.axes - 1 - k
                    out[image, at] = cb.cast(found[j], out.dtype)


@cb.func
def add_corners(sums, at, pixels, inside, parts, how: cb.Comptime[Sampling]):
    """Add to each corner of a channel its part of the gradient; `inside` is None where all are."""
    for q in cb.unroll(range(how.corners)):
        part = parts[q] if inside is None else cb.select(inside[q], parts[q], 0)
        for j in cb.unroll(range(how.lanes)):
            pixel = pixels[q][j]
            sums[at[0], at[1], pixel] = sums[at[0], at[1], pixel] + part[j]


@cb.kernel
def sample_by_image(
    grad: cb.Array, grid: cb.Array, sums, out: cb.Array, size, each, how: cb.Comptime[Sampling]
):
    """The gradient of `sample` by the image, from that by its result; a unit does `each` channels
    of an image, all positions in order. Those of narrow floats are summed up in `sums` before.
    """
    channels, count, lanes = out.shape[1], grad.shape[2], how.lanes
    work = out if sums is None else sums
    groups = (channels + each - 1) // each
    image = cb.CUBE_POS // groups
    first = cb.CUBE_POS % groups * each
    stop = cb.min(first + each, channels)
    zero = cb.splat(cb.cast(0, work.dtype), lanes)
    for c in range(first, stop):
        for k, valid in cb.lines(0, out.shape[2], lanes):
            work.store((image, c, k), zero, valid=valid)
    for p in range(0, count, lanes):
        left = count - p
        lows, shares, _ = pixels_of(grid, image, p, size, how)
        pixels = tuple(pixel_at(lows, size, q, how) for q in cb.unroll(range(how.corners)))
        inside = tuple(within(lows, size, q, how) for q in cb.unroll(range(how.corners)))
        weights = tuple(weight_of(shares, q, -1, how) for q in cb.unroll(range(how.corners)))
        clear = is_clear(inside, how)
        for c in range(first, stop):
            g = cb.cast(grad.load((image, c, p), lanes, valid=left), how.acc)
            if how.nearest:
                add_corners(work, (image, c), pixels, inside, (g,), how)
            else:
                parts = tuple(g * w for w in weights)
                if clear:
                    add_corners(work, (image, c), pixels, None, parts, how)
                else:
                    add_corners(work, (image, c), pixels, inside, parts, how)
    if sums is not None:
        for c in range(first, stop):
            for k, valid in cb.lines(0, out.shape[2], lanes):
                line = work.load((image, c, k), lanes, valid=valid)
                out.store((image, c, k), cb.cast(line, out.dtype), valid=valid)


@cb.kernel
def sample_by_image_atomic(
    grad: cb.Array, grid: cb.Array, sums: cb.Array, size, each, total, how: cb.Comptime[Sampling]
):
    """The same, added to `sums` in any order; a unit does a position of `each` channels."""
    if cb.ABSOLUTE_POS < total:
        channels, count = sums.shape[1], grad.shape[2]
        groups = (channels + each - 1) // each
        image, group, p = cb.unravel(cb.ABSOLUTE_POS, (sums.shape[0], groups, count))
        lows, shares, _ = pixels_of(grid, image, p, size, how)
        for q in cb.unroll(range(how.corners)):
            if within(lows, size, q, how)[0]:
                pixel = pixel_at(lows, size, q, how)[0]
                weight = cb.cast(1, how.acc) if how.nearest else weight_of(shares, q, -1, how)[0]
                for c in range(group * each, cb.min(group * each + each, channels)):
                    g = cb.cast(grad[image, c, p], how.acc)
                    cb.atomic_add(sums, (image, c, pixel), g * weight)
