"""Launches of `max_tma`: for which windows it is the fastest, and how images are cut."""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.pooling.gpu.half2 import nothing_of, words_of
from cubepy.kernels.pooling.sm90.max_tma import max_boxes
from cubepy.kernels.pooling.sm90.max_tma_plan import LINE_BYTES, PLANE, ROW_BYTES, BoxPlan, plan_of
from cubepy.kernels.primitives.vector_width import address
from cubepy.kernels.windows.rows_gpu import Steps

WAVES = 2
"""Cubes that a core's position for one should do, at least."""
LEAST_SIZE = 1 << 22
"""Results, below which a launch takes longer than memory."""
SHORT, HIGH, HIGH_SINGLE, MOST = 5, 7, 14, (64, 32)
"""Other kernels are faster for windows that reach over up to SHORT strides, that have less than
HIGH rows with channels first (HIGH_SINGLE where results are no whole lines), or more than MOST
positions along an axis (with channels first, and last),
"""
HIGH_NARROW = 10
"""of 16-bit floats with channels first that have less rows, or an odd number of results in a row,
"""
GAPS = 10, 20
"""and, with channels first, for those with gaps that do not reach over so many positions (all
measured on an H200).
"""


def launch(x: Any, out: Any, down: Steps, least: Any, plan: BoxPlan, pieces: int) -> None:
    """Run a plan, with the height in so many pieces."""
    hop = down.spacing
    deep = -(-out.shape[1] // hop)
    windows = -(-deep // pieces)
    pieces = -(-deep // windows)
    teams, bands = -(-x.shape[0] // plan.planes), -(-out.shape[2] // plan.tile)
    blocks = -(-x.shape[3] // plan.channels) if plan.last else 1
    box = (
        (1, 1, plan.box, plan.channels)
        if plan.last
        else (plan.planes if plan.copies == 1 else 1, 1, plan.box)
    )
    acc = cb.as_dtype(x.dtype) if plan.pairs is None else cb.u32
    max_boxes[teams * pieces * hop * bands * blocks, plan.workers + PLANE](
        cb.tensor_map(x, box, swizzle=0),
        x.shape,
        out.reshape(-1),
        out.shape,
        (down.low, hop),
        (pieces, windows, bands, blocks),
        nothing_of(least, plan.pairs),
        acc,
        plan,
        mode="unchecked",
    )


def fits(
    x: Any, out: Any, down: Steps, across: Steps, last: bool, properties: cb.DeviceProperties
) -> bool:
    """Whether `run` takes it, and is faster than others are: images whose rows the copy engine
    takes, large enough to fill a GPU, and windows that reach over many others.
    """
    if (
        "tma" not in properties.features
        or x.itemsize not in (2, 4)
        or x.dtype.kind in "iu"
        or out.size < LEAST_SIZE
    ):
        return False
    if (
        x.shape[-1] * x.itemsize % LINE_BYTES
        or address(x) % LINE_BYTES
        or out.size >= 1 << 31
        or down.taps < 3
    ):
        return False
    if max(down.taps, across.reach) > MOST[last] or (last and x.shape[3] * x.itemsize < ROW_BYTES):
        return False
    if others_are_faster(down, across, out.shape[2], x.itemsize, last):
        return False
    x, out, pairs = by_words(x, out, across, last, properties)
    return (
        plan_of(tuple(x.shape), tuple(out.shape), x.itemsize, down, across, last, pairs) is not None
    )


def others_are_faster(down: Steps, across: Steps, width: int, itemsize: int, last: bool) -> bool:
    """Whether windows and results are such, of which there are `width` in a row."""
    taps, ins = down.taps, max(down.ins, across.ins)
    narrow, lined = itemsize == 2 and not last, last or width * itemsize % LINE_BYTES == 0
    if max(down.spacing, across.spacing) > 1:
        reach = max(down.reach, across.reach)
        some = ins == 1 and (last or GAPS[0] <= reach <= GAPS[1])
        return not some or (narrow and (taps < HIGH_NARROW or not lined))
    if narrow and not lined:
        return ins > 1 or width % 2 == 1
    if max(taps / down.ins, across.taps / across.ins) <= SHORT:
        return True
    return not last and taps < (HIGH_NARROW if narrow else HIGH if lined else HIGH_SINGLE)


def by_words(
    x: Any, out: Any, across: Steps, last: bool, properties: cb.DeviceProperties
) -> tuple[Any, Any, Any]:
    """`pool_pairs.words_of`, but for windows with gaps with channels first."""
    return words_of(x, out, last, properties) if last or across.spacing == 1 else (x, out, None)


def run(
    x: Any,
    out: Any,
    down: Steps,
    across: Steps,
    least: Any,
    last: bool,
    properties: cb.DeviceProperties,
) -> None:
    """Largest values of windows of (planes, height, width), or with `last` of (batch, height,
    width, channels).
    """
    x, out, pairs = by_words(x, out, across, last, properties)
    plan = plan_of(tuple(x.shape), tuple(out.shape), x.itemsize, down, across, last, pairs)
    assert plan is not None, "ask `fits` first"
    cubes = -(-x.shape[0] // plan.planes) * down.spacing * -(-out.shape[2] // plan.tile)
    cubes *= -(-x.shape[3] // plan.channels) if last else 1
    wanted = WAVES * plan.cubes * properties.cores
    pieces = min(-(-wanted // cubes), out.shape[1] * down.ins // (down.spacing * 2 * down.taps))
    launch(x, out, down, least, plan, max(1, pieces))
