"""Transposed convolutions by the Hopper kernel (gradients by the input too), without zeros between
the elements.

Pixel i of the input and tap k go to pixel s i + d k - p of the result. So the pixels of the result
that leave one remainder by the stride see some taps of the window, in opposite order: a convolution
of stride 1 with a negative dilation, whose results lie `s` apart in memory. One launch does up to
four remainders, those with most taps first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.gpu.in_order import in_order
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.sm90.implicit_gemm_plan import (
    Part,
    launch,
    prepared_parts,
    steps_of,
    suits,
)
from cubepy.kernels.convolution.sm90.operand_layout import MEASURE, in_boxes
from cubepy.runtime import memory
from cubepy.runtime.symbolic.cached import cached

TOGETHER = 4
"""Remainders of a launch, at most."""


@dataclass(frozen=True)
class Remainder:
    """What the pixels of the result with one remainder see along an axis.

    Attributes:
        start, pixels: the first pixel, and how many there are.
        first, step, taps: of the window, the first tap, from it to the next one, and how many there
            are.
        dilation, pad: tap j of pixel q sees pixel q + j * dilation - pad.
    """

    start: int
    pixels: int
    first: int
    step: int
    taps: int
    dilation: int
    pad: int


@cached
def remainders(
    size: int, window: int, stride: int, dilation: int, cut: int
) -> tuple[Remainder, ...]:
    """All of an axis of `size` pixels of the result."""
    found = []
    for start in range(min(stride, size)):
        seen = [k for k in range(window) if (start + cut - k * dilation) % stride == 0]
        first, step = (seen[0] if seen else 0), (seen[1] - seen[0] if len(seen) > 1 else 1)
        found.append(
            Remainder(
                start,
                -(-(size - start) // stride),
                first,
                step,
                len(seen),
                -(step * dilation // stride),
                -((start + cut - first * dilation) // stride),
            )
        )
    return tuple(found)


def parts_of(
    x: Any, out: Any, window: Any, stride: Any, cut: Any, dilation: Any, tf32: bool = False
) -> Iterator[Part]:
    """The parts that make out (N, *sizes, F) of x (N, *size, C): views of out, each with its
    convolution and how that walks over the window. Pixels that no tap goes to are in none.
    """
    axes = out.ndim - 2
    ones, zeros = (1,) * (3 - axes), (0,) * (3 - axes)
    size: Any = (1,) * (5 - x.ndim) + tuple(x.shape[1:-1])
    window, sizes = ones + tuple(window), ones + tuple(out.shape[1:-1])
    steps = steps_of(window)
    axis = zip(sizes, window, ones + stride, ones + dilation, zeros + cut, strict=True)
    for some in itertools.product(*(remainders(*numbers) for numbers in axis)):
        if math.prod(r.taps for r in some):
            problem = Problem(
                size,
                tuple(r.taps for r in some),
                (1, 1, 1),
                tuple(r.pad for r in some),
                tuple(r.dilation for r in some),
                tuple(r.pixels for r in some),
                tf32,
            )  # type: ignore[arg-type]
            first = sum(r.first * s for r, s in zip(some, steps, strict=True))
            walk: Any = (first, *(r.step * s for r, s in zip(some, steps, strict=True)))
            keys = (slice(r.start, None, s) for r, s in zip(some[3 - axes :], stride, strict=True))
            yield Part(out[(slice(None), *keys)], problem, walk)


Settings = tuple[Any, Any, Any, Any]
"""Sizes of the result, stride, what is cut, dilation."""


def unfit_remainders(
    view: Any, w: Any, bias: Any, settings: Settings, properties: cb.DeviceProperties
) -> str | None:
    """Why `by_remainders` is not for a problem, or None when it is."""
    size: Any = (1,) * (5 - view.ndim) + tuple(view.shape[1:-1])
    plain = Problem(size, (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1), size)
    if not suits(view, w, plain, properties) or w.shape[0] % MEASURE or w.shape[1] % MEASURE:
        return "for `wgmma`, by the copy engine"
    if bias is not None and unseen(w, settings):
        return "pixels that no tap goes to have a bias"
    return None


def unseen(w: Any, settings: Settings) -> bool:
    """Whether there are pixels that no tap goes to."""
    sizes, stride, cut, dilation = settings
    sides = zip(sizes, w.shape[2:], stride, dilation, cut, strict=True)
    return any(r.taps == 0 for numbers in sides for r in remainders(*numbers))


def by_remainders(view: Any, w: Any, bias: Any, settings: Settings, tf32: bool, cores: int) -> Any:
    """(N, *sizes, filters): view (N, *size, C), w (C, filters, *window)."""
    window, (sizes, stride, cut, dilation) = w.shape[2:], settings
    across = w.itemsize == 2  # matrix units take 16 bits in either order
    order = (0, *range(2, w.ndim), 1) if across else (1, *range(2, w.ndim), 0)
    taps = in_order(w.transpose(order)).reshape(w.shape[order[0]], -1, w.shape[order[-1]])
    out = memory.empty((view.shape[0], *sizes, w.shape[1]), view.dtype)
    if unseen(w, settings):
        out[...] = 0
    x = in_boxes(view)
    parts = sorted(
        parts_of(x, out, window, stride, cut, dilation, tf32),
        key=lambda part: -math.prod(part.problem.window),
    )
    for first in range(0, len(parts), TOGETHER):
        some = parts[first : first + TOGETHER]
        launch(*prepared_parts(x, taps, bias, some, None, cores, across=across))
    return out
