"""Launches of the products of `cubepy.quant.linear.gpu.gemm_mma` and `gemm_mma_int8`: the shape of
a cube, and where which of them is taken.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.quant.linear.gpu.blueprint import (
    CHUNK,
    COLUMNS,
    MOST_PANELS,
    PlaneBlueprint,
    Room,
    best_panels,
)
from cubepy.quant.linear.gpu.gemm_mma import arrange_rows, plane_product
from cubepy.quant.linear.gpu.gemm_mma_int8 import (
    ROW_UNITS,
    plane_product_bytes,
    quantize_rows_for_planes,
)
from cubepy.quant.linear.gpu.layout import PlaneWeight, planes_of
from cubepy.quant.linear.problem import Operands, QuantizedLinear
from cubepy.runtime.memory.device_array import empty
from cubepy.tune import GpuRoutine

MAGIC = 0x43004300
ROUNDED_GAIN = 2.0**22
"""What weights as bf16 are too small by."""
_DEEPEST = 8
_FRAGMENTS_OF_TWO = 8
"""Fragments of sums of a plane, of which a cube has eight, with which two cubes share the registers
of a core.
"""
_DEEPEST_ROWS = 4
"""Blocks under way where the ring has rows, too: with five, 16 x 4096 x 14336 took 4% longer."""
_DENSE_ROWS = 128
"""Rows of float activations from which a dense copy of the weight is faster. Measured on an H200.
"""
_EXACT_ROWS = 1024
"""The same where codes are not to be rounded: the copy and its matmul are in f32 then. 128 and 256
rows of 4096 x 4096 took 59 us by planes and 450 us by a copy. Measured on an H200.
"""


NOT_ARRANGED = "the kernels of planes do not take its groups, or the device has no matrix units"


def most_rows(exact: bool) -> int:
    """Rows of float activations up to which products of planes are faster than a dense copy."""
    return _EXACT_ROWS if exact else _DENSE_ROWS


class Bytes(GpuRoutine):
    """Matrix units of a plane; activations in eight bits, a scale and zero point for each row."""

    name = "int8"

    def unfit(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> str | None:
        """Weights that want such activations."""
        if p.floats:
            return "activations stay floats"
        return None if p.arranges(properties) else NOT_ARRANGED

    def launch(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> Any:
        """Rows are rounded by a launch of their own."""
        out = p.result()
        (x, bias, residual, flat), weight = p.operands(out), planes_of(p.weight)
        shape = (weight.panels, weight.blocks, p.m, weight.group, weight.symmetric)
        plan, grid = plan_bytes(*shape, Room.of(properties), *p.epilogue)
        codes = empty(
            (weight.blocks * weight.block // CHUNK, grid[1] * plan.tiles * 128), np.uint32, x.device
        )
        facts = empty((p.m, 2), np.float32, x.device)
        quantize_rows_for_planes[p.m, ROW_UNITS](
            x,
            weight.input_scale,
            codes,
            facts,
            weight.gain,
            weight.group > 0,
            plan.early,
            mode="unchecked",
            device=x.device,
        )
        plane_product_bytes[grid, plan.units](
            codes,
            facts,
            weight.words,
            weight.facts,
            weight.scales,
            weight.sums,
            bias,
            residual,
            flat,
            weight.blocks,
            weight.panels,
            plan,
            mode="unchecked",
            device=x.device,
        )
        return out


class Sums(GpuRoutine):
    """Matrix units of a plane; activations as sums of bf16."""

    name = "mma"

    def unfit(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> str | None:
        """Few enough rows that unpacking in the product pays."""
        if not p.floats:
            return "activations are bytes"
        if not p.arranges(properties):
            return NOT_ARRANGED
        return None if p.m <= most_rows(p.exact) else "a dense copy is faster for so many rows"

    def launch(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> Any:
        """Rows of bf16 and whole blocks are read as they are, others are laid out."""
        out = p.result()
        operands, weight = p.operands(out), planes_of(p.weight)
        shape = (weight.panels, weight.blocks, p.m, weight.group, weight.symmetric)
        whole = p.weight.shape[1] == weight.blocks * weight.block
        plan, grid = plan_floats(
            *shape, cb.as_dtype(p.x.dtype), Room.of(properties), *p.epilogue, whole, p.exact
        )
        multiply_sums(operands, weight, plan, grid)
        return out


def multiply_sums(
    operands: Operands, weight: PlaneWeight, plan: PlaneBlueprint, grid: tuple[int, int]
) -> None:
    """Activations as sums of bf16."""
    x, bias, residual, out = operands
    sums, factors = weight.none, weight.input_scale
    if plan.raw:
        x, factors = x.view(np.uint32), factors.view(np.uint32)
    else:
        tiles = grid[1] * plan.tiles
        fragments = empty((weight.blocks * weight.block // 32, tiles * 128), np.uint32, x.device)
        sums = empty(
            (weight.blocks * weight.block // plan.width, tiles * COLUMNS), np.uint32, x.device
        )
        arrange_rows[-(-sums.size * 4 // 256), 256](
            x,
            weight.input_scale,
            fragments,
            sums,
            plan.offset,
            plan.width,
            plan.parts,
            plan.early,
            mode="unchecked",
            device=x.device,
        )
        x = fragments
    plane_product[grid, plan.units](
        x,
        factors,
        sums,
        weight.words,
        weight.facts,
        weight.scales,
        bias,
        residual,
        out,
        weight.gain * ROUNDED_GAIN if plan.rounded else weight.gain,
        MAGIC,
        weight.blocks,
        weight.panels,
        plan,
        mode="unchecked",
        device=out.device,
    )


@cache
def plan_floats(
    panels: int,
    blocks: int,
    m: int,
    group: int,
    symmetric: bool,
    dtype: cb.DType,
    target: Room,
    bias: bool,
    residual: bool,
    function: Any,
    whole: bool = False,
    exact: bool = False,
) -> tuple[PlaneBlueprint, tuple[int, int]]:
    """The blueprint for m rows of float activations, and cubes along the panels and along the rows.

    `whole`: rows are whole blocks. `exact`: neither codes nor rows times their factors are rounded
        to bf16.

    Example:
        >>> import cubepy as cb
        >>> plan, cubes = plan_floats(896, 64, 5, 32, False, cb.bf16, Room(132, 232448), False,
        ...     False, None)
        >>> plan.tiles, plan.panels, cubes
        (1, 7, (128, 1))
    """
    inputs = blocks * max(CHUNK, group)
    parts = 1 if dtype is cb.bf16 and not exact else 2 if dtype in (cb.bf16, cb.f16) or m > 1 else 3
    columns = m * parts
    tiles = min(-(-columns // COLUMNS), 4)
    column_blocks = -(-columns // (COLUMNS * tiles))
    raw = whole and parts == 1
    count, splits = best_panels(panels * column_blocks, target.cores, MOST_PANELS[tiles]), 1
    if raw and target.cluster:
        count, splits = best_split(
            panels * column_blocks, inputs // CHUNK, target.cores, MOST_PANELS[tiles], tiles
        )
    plan = PlaneBlueprint(
        parts,
        tiles,
        group,
        symmetric,
        16,
        count,
        1,
        False,
        bias,
        residual,
        function,
        target.overlap,
        raw,
        splits,
    )
    plan = fitted(plan, -(-blocks // splits), target)
    roomy = replace(plan, separate=splits > 1)
    if roomy.shared_bytes <= target.shared:
        plan = roomy
    ahead = replace(plan, ahead=True)
    if (
        plan.early
        and plan.once
        and plan.rounded
        and plan.planes <= 8
        and tiles * count <= _FRAGMENTS_OF_TWO
    ):
        plan = ahead if ahead.shared_bytes <= target.shared // 2 - 1024 else plan
    return plan, (-(-panels // count) * splits, column_blocks)


@cache
def plan_bytes(
    panels: int,
    blocks: int,
    m: int,
    group: int,
    symmetric: bool,
    target: Room,
    bias: bool,
    residual: bool,
    function: Any,
) -> tuple[PlaneBlueprint, tuple[int, int]]:
    """The blueprint for m rows of activations in eight bits, and cubes along the panels and along
    the rows.
    """
    tiles = min(-(-m // COLUMNS), 4)
    column_blocks = -(-m // (COLUMNS * tiles))
    count = best_panels(panels * column_blocks, target.cores, MOST_PANELS[tiles])
    plan = PlaneBlueprint(
        1, tiles, group, symmetric, 16, count, 1, True, bias, residual, function, target.overlap
    )
    return fitted(plan, blocks, target), (-(-panels // count), column_blocks)


def fitted(plan: PlaneBlueprint, blocks: int, target: Room) -> PlaneBlueprint:
    """The plan with as many planes and blocks under way as registers and shared memory have room
    for.

    Where launches overlap, the cubes of two of them share a core if that costs no planes: the
    second one fetches weights while the first one ends.
    """
    most = _filled(plan, blocks, target)
    if plan.early and not plan.raw:
        half = _filled(plan, blocks, target._replace(shared=target.shared // 2 - 1024))
        if half.planes == most.planes and half.depth >= 2:
            return half
    return most


def _filled(plan: PlaneBlueprint, blocks: int, target: Room) -> PlaneBlueprint:
    sums = plan.panels * plan.tiles * plan.halves
    planes = min(16 if sums <= 7 else 8, blocks)

    def fits(planes: int, depth: int) -> bool:
        return replace(plan, planes=planes, depth=depth).shared_bytes <= target.shared

    while planes > 1 and not fits(planes, 2 if planes > 4 and planes < blocks else 1):
        planes //= 2
    depth, each = 1, -(-blocks // planes)
    while depth < min(_DEEPEST_ROWS if plan.raw else _DEEPEST, each) and fits(planes, depth + 1):
        depth += 1
    return replace(
        plan, planes=planes, depth=depth, once=not plan.eight and each <= min(depth, _DEEPEST_ROWS)
    )


def best_split(jobs: int, chunks: int, cores: int, most: int, tiles: int) -> tuple[int, int]:
    """How many panels a cube takes, and whether two cubes of a cluster share them: then fewer read
    all activations.

    A chunk of activations costs as much as a panel for each tile of columns, and a cube's start as
    32 of them. Clusters of four or more leave cores idle, because groups of cores are not multiples
    of them.

    Example:
        >>> best_split(896, 64, 132, 7, 2), best_split(256, 64, 132, 7, 2), best_split(24, 6, 132,
        ...     7, 2)
        ((7, 1), (4, 2), (1, 1))
    """

    def cost(choice: tuple[int, int]) -> int:
        count, splits = choice
        waves = math.ceil(math.ceil(jobs / count) * splits / cores)
        return waves * (math.ceil(chunks / splits) * (count + tiles) + 32 * splits)

    return min(((count, splits) for splits in (1, 2) for count in range(1, most + 1)), key=cost)
