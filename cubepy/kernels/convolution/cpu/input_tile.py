"""Copying the part of the input that a cube's pixels see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.register_transpose import transpose_lines

LINE = 16  # elements of a cache line


@dataclass(frozen=True)
class Plan:
    """What changes the code of a convolution.

    Attributes:
        rows, lines, lanes: of the register tile.
        room: elements of the cube's copy of the input; 0: the input is read where it is.
        acc_tile: pixels of the cube's tile of sums, 0: there is none.
        filters_last: whether results of neighbouring filters are neighbours in memory (NHWC).
        pieces: whether the window is walked in pieces, with sums in the accumulators between them.
        bias, add: whether one is added; whether an array of the result's layout is.
        activation: a func of the result, or None.
        light: whether the activation is so short that it may be written out for every line of a
            tile.
        streaming: whether results are stored past the caches.
        ahead: lines of the filters that come next, asked for with every line of these; 0: they stay
            in a cache.
        turned: whether the cube's copy has channels as neighbours, and the input has not.
        mixed: how many channels do, where they are fewer than lanes; else 0.
        follow: whether tiles see pixels one behind the other, so that the next tile's are asked for
            while one is made.
        edges: whether rows of the window that all pixels of a tile see as padding are left out.
    """

    rows: int
    lines: int
    lanes: int
    room: int
    acc_tile: int
    filters_last: bool
    pieces: bool
    bias: bool
    add: bool
    activation: Any
    light: bool
    streaming: bool
    ahead: int
    turned: bool
    mixed: int
    follow: bool
    edges: bool

    @property
    def width(self) -> int:
        """Filters of a panel."""
        return self.lines * self.lanes


@cb.struct
class Geometry:
    """The integers of a launch: sizes and strides of the input (n, d, h, w, c) and of a cube's copy
    of it (t, h, w, c), its extent, the convolution's numbers, the packed filters, the cut of the
    work, and the walk over the window: three loops with their steps in the input, and an innermost
    run; `panel_row`, `panel_step` and `panel_run` are the steps of the second loop, the third and
    the run in the panel.
    """

    depth: Any
    height: Any
    width: Any
    sn: Any
    sd: Any
    sh: Any
    sw: Any
    sc: Any
    td: Any
    th: Any
    tw: Any
    tc: Any
    window_d: Any
    rows_in: Any
    width_in: Any
    stride_d: Any
    stride_h: Any
    stride_w: Any
    pad_d: Any
    pad_h: Any
    pad_w: Any
    out_d: Any
    out_h: Any
    out_w: Any
    channels: Any
    groups: Any
    panels: Any
    taps: Any
    filters: Any
    cuts: Any
    block_panels: Any
    walk_d: Any
    walk_h: Any
    walk_w: Any
    step_d: Any
    step_h: Any
    step_w: Any
    run: Any
    run_step: Any
    panel_row: Any
    panel_step: Any
    panel_run: Any


@cb.func
def begin_of(cut, length, cuts):
    """Where a cut of a length begins: cuts differ by one at most."""
    return cut * (length // cuts) + cb.min(cut, length % cuts)


@cb.func
def fill_zero(patch, target, count, lanes):
    """Zeros by whole lines, which may hang over into what is written next."""
    zero = cb.cast(cb.splat(0.0, lanes), cb.f32)
    for k in range(0, count, lanes):
        patch.store(target + k, zero)


@cb.func
def copy_run(patch, target, x, source, count, lanes):
    """Neighbours to neighbours, by whole lines, which may hang over into what is written next."""
    for k, valid in cb.lines(0, count, lanes):
        patch.store(target + k, cb.cast(x.load(source + k, lanes, valid=valid), cb.f32))


@cb.func
def copy_square(patch, target, x, source, count, g, lanes):
    """Up to `lanes` neighbouring pixels of as many channels: patch[w, c] = x[c, w]."""
    sc, tw = g.sc, g.tw
    lines = tuple(
        cb.cast(x.load(source + i * sc, lanes, valid=count), cb.f32)
        for i in cb.unroll(range(lanes))
    )
    lines = transpose_lines(lines, lanes)
    for i in cb.unroll(range(lanes)):
        if i < count:
            patch.store(target + i * tw, lines[i])


@cb.func
def copy_turned(patch, target, x, source, count, rows, g, lanes):
    """Rows of pixels of all channels, which are as many as lanes at least: patch[r, w, c] = x[c, r,
    w].

    A few channels at a time, all rows of them: each channel lies in a page of its own, and its rows
    one behind the other. The squares of a cache line of the copy are written together.
    """
    channels, sc, tw = g.channels, g.sc, g.tw
    sh, th = g.sh, g.th
    together = max(LINE, lanes)
    for j in range(0, channels, together):
        for r in range(rows):
            for k in range(0, count, lanes):
                w = cb.max(0, cb.min(k, count - lanes))
                for beside in cb.unroll(range(0, together, lanes)):
                    if j + beside < channels:
                        c = cb.min(j + beside, channels - lanes)
                        to, at = target + r * th + w * tw + c, source + c * sc + r * sh + w
                        copy_square(patch, to, x, at, count, g, lanes)


def mixing(channels: int, lanes: int, piece: int, channel: int) -> tuple[int, ...]:
    """The shuffle that puts a channel's pixels into a line of a row of mixed channels, over those
    before it.
    """
    at = [divmod(piece * lanes + k, channels) for k in range(lanes)]
    return tuple(lanes + pixel if c == channel else k for k, (pixel, c) in enumerate(at))


@cb.func
def copy_mixed(patch, target, x, source, count, rows, g, plan):
    """Rows of pixels of all channels, which are fewer than lanes: patch[r, w, c] = x[c, r, w]."""
    channels, lanes = plan.mixed, plan.lanes
    sc, sh, th = g.sc, g.sh, g.th
    for r in range(rows):
        to, at = target + r * th, source + r * sh
        if count < lanes:
            for k in range(count):
                for c in cb.unroll(range(channels)):
                    patch[to + k * channels + c] = cb.cast(x[at + k + c * sc], cb.f32)
        else:
            for k in range(0, count, lanes):
                w = cb.min(k, count - lanes)
                lines = tuple(
                    cb.cast(x.load(at + c * sc + w, lanes), cb.f32)
                    for c in cb.unroll(range(channels))
                )
                for piece in cb.unroll(range(channels)):
                    mixed = cb.shuffle(lines[0], lines[0], mixing(channels, lanes, piece, 0))
                    for c in cb.unroll(range(1, channels)):
                        mixed = cb.shuffle(mixed, lines[c], mixing(channels, lanes, piece, c))
                    patch.store(to + w * channels + piece * lanes, mixed)


@cb.func
def copy_patch(patch, x, n, channel, first, g, plan):
    """The input rows of a cube with their padding: patch[t, r, w, c], or patch[c, t, r, w] (the
    strides say which).

    Everything is written in the order of memory, so that a line may hang over its row.
    """
    lanes = plan.lanes
    depth, height, width = g.depth, g.height, g.width
    sn, sd, sh = g.sn, g.sd, g.sh
    sw, sc = g.sw, g.sc
    td, th, tw, tc = g.td, g.th, g.tw, g.tc
    window_d, rows_in, width_in = g.window_d, g.rows_in, g.width_in
    channels = g.channels
    d0, h0, w0 = first
    left = cb.min(width_in, cb.max(0, -w0))
    right = cb.max(left, cb.min(width_in, width - w0))
    planes = 1 if tc == 1 else channels
    for c in range(planes):
        for t in range(window_d):
            at_d = d0 + t
            for r in range(rows_in):
                at_h = h0 + r
                target = c * tc + t * td + r * th
                if at_d >= 0 and at_d < depth and at_h >= 0 and at_h < height:
                    source = n * sn + (channel + c) * sc + at_d * sd + at_h * sh + (w0 + left) * sw
                    fill_zero(patch, target, left * tw, lanes)
                    if not (plan.turned or plan.mixed):
                        if tc != 1 or (sw == channels and tw == channels):
                            copy_run(
                                patch, target + left * tw, x, source, (right - left) * tw, lanes
                            )
                        else:
                            for w in range(right - left):
                                copy_run(
                                    patch,
                                    target + (left + w) * tw,
                                    x,
                                    source + w * sw,
                                    channels,
                                    lanes,
                                )
                    fill_zero(patch, target + right * tw, (width_in - right) * tw, lanes)
                else:
                    fill_zero(patch, target, width_in * tw, lanes)
    if plan.turned or plan.mixed:
        above, below = cb.max(0, -h0), cb.min(rows_in, height - h0)
        for t in range(window_d):
            at_d = d0 + t
            if at_d >= 0 and at_d < depth:
                target = t * td + above * th + left * tw
                source = n * sn + channel * sc + at_d * sd + (h0 + above) * sh + (w0 + left) * sw
                if plan.mixed:
                    copy_mixed(patch, target, x, source, right - left, below - above, g, plan)
                else:
                    copy_turned(patch, target, x, source, right - left, below - above, g, lanes)


@cb.func
def starts_of(p, here, rows: cb.Comptime[int], base, g, plan):
    """Where the input that output pixels see begins: of p and those behind it, `here` at most; the
    last is repeated.

    One division gives the row of the first; the others are a step further, or at the beginning of
    the next row.
    """
    out_w = g.out_w
    along_h = (g.th if plan.room else g.sh) * g.stride_h
    along_w = (g.tw if plan.room else g.sw) * g.stride_w
    r = p // out_w
    w = p - r * out_w
    at = base + r * along_h + w * along_w
    starts = (at,)
    back = along_h - out_w * along_w
    for i in cb.unroll(range(1, rows)):
        more = i < here
        w = cb.select(more, w + 1, w)
        at = cb.select(more, at + along_w, at)
        over = w == out_w
        w = cb.select(over, 0, w)
        at = cb.select(over, at + back, at)
        starts = starts + (at,)
    return starts


@cb.func
def rows_seen(first, last, g):
    """Rows of the window that lie inside the input for one of the pixels from `first` to `last`:
    begin and end.
    """
    top, bottom = first // g.out_w, last // g.out_w
    stride, pad = g.stride_h, g.pad_h
    return cb.max(0, pad - bottom * stride), cb.min(g.walk_h, g.height + pad - top * stride)
