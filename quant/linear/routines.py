"""The routines of linear layers with quantized weights on a GPU: which kernel, its shape, and the
launches.

A device with matrix units of planes takes groups of 32, 64, 128 or 256 inputs, and int8, as they
lie packed, and so do those of Hopper for rows of 16 bits, however many; other groups, and many rows
of floats elsewhere, meet a dense copy of the weight that lives for one call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.config import config
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.quant.linear.gpu.blueprint import CHUNK, COLUMNS, PlaneBlueprint
from cubepy.quant.linear.gpu.dequantize import dense_rows
from cubepy.quant.linear.gpu.gemm_mma import arrange_rows, plane_product
from cubepy.quant.linear.gpu.gemm_mma_int8 import (
    ROW_UNITS,
    plane_product_bytes,
    quantize_rows_for_planes,
)
from cubepy.quant.linear.gpu.gemv import few_product
from cubepy.quant.linear.gpu.gemv_blueprint import FewBlueprint
from cubepy.quant.linear.gpu.layout import PlaneWeight, planes_of, supports
from cubepy.quant.linear.sm90.gemm_wgmma import Wide
from cubepy.quant.linear.sm90.gemm_wgmma_plan import plan_wide, wide_rows
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime.device import Device, device_properties
from cubepy.runtime.memory.device_array import DeviceArray, empty

MAGIC = 0x43004300
ROUNDED_GAIN = 2.0**22
"""What weights as bf16 are too small by."""
_FEW_INPUTS = 1 << 15
"""Inputs of all rows of a product of few rows: every cube keeps their digits."""
_DEEPEST = 8
_FRAGMENTS_OF_TWO = 8
"""Fragments of sums of a plane, of which a cube has eight, with which two cubes share the registers
of a core.
"""
_DEEPEST_ROWS = 4
"""Blocks under way where the ring has rows, too: with five, 16 x 4096 x 14336 took 4% longer."""
_RING_BYTES = 99 << 10
"""Bytes of codes that a cube of few rows has under way, if two blocks of a plane are no more. One
row of 4096 x 14336 in groups of 32: 10.7 us with 80 KB, 10.9 with 100, 11.6 with 160; in groups of
128: 9.9 us with 66 KB, 9.6 with 99, 9.9 with 132. Measured on an H200.
"""
_RING_OF_MANY = 140 << 10
"""The same for more than 16 planes. One row of 4096 x 14336 in groups of 32 and 28 planes: 10.9,
10.3, 10.0 us with 70, 105, 140 KB; in groups of 128: 8.9, 9.4 us with 116, 173 KB.
"""
_AHEAD_BYTES = 70 << 10
"""Bytes of codes that a cube of few rows asks for before its rows: these queue behind them."""
_PANELS_OF_MANY = 2
"""Panels of a cube up to which its rows take longer than its codes, so that more than 16 planes
share them.
"""
_REGISTERS = 1 << 16
"""Registers of a core."""
_MOST_PANELS = {1: 7, 2: 7, 3: 4, 4: 4}
"""Panels of a cube by the fragments of columns: their sums stay in registers."""
_DENSE_ROWS = 128
"""Rows of float activations from which a dense copy of the weight is faster. Measured on an H200.
"""
_EXACT_ROWS = 1024
"""The same where codes are not to be rounded: the copy and its matmul are in f32 then. 128 and 256
rows of 4096 x 4096 took 59 us by planes and 450 us by a copy. Measured on an H200.
"""
_FEW_ROWS = 16
"""Rows that products of planes always take."""
_WIDE_ROWS = 2048
"""Rows from which a dense copy is about as fast as products of groups. Measured on an H200."""


class Room(NamedTuple):
    """Cores of a device, bytes of shared memory of a cube, and features: whether launches may
    overlap, clusters of cubes, products of groups of planes.
    """

    cores: int
    shared: int
    overlap: bool = False
    cluster: bool = False
    groups: bool = False


def takes(weight: QuantizedWeight, device: Device) -> bool:
    """Whether the kernels of planes can run a weight on a device."""
    return supports(weight) and device_properties(device).features >= {"mma", "copy_async"}


def linear_on_gpu(
    x: DeviceArray, weight: QuantizedWeight, bias: Any, residual: Any, activation: Any, dtype: Any
) -> DeviceArray:
    """`activation(x @ weight.T + bias) + residual`, with the activations that the weight asks for.

    Args: x: float, (..., K). weight: quantized, (N, K), on the same device. bias: (N,), or None.
        residual: (..., N), or None. activation: a name of
        `cubepy.kernels.primitives.functions.ACTIVATIONS`, a `@cb.func`, or None. dtype: of the
        result.

    Returns:
        (..., N).
    """
    rows, columns = weight.shape
    flat = contiguous(x.reshape(-1, columns))
    out = empty((*x.shape[:-1], rows), dtype, x.device)
    if out.size == 0:
        return out
    flat_out = out.reshape(-1, rows)
    beside = None if residual is None else contiguous(residual).reshape(-1, rows)
    function = ACTIVATIONS[activation] if isinstance(activation, str) else activation
    if not takes(weight, x.device):
        dense_rows(flat, weight, bias, beside, function, flat_out)
        return out
    if weight.scheme.activations == "int8":
        _with_bytes(flat, planes_of(weight), bias, beside, function, flat_out)
        return out
    chosen = route(
        weight.codes.shape[0], columns, len(flat), weight.scheme.group or 0, weight.scheme.symmetric,
        cb.as_dtype(x.dtype), room(x.device), bias is not None, residual is not None, function, rows % 4 == 0,
        config.exact_weights,
    )  # fmt: skip
    if isinstance(chosen, Wide):
        wide_rows(flat, planes_of(weight), bias, beside, function, flat_out, chosen)
    elif chosen == "planes":
        _with_floats(flat, planes_of(weight), bias, beside, function, flat_out)
    else:
        dense_rows(flat, weight, bias, beside, function, flat_out)
    return out


@cache
def route(
    panels: int, inputs: int, m: int, group: int, symmetric: bool, dtype: cb.DType, target: Room, bias: bool,
    residual: bool, function: Any, whole: bool, exact: bool = False,
) -> Wide | str:  # fmt: skip
    """What multiplies m rows of float activations: a plan of `quant.linear.sm90.gemm_wgmma`,
    "planes", or a "dense" copy.

    `exact`: codes are not rounded with their scales, as `quant.linear.sm90.gemm_wgmma` does.

    The costs are microseconds of an H200, by millions of codes: that of planes grows with the
        columns of bf16 (f16 has
    two for each row), that of a dense copy is the copy, and a matmul that reads it once or is bound
    by its products.

    Example:
        >>> hopper = Room(132, 232448, True, True, True)
        >>> route(896, 4096, 16, 32, False, cb.bf16, hopper, False, False, None, True)
        'planes'
        >>> route(896, 4096, 128, 32, False, cb.bf16, hopper, False, False, None, True).columns
        128
    """
    usual = "planes" if m <= (_EXACT_ROWS if exact else _DENSE_ROWS) else "dense"
    if (
        exact
        or not _FEW_ROWS < m <= _WIDE_ROWS
        or not target.groups
        or dtype not in (cb.bf16, cb.f16)
    ):
        return usual
    chunks = -(-inputs // max(CHUNK, group)) * max(1, group // CHUNK)
    found = plan_wide(
        panels, chunks, m, group, symmetric, target.cores, target.shared, target.overlap, bias, residual, function,
        whole,
    )  # fmt: skip
    if found is None:
        return usual
    plan, cost = found
    codes = panels * chunks * 1024e-6
    columns = -(-m // COLUMNS) * COLUMNS * (1 if dtype is cb.bf16 else 2)
    if m <= _DENSE_ROWS:
        if columns > 32:  # strips of 32 columns
            columns = -(-columns // 32) * 32
        other = 4 + codes * columns * (0.0127 if group else 0.0069)
    else:
        other = 5 + codes * (1.1 + max(0.5, 0.0025 * m))
    return plan if cost <= other else usual


def _with_bytes(
    x: Any, weight: PlaneWeight, bias: Any, residual: Any, function: Any, out: Any
) -> None:
    """Activations in eight bits, a scale and zero point for each row."""
    m = len(x)
    plan, grid = plan_bytes(
        weight.panels, weight.blocks, m, weight.group, weight.symmetric, room(x.device), bias is not None,
        residual is not None, function,
    )  # fmt: skip
    codes = empty(
        (weight.blocks * weight.block // CHUNK, grid[1] * plan.tiles * 128), np.uint32, x.device
    )
    facts = empty((m, 2), np.float32, x.device)
    quantize_rows_for_planes[m, ROW_UNITS](
        x, weight.input_scale, codes, facts, weight.gain, weight.group > 0, plan.early,
        mode="unchecked", device=x.device,
    )  # fmt: skip
    plane_product_bytes[grid, plan.units](
        codes, facts, weight.words, weight.facts, weight.scales, weight.sums, bias, residual, out, weight.blocks,
        weight.panels, plan, mode="unchecked", device=x.device,
    )  # fmt: skip


def _with_floats(
    x: Any, weight: PlaneWeight, bias: Any, residual: Any, function: Any, out: Any
) -> None:
    """Activations as digits of integers, or as sums of bf16."""
    shape = (
        weight.panels,
        weight.blocks,
        len(x),
        weight.group,
        weight.symmetric,
        cb.as_dtype(x.dtype),
        room(x.device),
    )
    epilogue = (bias is not None, residual is not None, function)
    few = plan_few(*shape, *epilogue, x.shape[1] % 8 == 0)
    if few is not None:
        plan, cubes = few
        few_product[cubes, plan.units](
            x, weight.input_scale, weight.words, weight.facts, weight.scales, bias, residual, out, weight.gain,
            weight.blocks, weight.panels, plan, mode="unchecked", device=out.device,
        )  # fmt: skip
    else:
        _with_sums(
            x, weight, bias, residual, out,
            *plan_floats(*shape, *epilogue, x.shape[1] == weight.blocks * weight.block, config.exact_weights),
        )  # fmt: skip


def _with_sums(
    x: Any,
    weight: PlaneWeight,
    bias: Any,
    residual: Any,
    out: Any,
    plan: PlaneBlueprint,
    grid: tuple[int, int],
) -> None:
    """Activations as sums of bf16."""
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
            x, weight.input_scale, fragments, sums, plan.offset, plan.width, plan.parts, plan.early,
            mode="unchecked", device=x.device,
        )  # fmt: skip
        x = fragments
    plane_product[grid, plan.units](
        x, factors, sums, weight.words, weight.facts, weight.scales, bias, residual, out,
        weight.gain * ROUNDED_GAIN if plan.rounded else weight.gain, MAGIC,
        weight.blocks, weight.panels, plan, mode="unchecked", device=out.device,
    )  # fmt: skip


@cache
def plan_few(
    panels: int, blocks: int, m: int, group: int, symmetric: bool, dtype: cb.DType, target: Room, bias: bool,
    residual: bool, function: Any, whole: bool = False,
) -> tuple[FewBlueprint, int] | None:  # fmt: skip
    """The blueprint for one to four rows of float activations, and the number of cubes; None for
    more, or without room for their digits.

    `whole`: rows are lines of eight.

    Example:
        >>> import cubepy as cb
        >>> plan, cubes = plan_few(896, 64, 1, 32, False, cb.bf16, Room(132, 232448), False, False, None)
        >>> plan.planes, plan.panels, cubes
        (16, 7, 128)
        >>> plan_few(896, 64, 5, 32, False, cb.bf16, Room(132, 232448), False, False, None) is None
        True
    """
    digits = 2 if dtype in (cb.bf16, cb.f16) else 4
    if m * digits > COLUMNS or m * blocks * max(CHUNK, group) > _FEW_INPUTS:
        return None
    count = best_panels(panels, target.cores, _MOST_PANELS[1])

    def shaped(planes: int, depth: int) -> FewBlueprint:
        return FewBlueprint(
            m, digits, group, symmetric, planes, count, depth, -(-blocks // planes), 1, bias, residual, function, whole,
            target.overlap,
        )  # fmt: skip

    planes = min(16, blocks)
    if m * digits == 2 and count <= _PANELS_OF_MANY:
        planes = best_planes(blocks, lambda planes: shaped(planes, 1))
    while planes > 4 and shaped(planes, min(2, -(-blocks // planes))).shared_bytes > target.shared:
        planes //= 2
    if shaped(planes, 1).shared_bytes > target.shared:
        return None
    depth = 1
    while (
        depth < min(_DEEPEST, -(-blocks // planes))
        and shaped(planes, depth + 1).shared_bytes <= target.shared
    ):
        if depth > 1 and 16 * planes * shaped(planes, depth + 1).span > (
            _RING_OF_MANY if planes > 16 else _RING_BYTES
        ):
            break
        depth += 1
    plan = shaped(planes, depth)
    if not plan.once:
        ahead = max(1, min(depth, _AHEAD_BYTES // (16 * planes * plan.slot)))
        plan = replace(plan, ahead=ahead, soon=plan.passes == 1)
    return plan, -(-panels // count)


@cache
def plan_floats(
    panels: int, blocks: int, m: int, group: int, symmetric: bool, dtype: cb.DType, target: Room, bias: bool,
    residual: bool, function: Any, whole: bool = False, exact: bool = False,
) -> tuple[PlaneBlueprint, tuple[int, int]]:  # fmt: skip
    """The blueprint for m rows of float activations, and cubes along the panels and along the rows.

    `whole`: rows are whole blocks. `exact`: neither codes nor rows times their factors are rounded
        to bf16.

    Example:
        >>> import cubepy as cb
        >>> plan, cubes = plan_floats(896, 64, 5, 32, False, cb.bf16, Room(132, 232448), False, False, None)
        >>> plan.tiles, plan.panels, cubes
        (1, 7, (128, 1))
    """
    inputs = blocks * max(CHUNK, group)
    parts = 1 if dtype is cb.bf16 and not exact else 2 if dtype in (cb.bf16, cb.f16) or m > 1 else 3
    columns = m * parts
    tiles = min(-(-columns // COLUMNS), 4)
    strips = -(-columns // (COLUMNS * tiles))
    raw = whole and parts == 1
    count, splits = best_panels(panels * strips, target.cores, _MOST_PANELS[tiles]), 1
    if raw and target.cluster:
        count, splits = best_split(
            panels * strips, inputs // CHUNK, target.cores, _MOST_PANELS[tiles], tiles
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
    roomy = replace(plan, apart=splits > 1)
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
    return plan, (-(-panels // count) * splits, strips)


@cache
def plan_bytes(
    panels: int, blocks: int, m: int, group: int, symmetric: bool, target: Room, bias: bool, residual: bool,
    function: Any,
) -> tuple[PlaneBlueprint, tuple[int, int]]:  # fmt: skip
    """The blueprint for m rows of activations in eight bits, and cubes along the panels and along
    the rows.
    """
    tiles = min(-(-m // COLUMNS), 4)
    strips = -(-m // (COLUMNS * tiles))
    count = best_panels(panels * strips, target.cores, _MOST_PANELS[tiles])
    plan = PlaneBlueprint(
        1, tiles, group, symmetric, 16, count, 1, True, bias, residual, function, target.overlap
    )
    return fitted(plan, blocks, target), (-(-panels // count), strips)


def fitted(plan: PlaneBlueprint, blocks: int, target: Room) -> PlaneBlueprint:
    """The plan with as many planes and blocks under way as registers and shared memory have room
    for.

    Where launches overlap, the cubes of two of them share a core if that costs no planes: the
        second one fetches
    weights while the first one ends.
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


def best_panels(jobs: int, cores: int, most: int) -> int:
    """How many panels a cube takes, at most `most`: few waves of cubes, and little idle in the
    last.

    A cube's start and end take about as long as two panels do.

    Example:
        >>> best_panels(896, 132, 7), best_panels(256, 132, 7), best_panels(64, 132, 7)
        (7, 2, 1)
    """
    return min(
        range(1, most + 1),
        key=lambda count: math.ceil(math.ceil(jobs / count) / cores) * (count + 2),
    )


def best_planes(blocks: int, shaped: Callable[[int], FewBlueprint]) -> int:
    """How many planes share the blocks of a row: those that take the fewest turns together, and
    then as many as can be.

    A turn costs about as much where half of its blocks are missing. A plane keeps the activations
    of its passes in registers, 20 for each, besides 32.
    """

    def turns(planes: int) -> tuple[int, int]:
        plan = shaped(planes)
        return planes * -(-plan.each // plan.turn), -planes

    fits = [n for n in range(16, 29) if 32 * n * (32 + 20 * shaped(n).passes) <= _REGISTERS]
    return min(fits, key=turns) if blocks > 16 and fits else min(16, blocks)


def best_split(jobs: int, chunks: int, cores: int, most: int, tiles: int) -> tuple[int, int]:
    """How many panels a cube takes, and whether two cubes of a cluster share them: then fewer read
    all activations.

    A chunk of activations costs as much as a panel for each tile of columns, and a cube's start as
    32 of them. Clusters of four or more leave cores idle, because groups of cores are not multiples
    of them.

    Example:
        >>> best_split(896, 64, 132, 7, 2), best_split(256, 64, 132, 7, 2), best_split(24, 6, 132, 7, 2)
        ((7, 1), (4, 2), (1, 1))
    """

    def cost(choice: tuple[int, int]) -> int:
        count, splits = choice
        waves = math.ceil(math.ceil(jobs / count) * splits / cores)
        return waves * (math.ceil(chunks / splits) * (count + tiles) + 32 * splits)

    return min(((count, splits) for splits in (1, 2) for count in range(1, most + 1)), key=cost)


def room(device: Device) -> Room:
    """What plans ask of a device."""
    properties = device_properties(device)
    return Room(
        properties.cores,
        properties.max_shared_memory,
        "overlap" in properties.features,
        "cluster" in properties.features,
        properties.features >= {"wgmma", "tma", "cluster"},
    )
