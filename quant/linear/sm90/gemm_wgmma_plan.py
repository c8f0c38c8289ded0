"""Launches of the products of `cubepy.quant.linear.sm90.gemm_wgmma`: the shape of a cube, chosen by
what it should cost.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.quant.linear.gpu.blueprint import CHUNK, Room
from cubepy.quant.linear.gpu.blueprint import COLUMNS as FRAGMENT
from cubepy.quant.linear.gpu.gemm_mma_plan import NOT_ARRANGED, most_rows
from cubepy.quant.linear.gpu.layout import planes_of
from cubepy.quant.linear.problem import QuantizedLinear
from cubepy.quant.linear.sm90.gemm_wgmma import SMALLER, Wide, permute_rows, wide_product
from cubepy.runtime.memory.device_array import empty
from cubepy.tune import GpuRoutine

MAGIC = 0x64006400
"""1024 and 1024 as f16."""
GAINS = {
    ("bf16", True): 2.0**22,
    ("bf16", False): 2.0**6,
    ("f16", True): 1 / SMALLER,
    ("f16", False): 1 / SMALLER,
}
"""What weights and activations are too small by, by the dtype and whether codes have groups."""
COLUMNS = (32, 64, 96, 128)
"""Rows of activations that a cube may take."""
_MOST_STAGES = 16
_UNITS = 256
_FEW_ROWS = 16
"""Rows that products of planes always take."""
_WIDE_ROWS = 2048
"""Rows from which a dense copy is about as fast as products of groups. Measured on an H200."""


class Groups(GpuRoutine):
    """Matrix units of groups of planes, weights in registers, the rest by the copy engine."""

    name = "wgmma"

    def unfit(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> str | None:
        """Rows of 16-bit floats, where it should be the fastest way."""
        if not p.floats:
            return "activations are bytes"
        if not p.arranges(properties):
            return NOT_ARRANGED
        return None if planned(p, properties) else "for 17 to 2048 rows of 16 bits where it pays"

    def launch(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> Any:
        """Rows are scaled and permuted by a launch of their own."""
        plan = planned(p, properties)
        assert plan is not None, "the routine does not support it"
        out = p.result()
        (x, bias, residual, flat), weight = p.operands(out), planes_of(p.weight)
        device, dtype = x.device, cb.as_dtype(x.dtype)
        inputs, blocks = weight.blocks * weight.block, weight.blocks
        rows = empty((len(x), inputs // 2), np.uint32, device)
        permute_rows[-(-rows.size // 4 // _UNITS), _UNITS](
            x, weight.input_scale, rows, plan.early, mode="unchecked", device=device
        )
        pieces = plan.per_block * plan.halves
        words = weight.words[: blocks * weight.panels * pieces * 128].reshape(
            blocks, weight.panels, pieces, 128
        )
        facts = None
        if plan.group:
            each = 8 * plan.fact_words
            lie = weight.facts[: blocks * weight.panels * each].reshape(blocks, weight.panels, each)
            facts = cb.tensor_map(lie, (1, plan.panels, each), swizzle=0)
        row_blocks = -(-len(x) // plan.columns)
        cubes = -(-weight.panels // plan.panels) * row_blocks * plan.splits
        wide_product[cubes, plan.units](
            cb.tensor_map(rows.view(x.dtype), (plan.columns, CHUNK)),
            cb.tensor_map(words, (1, plan.panels, plan.halves, 128), swizzle=0),
            facts,
            weight.scales,
            bias,
            residual,
            flat,
            weight.gain * GAINS[dtype.name, plan.group > 0],
            MAGIC,
            inputs // CHUNK,
            row_blocks,
            plan,
            mode="unchecked",
            device=device,
        )
        return out


def planned(p: QuantizedLinear, properties: cb.DeviceProperties) -> Wide | None:
    """The plan of a problem, None where it is not the fastest way."""
    (n, k), scheme, target = p.weight.shape, p.weight.scheme, Room.of(properties)
    return plan_for(
        p.weight.codes.shape[0],
        k,
        p.m,
        p.group,
        scheme.symmetric,
        cb.as_dtype(p.x.dtype),
        target,
        *p.epilogue,
        n % 4 == 0,
        p.exact,
    )


@cache
def plan_for(
    panels: int,
    inputs: int,
    m: int,
    group: int,
    symmetric: bool,
    dtype: cb.DType,
    target: Room,
    bias: bool,
    residual: bool,
    function: Any,
    whole: bool,
    exact: bool = False,
) -> Wide | None:
    """The plan for m rows of float activations where it is the fastest way, else None.

    `exact`: codes are not rounded with their scales, as here they are.

    The costs are microseconds of an H200, by millions of codes: that of planes grows with the
    columns of bf16 (f16 has two for each row), that of a dense copy is the copy, and a matmul that
    reads it once or is bound by its products.

    Example:
        >>> hopper = Room(132, 232448, True, True, True)
        >>> plan_for(896, 4096, 16, 32, False, cb.bf16, hopper, False, False, None, True) is None
        True
        >>> plan_for(896, 4096, 128, 32, False, cb.bf16, hopper, False, False, None, True).columns
        128
    """
    if (
        exact
        or not _FEW_ROWS < m <= _WIDE_ROWS
        or not target.groups
        or dtype not in (cb.bf16, cb.f16)
    ):
        return None
    chunks = -(-inputs // max(CHUNK, group)) * max(1, group // CHUNK)
    found = plan_wide(
        panels,
        chunks,
        m,
        group,
        symmetric,
        target.cores,
        target.shared,
        target.overlap,
        bias,
        residual,
        function,
        whole,
    )
    if found is None:
        return None
    plan, cost = found
    codes = panels * chunks * 1024e-6
    columns = -(-m // FRAGMENT) * FRAGMENT * (1 if dtype is cb.bf16 else 2)
    if m <= most_rows(exact):
        if columns > 32:  # strips of 32 columns
            columns = -(-columns // 32) * 32
        other = 4 + codes * columns * (0.0127 if group else 0.0069)
    else:
        other = 5 + codes * (1.1 + max(0.5, 0.0025 * m))
    return plan if cost <= other else None


def fitted(plan: Wide, chunks: int, shared: int) -> Wide | None:
    """The plan with as many stages as there is room for, or None without room for two."""
    stages = min(_MOST_STAGES, max(2, -(-chunks // plan.splits)))
    while stages > 1 and replace(plan, stages=stages).shared_bytes > shared:
        stages -= 1
    return replace(plan, stages=stages) if stages > 1 else None


SHAPES = (
    (2, 1, False, 1),
    (2, 2, False, 1),
    (2, 1, True, 1),
    (2, 2, True, 1),
    (2, 1, True, 2),
    (2, 2, False, 2),
)
"""Cubes worth trying: groups, products of a group, whether groups take inputs of their own, cubes
of a cluster.
"""
_CHUNK_COSTS = {
    (1, True): (0.19, 0.0005),
    (2, True): (0.19, 0.0016),
    (2, False): (0.24, 0.0014),
    (4, False): (0.36, 0.0028),
}
"""Microseconds of a chunk, and what a column adds, by the products of 64 channels of a cube and
whether its groups take inputs of their own. Measured on an H200.
"""
_SPLIT_K_COLUMNS = 64
"""Columns that two products of groups with inputs of their own were measured with."""


@cache
def plan_wide(
    panels: int,
    chunks: int,
    m: int,
    group: int,
    symmetric: bool,
    cores: int,
    shared: int,
    early: bool,
    bias: bool,
    residual: bool,
    function: Any,
    whole: bool,
) -> tuple[Wide, float] | None:
    """The cube that should be fastest for m rows, and about how long the product takes on an H200,
    in microseconds.

    None: nothing fits.

    Example:
        >>> plan, us = plan_wide(896, 64, 128, 32, False, 132, 232448, True, False, False, None,
        ...     True)
        >>> plan.columns, plan.channels, plan.splits
        (128, 128, 1)
    """
    row_blocks = -(-m // COLUMNS[-1])
    columns = next(n for n in COLUMNS if n >= -(-m // row_blocks))
    found: list[tuple[float, Wide]] = []
    for groups, blocks, split_k, splits in SHAPES:
        if chunks < splits * (groups if split_k else 1) or (
            split_k and blocks > 1 and columns > _SPLIT_K_COLUMNS
        ):
            continue
        start = Wide(
            columns,
            groups,
            blocks,
            splits,
            2,
            group,
            symmetric,
            bias,
            residual,
            function,
            whole,
            early,
            split_k,
        )
        plan = fitted(start, chunks, shared)
        if plan is not None:
            found.append((microseconds(plan, panels, chunks, row_blocks, cores), plan))
    if not found:
        return None
    cost, best = min(found, key=lambda each: each[0])
    return best, cost


def microseconds(plan: Wide, panels: int, chunks: int, row_blocks: int, cores: int) -> float:
    """About how long a product takes on an H200: waves of cubes, each with its chunks, its start
    and its end.

    The sums of a cluster go through the memory of its cubes, which costs as much as many chunks.
    """
    cubes = -(-panels // plan.panels) * row_blocks * plan.splits
    products = plan.teams * plan.blocks
    start, column = _CHUNK_COSTS[products, plan.split_k]
    end = 0.04 * plan.columns * products if plan.splits > 1 else 0.0
    return 3.0 + math.ceil(cubes / cores) * (
        -(-chunks // plan.splits) * (start + column * plan.columns) + end + 2.5
    )
