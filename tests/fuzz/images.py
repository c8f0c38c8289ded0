"""Convolutions of 1 to 3 axes, their transposes and gradients; images at positions, and windows as
columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy import kernels as K
from cubepy.nn import functional as F
from tests.fuzz.check import Want, depth, exact
from tests.fuzz.draws import FLOATS, Call, Draw, draws, sums
from tests.fuzz.elementwise import ACTIVATIONS

LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def last(x: np.ndarray) -> np.ndarray:
    """Channels to the end."""
    return np.moveaxis(x, 1, -1)


@dataclass
class Conv:
    """Shapes and options of a convolution with channels first."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def options(self) -> dict[str, Any]:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    def taps(self) -> Any:
        """For each place of the window: where it is, and the parts of results and of padded inputs
        that it joins.
        """
        for tap in np.ndindex(*self.w[2:]):
            yield (..., *tap), (..., *(
                slice(t * e, t * e + (m - 1) * s + 1, s)
                for t, e, s, m in zip(tap, self.dilation, self.stride, self.y[2:], strict=True)
            ))  # fmt: skip

    def split(self, x: np.ndarray, axis: int) -> np.ndarray:
        """An axis of channels in groups."""
        return x.reshape(
            *x.shape[:axis], self.groups, x.shape[axis] // self.groups, *x.shape[axis + 1 :]
        )

    def padded(self, x: np.ndarray) -> np.ndarray:
        return np.pad(x, ((0, 0), (0, 0), *((p, p) for p in self.padding)))

    def inside(self, x: np.ndarray) -> np.ndarray:
        return x[(..., *(slice(p, p + n) for p, n in zip(self.padding, self.x[2:], strict=True)))]

    def forward(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        x, w = self.split(self.padded(x), 1), self.split(w, 0)
        y = np.zeros((self.y[0], self.groups, self.w[0] // self.groups, *self.y[2:]))
        for tap, part in self.taps():
            y += np.einsum("ngc...,gfc->ngf...", x[part], w[tap])
        return y.reshape(self.y)

    def by_input(self, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        x = self.padded(np.zeros(self.x))
        x, g, w = self.split(x, 1), self.split(g, 1), self.split(w, 0)
        for tap, part in self.taps():
            x[part] += np.einsum("ngf...,gfc->ngc...", g, w[tap])
        return self.inside(x.reshape(self.x[0], self.x[1], *x.shape[3:]))

    def by_weight(self, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        x, g = self.split(self.padded(x), 1), self.split(g, 1)
        flat = lambda v: v.reshape(*v.shape[:3], math.prod(v.shape[3:]))
        w = np.zeros((self.groups, self.w[0] // self.groups, *self.w[1:]))
        for tap, part in self.taps():
            w[tap] = np.einsum("ngcp,ngfp->gfc", flat(x[part]), flat(g))
        return w.reshape(self.w)


def problem(d: Draw, axes: int) -> Conv:
    """A convolution whose window fits, with some ten thousand products."""
    groups = d.one((1, 1, 1, 2, 3))
    deep = d.maybe(0.15)  # a filter for each channel
    channels = groups * d.one((1, 3, 4, 8, 16, 17, d.between(1, 33)))
    filters = groups * d.one((1, 4, 8, 16, 33, d.between(1, 40)))
    if deep:
        groups = filters = channels
    high = {1: 120, 2: 24, 3: 9}[axes]
    size, window, stride, padding, dilation, out = [], [], [], [], [], []
    for _ in range(axes):
        k, e, s = d.one((1, 2, 3, 3, 3, 5)), d.one((1, 1, 1, 2)), d.one((1, 1, 1, 2, 3))
        p = d.between(0, e * (k - 1)) if d.maybe(0.6) else 0
        n = max(d.size(1, high), e * (k - 1) + 1 - 2 * p, 1)
        for into, v in zip(
            (size, window, stride, padding, dilation, out),
            (n, k, s, p, e, (n + 2 * p - e * (k - 1) - 1) // s + 1),
            strict=True,
        ):
            into.append(v)
    batch = 0 if d.sometimes(0.03) else d.between(1, 3)
    while (
        batch * filters * channels // groups * math.prod(out) * math.prod(window) > 4_000_000
        and channels > groups
        and filters > groups
    ):
        channels, filters = groups, groups
    return Conv((batch, channels, *size), (filters, channels // groups, *window), (batch, filters, *out),
                tuple(stride), tuple(padding), tuple(dilation), groups)  # fmt: skip


def image(
    d: Draw, shape: tuple[int, ...], dtype: np.dtype, layout: str, kind: str = "normal"
) -> np.ndarray:
    """An image as a layout has it, or channels first in channels-last memory."""
    if layout[1] != "C":
        return d.array((shape[0], *shape[2:], shape[1]), dtype, kind)
    if d.maybe(0.2):
        return np.moveaxis(d.array((shape[0], *shape[2:], shape[1]), dtype, kind), -1, 1)
    return d.array(shape, dtype, kind)


def first(x: np.ndarray, layout: str) -> np.ndarray:
    return x if layout[1] == "C" else np.moveaxis(x, -1, 1)


def as_laid(want: Want, layout: str) -> Want:
    """A result with channels first, as a layout has it."""
    return (
        want
        if layout[1] == "C"
        else Want(last(want.value), want.dtype, last(np.broadcast_to(want.error, want.shape)))
    )


@draws("conv1d", "conv2d", "conv3d", also=("prepack_filter",))
def _(d: Draw, name: str) -> Call:
    axes, dtype = int(name[4]), d.one(FLOATS[:-1])
    c, layout = problem(d, axes), d.one(LAYOUTS[axes])
    x, w = image(d, c.x, dtype, layout, d.kind("ties", "zeros")), d.array(c.w, dtype, "normal")
    options: dict[str, Any] = {**c.options(), "layout": layout}
    if d.maybe(0.4):
        options["bias"] = d.array((c.y[1],), dtype, "normal")
    if d.maybe(0.3):
        options["activation"] = d.one(tuple(ACTIVATIONS))
    if d.maybe(0.2):
        options["add"] = image(d, c.y, dtype, layout)
    function, packs = getattr(K, name), d.maybe(0.15)

    def call(x: Any, w: Any, **options: Any) -> Any:  # filters of a GPU are not packed
        packed = packs and isinstance(w, np.ndarray)
        return function(x, K.prepack_filter(w, c.groups) if packed else w, **options)

    def want() -> Want:
        wide, deep = first(x, layout).astype(np.float64), w.astype(np.float64)
        value, size = c.forward(wide, deep), c.forward(np.abs(wide), np.abs(deep))
        if "bias" in options:
            bias = options["bias"].astype(np.float64).reshape(-1, *(1,) * axes)
            value, size = value + bias, size + np.abs(bias)
        if "add" in options:
            add = first(options["add"], layout).astype(np.float64)
            value, size = value + add, size + np.abs(add)
        if "activation" in options:
            value = ACTIVATIONS[options["activation"]](value)
            size = size + np.abs(value)  # its own rounding
        n = math.prod(c.w[1:])
        return as_laid(Want(value, dtype, (depth(n) + 8) * sums(dtype) * size), layout)

    call.__name__ = name
    return Call(call, (x, w), want, options)


@draws("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _(d: Draw, name: str) -> Call:
    axes, dtype = int(name[14]), d.one(FLOATS[:-1])
    c, layout = problem(d, axes), d.one(LAYOUTS[axes])
    # the input of the transposed convolution is the result of the other one
    g, w = image(d, c.y, dtype, layout), d.array(c.w, dtype, "normal")
    whole = [(m - 1) * s - 2 * p + e * (k - 1) + 1 for m, s, p, e, k in
             zip(c.y[2:], c.stride, c.padding, c.dilation, c.w[2:], strict=True)]  # fmt: skip
    more = tuple(n - base for n, base in zip(c.x[2:], whole, strict=True))
    options = {**c.options(), "output_padding": more, "layout": layout}
    if d.maybe(0.4):
        options["bias"] = d.array((c.x[1],), dtype, "normal")

    def want() -> Want:
        deep, wide = w.astype(np.float64), first(g, layout).astype(np.float64)
        value, size = c.by_input(deep, wide), c.by_input(np.abs(deep), np.abs(wide))
        if "bias" in options:
            bias = options["bias"].astype(np.float64).reshape(-1, *(1,) * axes)
            value, size = value + bias, size + np.abs(bias)
        n = math.prod(c.w[2:]) * c.w[0] // c.groups
        return as_laid(Want(value, dtype, (depth(n) + 4) * sums(dtype) * size), layout)

    return Call(getattr(K, name), (g, w), want, options)


@draws("conv_input", "conv_weight")
def _(d: Draw, name: str) -> Call:
    axes, dtype = d.one((1, 2, 2, 2, 3)), d.one(FLOATS[:-1])
    c, layout = problem(d, axes), LAYOUTS[d.one((1,))][0]
    g = image(d, c.y, dtype, layout)
    by_input = name == "conv_input"
    other = d.array(c.w, dtype, "normal") if by_input else image(d, c.x, dtype, layout)

    def want() -> Want:
        a, b = other.astype(np.float64), g.astype(np.float64)
        function = c.by_input if by_input else c.by_weight
        n = math.prod(c.w[2:]) * c.w[0] // c.groups if by_input else c.y[0] * math.prod(c.y[2:])
        return Want(
            function(a, b), dtype, (depth(n) + 4) * sums(dtype) * function(np.abs(a), np.abs(b))
        )

    args = (c.x, other, g) if by_input else (other, c.w, g)
    return Call(getattr(K, name), args, want, c.options(), out=False)


def reflected(p: np.ndarray, n: int, align: bool) -> np.ndarray:
    """Positions folded back at the ends of an axis."""
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if not span:
        return p * 0
    rest = np.abs(p - low) % (2 * span)
    return np.minimum(rest, 2 * span - rest) + low


def kept(p: np.ndarray, n: int, padding: str, align: bool) -> np.ndarray:
    """Positions of an axis where its padding has them."""
    if padding == "zeros":
        return p
    return np.clip(reflected(p, n, align) if padding == "reflection" else p, 0, n - 1)


def at_pixels(x: np.ndarray, at: list[np.ndarray], padding: str, align: bool) -> np.ndarray:
    """x (N, C, *size) at whole positions (N, *out)."""
    size, inside = x.shape[2:], np.ones(at[0].shape, bool)
    index = []
    for p, n in zip(at, size, strict=True):
        whole = kept(p, n, padding, align)
        inside &= (whole >= 0) & (whole < n)
        index.append(np.clip(whole, 0, n - 1).astype(np.int64))
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * (at[0].ndim - 1))
    values = np.moveaxis(x, 1, -1)[(batch, *index)] * inside[..., None]
    return np.moveaxis(values, -1, 1)


def cubic(d: np.ndarray) -> np.ndarray:
    """The weight of a pixel so far away (Keys, 1981)."""
    a, d = -0.75, np.abs(d)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    away = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, away, 0))


@draws("F.grid_sample")
def _(d: Draw, name: str) -> Call:
    """Positions are eighths of pixels and none halfway, so that it is known which one is nearest."""
    axes, dtype = d.one((2, 2, 3)), d.one(FLOATS)
    mode = d.one(("bilinear", "nearest") if axes == 3 else ("bilinear", "nearest", "bicubic"))
    padding, align = d.one(("zeros", "border", "reflection")), d.maybe()
    size = tuple(d.between(1, 7) for _ in range(axes))
    out = tuple(d.between(0 if d.sometimes(0.05) else 1, 6) for _ in range(axes))
    batch, channels = d.between(1, 3), d.between(1, 4)
    x = d.array((batch, channels, *size), dtype, "normal")
    eighths = d.numbers.choice((-3, -2, -1, 0, 1, 2, 3), (batch, *out, axes)) / 8
    pixels = d.numbers.integers(-3, np.array(size) + 3, (batch, *out, axes)) + eighths
    lengths = np.array(size, np.float64)
    with np.errstate(all="ignore"):
        grid = 2 * pixels / (lengths - 1) - 1 if align else (2 * pixels + 1) / lengths - 1
    grid = d.placed(np.nan_to_num(grid, posinf=0, neginf=0)[..., ::-1].astype(dtype))
    options = {"mode": mode, "padding_mode": padding, "align_corners": align}

    def want() -> Want:
        v, g = x.astype(np.float64), grid.astype(np.float64)[..., ::-1]
        at = [
            (g[..., k] + 1) * (n - 1) / 2 if align else ((g[..., k] + 1) * n - 1) / 2
            for k, n in enumerate(size)
        ]
        if mode != "bicubic":
            at = [kept(p, n, padding, align) for p, n in zip(at, size, strict=True)]
        if mode == "nearest":
            return Want(at_pixels(v, [np.round(p) for p in at], padding, align), dtype)
        reach = (0, 1) if mode == "bilinear" else (-1, 0, 1, 2)
        value = np.zeros((batch, channels, *out))
        for taps in np.ndindex(*(len(reach),) * axes):
            pixel = [np.floor(p) + reach[t] for p, t in zip(at, taps, strict=True)]
            weight = np.ones((batch, *out))
            for p, q in zip(at, pixel, strict=True):
                weight = weight * (cubic(p - q) if mode == "bicubic" else 1 - np.abs(p - q))
            value += at_pixels(v, pixel, padding, align) * weight[:, None]
        return Want(value, dtype, 400 * sums(dtype) * np.abs(v).max(initial=1))

    return Call(F.grid_sample, (x, grid), want, options, out=False)


@draws("F.affine_grid")
def _(d: Draw, name: str) -> Call:
    axes, dtype, align = d.one((2, 2, 3)), d.one(FLOATS), d.maybe()
    out = tuple(d.between(1, 9) for _ in range(axes))
    theta = d.array((d.between(1, 3), axes, axes + 1), dtype, "normal")

    def want() -> Want:
        ends = [np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in out]
        middles = [(np.arange(n) * 2 + 1) / n - 1 for n in out]
        full = np.meshgrid(*(ends if align else middles), indexing="ij")
        base = np.stack([*full[::-1], np.ones(out)], -1).astype(dtype).astype(np.float64)
        maps = theta.astype(np.float64)
        value = np.einsum("...k,nrk->n...r", base, maps)
        size = np.einsum("...k,nrk->n...r", np.abs(base), np.abs(maps))
        return Want(value, dtype, 8 * sums(dtype) * size)

    size = (theta.shape[0], d.between(1, 4), *out)
    return Call(F.affine_grid, (theta, size), want, {"align_corners": align}, out=False)


@draws("F.unfold", "F.fold")
def _(d: Draw, name: str) -> Call:
    dtype, two = d.one(FLOATS), range(2)
    kernel, dilation, stride = (tuple(d.between(1, n) for _ in two) for n in (3, 2, 3))
    padding = tuple(d.between(0, 2) for _ in two)
    reach = [e * (k - 1) + 1 for e, k in zip(dilation, kernel, strict=True)]
    size = tuple(d.between(max(r - 2 * p, 1), 12) for r, p in zip(reach, padding, strict=True))
    counts = [
        (n + 2 * p - r) // s + 1
        for n, p, r, s in zip(size, padding, reach, stride, strict=True)
    ]  # fmt: skip
    batch, channels = d.between(1, 3), d.between(1, 4)
    whole = (batch, channels, *(n + 2 * p for n, p in zip(size, padding, strict=True)))
    inner = (..., *(slice(p, p + n) for p, n in zip(padding, size, strict=True)))
    taps = [
        (..., *(slice(t * e, t * e + s * (m - 1) + 1, s)
                for t, e, s, m in zip(tap, dilation, stride, counts, strict=True)))
        for tap in np.ndindex(*kernel)
    ]  # fmt: skip
    how = (kernel, dilation, padding, stride)
    if name == "F.unfold":
        x = d.array((batch, channels, *size), dtype)

        def columns() -> Want:
            padded = np.zeros(whole, dtype)
            padded[inner] = x
            parts = [padded[tap].reshape(batch, channels, 1, -1) for tap in taps]
            return exact(np.concatenate(parts, 2).reshape(batch, channels * len(taps), -1))

        return Call(F.unfold, (x, *how), columns, out=False)
    x = d.array((batch, channels * len(taps), math.prod(counts)), dtype, "normal")

    def image() -> Want:
        value, total = np.zeros(whole), np.zeros(whole)
        parts = x.astype(np.float64).reshape(batch, channels, len(taps), *counts)
        for k, tap in enumerate(taps):
            value[tap] += parts[:, :, k]
            total[tap] += np.abs(parts[:, :, k])
        return Want(value[inner], dtype, len(taps) * sums(dtype) * total[inner])

    return Call(F.fold, (x, size, *how), image, out=False)
