"""The routines of attention for matrix units of GPUs, in order of preference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from typing import Any

import cubepy as cb
from cubepy.kernels.attention.gpu import flash_decoding as split
from cubepy.kernels.attention.gpu import flash_decoding_plan as split_plan
from cubepy.kernels.attention.gpu import flash_fragments as fragments
from cubepy.kernels.attention.gpu import flash_fragments_plan as fragments_plan
from cubepy.kernels.attention.gpu import flash_mma as planes
from cubepy.kernels.attention.gpu import flash_mma_plan as planes_plan
from cubepy.kernels.attention.gpu import operands
from cubepy.kernels.attention.problem import Attention
from cubepy.kernels.attention.sm90 import flash as hopper
from cubepy.kernels.attention.sm90 import plan as hopper_plan
from cubepy.kernels.movement.copy import copy
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import TunedRoutine

FEW_ROWS = 16  # of a plane's tile: fewer would leave the tiles of other routines empty
CLEARLY = 0.85  # estimates are no better than that
TILES_US = 3.5  # that attention by tiles takes, besides its blocks


class Hopper(TunedRoutine):
    """Matrix units of Hopper, keys and values brought by the copy engine."""

    name = "hopper"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """16-bit floats that the copy engine can bring."""
        return None if p.units == "wgmma" else "arrays are not for wgmma"

    def blueprints(
        self, p: Attention, properties: cb.DeviceProperties
    ) -> Iterator[hopper_plan.Shape]:
        """Queries and keys of a tile by the rules, then others."""
        yield hopper_plan.Shape()
        width = max(p.depth, p.width)
        others: tuple[tuple[int, ...], ...] = ((2, 64),)
        if width <= 64:
            others = ((2, 128, 2), (3, 128, 2), (3, 128), (1, 64, 2, 2), (3, 64))
        elif width <= 128:
            others = ((2, 96, 2), (2, 64, 2), (2, 128))
        yield from (
            hopper_plan.Shape(*s) for s in others if p.mask == "none"
        )  # a mask's tiles have lengths of their own

    def launch(self, blueprint: hopper_plan.Shape, p: Attention, args: tuple[Any, ...]) -> None:
        """Arrays are copied where the copy engine cannot read them."""
        q, k, v, mask, out, lse, factor = args
        properties = p.properties
        plan = hopper_plan.plan_for(q, k, v, p.causal, properties, mask, p.mask, blueprint)
        assert plan is not None, "the routine does not support it"
        q, k, v = (a if operands.copyable(a) else copy(a) for a in (q, k, v))
        hopper.launch(q, k, v, out, lse, factor, plan, properties, mask)


class Planes(TunedRoutine):
    """Matrix units of a plane."""

    name = "planes"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """Any floats, widths up to 256."""
        return None if p.units in ("mma", "wgmma") else "arrays are not for matrix units"

    def blueprints(
        self, p: Attention, properties: cb.DeviceProperties
    ) -> Iterator[planes_plan.Shape]:
        """Planes and keys of a tile by the rules, then others."""
        yield planes_plan.Shape()
        depth, width = -(-p.depth // 16) * 16, -(-(p.width or p.depth) // 16) * 16
        parts = 1 if as_dtype(p.dtype).bits == 16 else 3
        for shape in (*planes_plan.SHAPES, planes_plan.Shape(2, 64), planes_plan.Shape(2, 32)):
            mask = "words" if p.mask == "bool" else p.mask
            plan = planes_plan.PlaneAttention(  # type: ignore[call-arg]
                depth, width, *astuple(shape), parts, "f16", p.causal, mask, parts == 1
            )
            if plan.shared_bytes() <= properties.max_shared_memory:
                yield shape

    def launch(self, blueprint: planes_plan.Shape, p: Attention, args: tuple[Any, ...]) -> None:
        """Arrays stay where they are."""
        q, k, v, mask, out, lse, factor = args
        plan = planes_plan.plan_for(q, k, v, mask, p.mask, p.causal, p.properties, blueprint)
        assert plan is not None, "the routine does not support it"
        planes.launch(q, k, v, mask, out, lse, factor, plan)


class Fragments(TunedRoutine):
    """Matrix units whose fragments the device describes: AMD's."""

    name = "fragments"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """16-bit floats, widths up to 256."""
        return None if p.units == "fragments" else "arrays are not for such fragments"

    def blueprints(
        self, p: Attention, properties: cb.DeviceProperties
    ) -> Iterator[fragments_plan.Shape]:
        """By the rules, then others."""
        yield fragments_plan.Shape()
        width = p.width or p.depth
        found = fragments_plan.shapes(p.dtype, p.length, p.depth, width, properties)
        yield from list(found)[1:]

    def launch(self, blueprint: fragments_plan.Shape, p: Attention, args: tuple[Any, ...]) -> None:
        """Arrays are copied where their rows are not whole blocks of 16 bytes."""
        q, k, v, mask, out, lse, factor = args
        plan = fragments_plan.plan_for(q, k, v, p.mask, p.causal, p.properties, blueprint)
        assert plan is not None, "the routine does not support it"
        fragments.launch(q, k, v, mask, out, lse, factor, plan)


class Split(TunedRoutine):
    """Matrix units of a plane, keys split among planes and cubes, query heads of a key head
    together.
    """

    name = "split"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """Any floats, widths up to 256."""
        if p.units not in ("mma", "wgmma"):
            return "arrays are not for matrix units"
        fits = planned(p, properties, split_plan.Shape())
        return None if fits else "a tile does not fit shared memory"

    def group(self, key: Attention) -> int:
        """For few rows, or where tiles of rows leave cores idle."""
        return 0 if split_pays(key) else -1

    def blueprints(
        self, p: Attention, properties: cb.DeviceProperties
    ) -> Iterator[split_plan.Shape]:
        """Planes, keys and parts by the rules, then others."""
        yield split_plan.Shape()
        for shape in split_plan.SHAPES:
            if planned(p, properties, shape):
                yield shape

    def launch(self, blueprint: split_plan.Shape, p: Attention, args: tuple[Any, ...]) -> None:
        """Arrays stay where they are."""
        q, k, v, mask, out, lse, factor = args
        properties = p.properties
        plan = split_plan.plan_for(q, k, v, p.mask, p.causal, properties, blueprint)
        assert plan is not None, "the routine does not support it"
        split.launch(q, k, v, mask, out, lse, factor, plan, properties, blueprint.splits)


def rows_of(p: Attention) -> int:
    """Queries that look at the same keys."""
    return p.heads // (p.groups or p.heads) * p.length


def planned(p: Attention, properties: cb.DeviceProperties, shape: split_plan.Shape) -> bool:
    """Whether arrays fit a cube's shared memory however they lie: as words, through registers, of
    several dtypes.
    """
    kinds = ((1, True), (1, False), (3, False)) if as_dtype(p.dtype).bits == 16 else ((3, False),)
    width = p.width or p.depth
    plans = (
        split_plan.planned(
            rows_of(p), p.depth, width, parts, "bf16", p.causal, p.mask, words, properties, shape
        )
        for parts, words in kinds
    )
    return None not in plans


def split_pays(p: Attention) -> bool:
    """Whether queries are few for their keys: by what both ways take on an H200, in microseconds.

    By tiles of 64 or 128 rows a block takes the same time however few rows are there, and cores may
    stay idle.
    """
    rows, properties = rows_of(p), p.properties
    if rows <= FEW_ROWS:
        return True
    width = max(p.depth, p.width)
    tile, resident, key = (
        (64, 2, 0.0096) if width <= 64 else (128, 1, 0.0115 if width <= 128 else 0.023)
    )
    tiles = p.batch * p.heads * -(-p.length // tile)
    keys = min(p.keys, p.length) if p.causal else p.keys
    by_tiles = -(-tiles // (resident * properties.cores)) * keys * key + TILES_US
    parts = 1 if as_dtype(p.dtype).bits == 16 else 3
    how = (parts, "bf16", p.causal, p.mask, parts == 1, properties, split_plan.Shape())
    plan = split_plan.planned(rows, p.depth, p.width or p.depth, *how)
    if plan is None:
        return False
    items, blocks = p.batch * (p.groups or p.heads) * -(-rows // plan.rows), -(-keys // plan.keys)
    by_parts, _ = split_plan.best_splits(
        items, blocks, plan, properties.cores, properties.max_shared_memory
    )
    return by_parts < CLEARLY * by_tiles


def guess(p: Attention) -> str:
    """The routine for matrix units that is taken without a measurement."""
    if p.units == "fragments":
        return "fragments"
    if split_pays(p) and planned(p, p.properties, split_plan.Shape()):
        return "split"
    return "hopper" if p.units == "wgmma" else "planes"


ROUTINES = {"attention": (Hopper(), Planes(), Fragments(), Split())}
