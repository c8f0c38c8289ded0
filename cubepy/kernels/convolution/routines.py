"""The routines of convolutions, and which is guessed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.cpu.depthwise_nchw import by_plane
from cubepy.kernels.convolution.cpu.depthwise_nchw import plan_for as planes_for
from cubepy.kernels.convolution.cpu.depthwise_nhwc import by_channel
from cubepy.kernels.convolution.cpu.direct import FLAT, HALF, SHARE, WRITTEN_OUT, by_rows
from cubepy.kernels.convolution.cpu.direct import plan_for as rows_for
from cubepy.kernels.convolution.cpu.filters import has_few, panels_of, taps_of
from cubepy.kernels.convolution.cpu.implicit_gemm import convolve
from cubepy.kernels.convolution.cpu.implicit_gemm_plan import Ending, Memory, plan_of, to_widen
from cubepy.kernels.convolution.cpu.pointwise import by_points, fits, shapes, suits
from cubepy.kernels.convolution.cpu.register_tile import tile_for, tiles
from cubepy.kernels.convolution.im2col import by_columns
from cubepy.kernels.convolution.measure import Convolve
from cubepy.kernels.convolution.problem import Convolution, first_of, flat_of, in_three, shape_of
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.movement.pad import pad
from cubepy.kernels.movement.transpose import transpose
from cubepy.runtime.memory.address import address
from cubepy.tune import TunedRoutine

FEW_PIXELS = 64  # of a plane, whose channels lie a few cache lines apart
DEEP = 256
"""Channels of an image that are better neighbours: their walk is the longest part of the
window's.
"""


class OnCpu(TunedRoutine):
    """A routine of CPUs."""

    def supports(self, p: Convolution, properties: cb.DeviceProperties) -> str | None:
        """What is wrong with the device or the problem."""
        return "for CPUs" if p.on_gpu else self.unfit(p)

    def unfit(self, p: Convolution) -> str | None:
        """What is wrong with the problem."""
        return None


@dataclass(frozen=True)
class Usual:
    """A blueprint of a routine that has nothing to choose."""


class Channels(OnCpu):
    """Every channel has one filter, and results have channels last: lanes lie along the
    channels.
    """

    name = "channels"

    def unfit(self, p: Convolution) -> str | None:
        """Every channel its own filter, nothing added."""
        fits = p.depthwise and p.last and not p.add
        return None if fits else "depthwise, channels last, nothing is added"

    def blueprints(self, p: Convolution, properties: cb.DeviceProperties) -> Iterator[Usual]:
        """By the rules."""
        yield Usual()

    def launch(self, blueprint: Usual, p: Convolution, args: tuple[Any, ...]) -> None:
        """The image is laid out with channels last, if it is not."""
        view, w, bias, _, out, function = args
        shape = shape_of(p)
        x, result = in_three(contiguous(view)), out.reshape(p.n, *shape.out, p.groups)
        by_channel(x, taps_of(w, p.groups), bias, result, shape, function, p.properties)


class Planes(OnCpu):
    """Every channel has one filter, and channels come first: planes are read as they lie."""

    name = "planes"

    def unfit(self, p: Convolution) -> str | None:
        """Every channel its own filter, and windows that leave no sums over."""
        if not p.depthwise or p.last or p.layout not in ("first", "both") or p.add:
            return "depthwise, channels first, nothing is added"
        planned = planes_for(shape_of(p), p.n * p.groups, None, p.properties)
        return None if planned else "windows are too large, or rows too short"

    def blueprints(self, p: Convolution, properties: cb.DeviceProperties) -> Iterator[Usual]:
        """By the rules."""
        yield Usual()

    def launch(self, blueprint: Usual, p: Convolution, args: tuple[Any, ...]) -> None:
        """Planes of images stay where they are."""
        view, w, bias, _, out, function = args
        taps, result = taps_of(w, p.groups)[:, 0, 0], flat_of(p, out)
        by_plane(view, taps, bias, result, shape_of(p), function, p.properties)


@dataclass(frozen=True)
class Tile:
    """A register tile, by the rules if it is not given.

    Attributes:
        shape: two lengths, such as rows of pixels and filters.
    """

    shape: tuple[int, int] | None = None


class Rows(OnCpu):
    """Few filters: lanes lie along rows of pixels, a cube copies the rows that it needs of all
    channels of a group.
    """

    name = "rows"

    def unfit(self, p: Convolution) -> str | None:
        """Rows of all channels fit into a cube, and packed filters into a panel."""
        if p.add or (p.packed and not has_few(p.all_filters, p.groups) and p.filters > p.panel):
            return "nothing is added, packed filters are one panel"
        planned = rows_for(shape_of(p), p.channels, p.filters, None, p.properties)
        return None if planned else "a cube has no memory for the rows"

    def group(self, key: Convolution) -> int:
        """Of no use where lanes can lie along filters."""
        return 0 if key.channels <= 2 * FLAT or key.filters <= 2 * HALF else -1

    def blueprints(self, p: Convolution, properties: cb.DeviceProperties) -> Iterator[Tile]:
        """The tile of the rules, then others that registers hold."""
        yield Tile()
        for shape in ((rows, block) for block in (1, 2, 4) for rows in (2, 4, 6, 8)):
            few = (
                math.prod(shape) <= properties.vector_registers // SHARE
                and math.prod(shape) * p.kh <= WRITTEN_OUT
                and shape[1] <= p.filters
            )
            if few and rows_for(shape_of(p), p.channels, p.filters, None, properties, shape):
                yield Tile(shape)

    def launch(self, blueprint: Tile, p: Convolution, args: tuple[Any, ...]) -> None:
        """Images with channels last are transposed before, and results after."""
        view, w, bias, _, out, function = args
        how = (shape_of(p), p.last, function, p.properties, blueprint.shape)
        by_rows(view, taps_of(w, p.groups), bias, flat_of(p, out), *how)


class Points(OnCpu):
    """Windows of one pixel, channels first: lanes lie along the pixels."""

    name = "points"

    def unfit(self, p: Convolution) -> str | None:
        """One pixel, channels first, few enough channels for a cube."""
        if not p.pointwise or p.last or p.layout not in ("first", "both"):
            return "windows of one pixel, channels first"
        room = fits(p.channels, p.panel, p.properties)
        return None if room else "a cube has no memory for a block of all channels"

    def blueprints(self, p: Convolution, properties: cb.DeviceProperties) -> Iterator[Tile]:
        """Filters and lines by the rules, then others that registers hold."""
        yield Tile()
        for shape in shapes(properties)[1:]:
            if fits(p.channels, p.panel, properties, shape):
                yield Tile(shape)

    def launch(self, blueprint: Tile, p: Convolution, args: tuple[Any, ...]) -> None:
        """Nothing is turned."""
        view, w, bias, add, out, function = args
        n, pixels = p.n, math.prod(shape_of(p).size)
        more = None if add is None else flat_of(p, add)
        panels = panels_of(w, p.groups, p.properties).panels
        x = first_of(view).reshape(n, -1, pixels)
        how = (function, p.properties, blueprint.shape)
        by_points(x, panels, bias, more, flat_of(p, out), *how)


@dataclass(frozen=True)
class Blocks:
    """What a block is, beside what the rules say of it.

    Attributes:
        lines: lines of filters of the register tile, 0: by the rules; packed filters have theirs.
        finer: so many times as many ranges of pixels as by the rules.
        parts: ranges of panels, 0: by the rules.
        widen: padding goes into memory first, though it need not.
        transpose: images with channels first are transposed before, though they need not.
    """

    lines: int = 0
    finer: float = 1.0
    parts: int = 0
    widen: bool = False
    transpose: bool = False


class Block(OnCpu):
    """Any convolution, as a product whose rows are pixels: lanes lie along the filters."""

    name = "block"

    def blueprints(self, p: Convolution, properties: cb.DeviceProperties) -> Iterator[Blocks]:
        """As the rules have it; then other cuts, padding in memory, other tiles."""
        yield Blocks()
        _, usual, lanes = tile_for(p.filters, properties)
        for lines in (
            [usual]
            if p.packed
            else sorted({lines for _, lines in tiles(properties)}, key=lambda n: n != usual)
        ):
            panels = -(-p.filters // (lines * lanes))
            parts = (n for n in (1, 2, 4, 8, 16) if n <= panels)
            tile = Blocks(0 if lines == usual else lines)
            if lines != usual:
                yield tile
            yield from (replace(tile, finer=f) for f in (0.5, 2.0, 4.0))
            yield from (replace(tile, parts=n) for n in parts)
        if p.pd or p.ph or p.pw:
            yield Blocks(widen=True)
        if p.layout == "first":
            yield Blocks(transpose=True)

    def launch(self, blueprint: Blocks, p: Convolution, args: tuple[Any, ...]) -> None:
        """Filters go into panels, and padding into memory where it must."""
        view, w, bias, add, out, function = args
        packed, shape = panels_of(w, p.groups, p.properties, blueprint.lines), shape_of(p)
        last = view.flags.c_contiguous
        if not last and not first_of(view).flags.c_contiguous:
            view, last = contiguous(view), True
        deep = p.groups == 1 and p.channels >= DEEP and math.prod(shape.window) > 1
        many = p.filters if p.dtype == "f32" and (last or deep) else 0
        wide = blueprint.widen or to_widen(shape, p.channels, p.properties, many)
        if (
            blueprint.transpose or (wide and deep) or scattered(p)
        ) and not last:  # nothing else turns it
            view, last = transpose(first_of(view), (0, *range(2, view.ndim), 1)), True
        if wide and any(shape.pad):
            edges = tuple(e for e in reversed(shape.pad[5 - view.ndim :]) for _ in range(2))
            size = tuple(a + 2 * b for a, b in zip(shape.size, shape.pad, strict=True))
            shape = replace(shape, size=size, pad=(0, 0, 0))
            if last:
                view = pad(view, (0, 0, *edges))
            else:
                view = pad(first_of(view), edges).transpose(0, *range(2, view.ndim), 1)
        n, pixels, result = p.n, math.prod(shape.out), flat_of(p, out)
        more = None if add is None else flat_of(p, add)
        flat = (view if last else first_of(view)).reshape(-1)
        if last and p.last and p.pointwise:  # a plain product: so are all pixels
            result = result.reshape(1, n * pixels, -1)
            more = None if add is None else add.reshape(1, n * pixels, -1)
            n, shape = 1, replace(shape, size=(1, 1, n * pixels), out=(1, 1, n * pixels))
        counts = (*packed.panels.shape[:2], packed.panels.shape[3])
        memory = Memory(last, p.last, p.dtype == "f32", address(result) % 64 == 0)
        ending = Ending(bias is not None, add is not None, function)
        how = (memory, ending, p.properties, blueprint.finer, blueprint.parts)
        cubes, geometry, plan = plan_of(shape, n, p.filters, p.channels, counts, *how)
        convolve[cubes, 1](
            flat, packed.panels.reshape(-1), bias, more, result, geometry, plan, mode="unchecked"
        )


class Columns(TunedRoutine):
    """Windows laid out in memory, and a product of matrices."""

    name = "columns"

    def supports(self, p: Convolution, properties: cb.DeviceProperties) -> str | None:
        """Filters as they are, nothing added."""
        return "filters are packed, or something is added" if p.packed or p.add else None

    def group(self, key: Convolution) -> int:
        """Where windows overlap, columns are many times the image."""
        return 0 if key.groups == 1 else -1

    def blueprints(self, p: Convolution, properties: cb.DeviceProperties) -> Iterator[Usual]:
        """The product has blueprints of its own."""
        yield Usual()

    def launch(self, blueprint: Usual, p: Convolution, args: tuple[Any, ...]) -> None:
        """Group by group."""
        view, w, bias, _, out, function = args
        by_columns(view, w, bias, flat_of(p, out), shape_of(p), p.groups, p.last, function)


def is_flat(p: Convolution) -> bool:
    """Whether images have so few channels that pixels are the longer neighbourhood.

    With 8 lanes and up to 8 filters four times as many channels are few (Zen 3, windows of 3 x 3
    and 5 x 5).
    """
    short = p.properties.register_bytes <= 32 and math.prod(shape_of(p).window) > 1
    return p.channels <= (4 * FLAT if short and p.filters <= 8 else FLAT)


def scattered(p: Convolution) -> bool:
    """Whether windows of one pixel see so few neighbours in memory that images with channels first
    are better turned.

    So it was with many channels, 8 lanes and 2 threads (Zen 3); with 16 lanes it was not measured.
    """
    shape = shape_of(p)
    alone = math.prod(shape.window) == 1 and not any(shape.pad)
    strided = math.prod(shape.stride) > 1 or math.prod(shape.size) <= FEW_PIXELS
    return (
        alone
        and strided
        and p.groups == 1
        and p.channels >= 2 * DEEP
        and p.properties.register_bytes <= 32
    )


def guess(p: Convolution) -> str:
    """The routine that is taken without a measurement, by where lanes are full and little is
    turned.
    """
    if p.on_gpu:
        return ""
    shape = shape_of(p)
    few = has_few(p.all_filters, p.groups)
    narrow = is_flat(p) if p.groups == 1 else p.filters <= HALF
    if few or (narrow and p.filters <= p.panel and not p.add and not p.last):
        if p.depthwise and p.last:
            return "channels"
        if (
            p.depthwise
            and p.layout in ("first", "both")
            and planes_for(shape, p.n * p.groups, None, p.properties)
        ):
            return "planes"
        if rows_for(shape, p.channels, p.filters, None, p.properties):
            return "rows"
    as_points = p.pointwise and p.layout == "first" and not p.last
    if as_points and fits(p.channels, p.panel, p.properties):
        if suits(p.n * p.groups, math.prod(shape.out), p.properties):
            return "points"
    return "block"


class Guessed(Convolve):
    """The operation, and which of its routines is guessed."""

    def guess(self, problem: Convolution) -> str:
        """By where lanes are full and little is turned."""
        return guess(problem)

    def asked(self, problem: Convolution, properties: cb.DeviceProperties) -> tuple[Any, ...]:
        """Those for GPUs also where arrays are far away as on one."""
        return self.routines if problem.on_gpu else self.on_any


CONVOLUTION = Guessed(
    "convolution",
    [Channels(), Planes(), Points(), Block(), Rows(), Columns()],
    for_gpus="cubepy.kernels.convolution.routines_gpu",
)
