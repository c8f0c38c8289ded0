"""Attention as an operation that is tuned: what describes one, its routines, and what measuring one needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels import attention_few as few
from cubepy.kernels import attention_hopper as hopper
from cubepy.kernels import attention_lines as lines
from cubepy.kernels import attention_planes as planes
from cubepy.kernels import attention_split as split
from cubepy.kernels.attention_lines import Strips
from cubepy.kernels.elementwise import copy
from cubepy.kernels.matmul_problem import name_of
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.device import as_device, current, device_properties, gpu_of
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import Op, Routine, Work

FEW_ROWS = 16  # of a plane's tile: fewer would leave the tiles of other routines empty
CLEARLY = 0.85  # estimates are no better than that
TILES_US = 3.5  # that attention by tiles takes, besides its blocks
CHECKED = 24  # queries whose results are compared
Mask = Literal["none", "bool", "float"]
Units = Literal["", "mma", "wgmma"]


class Attention(NamedTuple):
    """Attention of queries (batch, heads, length, depth) to keys (batch, groups, keys, depth) and values.

    Attributes:
        device: such as "cpu".
        batch, heads, length, keys, depth: lengths.
        width: of a value, 0: as long as a key.
        groups: heads of keys and values, 0: as many as of queries.
        dtype: its name.
        mask: its kind.
        causal: whether a query sees keys up to its own place only.
        units: the matrix units of a GPU that can take the arrays as they are: "mma", or "wgmma" as well.
    """

    device: str
    batch: int
    heads: int
    length: int
    keys: int
    depth: int
    width: int = 0
    groups: int = 0
    dtype: str = "f32"
    mask: Mask = "none"
    causal: bool = False
    units: Units = ""


def described(
    q: Any, k: Any, v: Any, mask: Any, kind: str, causal: bool, factor: float
) -> Attention:
    """What the attention of some arrays is to the routines."""
    width, groups = (
        v.shape[3] if v.shape[3] != q.shape[3] else 0,
        k.shape[1] if k.shape[1] != q.shape[1] else 0,
    )
    return Attention(
        str(current()), *q.shape[:3], k.shape[2], q.shape[3], width, groups, name_of(q.dtype), kind,  # type: ignore[arg-type]
        causal, units_for(q, k, v, mask, kind, causal, factor),
    )  # fmt: skip


def units_for(q: Any, k: Any, v: Any, mask: Any, kind: str, causal: bool, factor: float) -> Units:
    """The matrix units of this device that can take the arrays."""
    p = cb.device_properties_of()
    if "mma" not in p.features:
        return ""
    # A mask is added before scores are scaled there, and hidden scores are less than others before they are.
    if (kind == "none" or factor > 0) and max(q.shape[3], v.shape[3]) % 8 == 0:
        if hopper.plan_for(q, k, v, causal, p, mask, kind) is not None:
            return "wgmma"
    return "mma" if planes.plan_for(q, k, v, mask, kind, causal, p) is not None else ""


class Hopper(Routine):
    """Matrix units of Hopper, keys and values brought by the copy engine."""

    name = "hopper"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """16-bit floats that the copy engine can bring."""
        return None if p.units == "wgmma" else "arrays are not for wgmma"

    def blueprints(self, p: Attention, properties: cb.DeviceProperties) -> Iterator[hopper.Shape]:
        """Queries and keys of a tile by the rules, then others."""
        yield hopper.Shape()
        width = max(p.depth, p.width)
        others: tuple[tuple[int, ...], ...] = ((2, 64),)
        if width <= 64:
            others = ((2, 128, 2), (3, 128, 2), (3, 128), (1, 64, 2, 2), (3, 64))
        elif width <= 128:
            others = ((2, 96, 2), (2, 64, 2), (2, 128))
        yield from (
            hopper.Shape(*s) for s in others if p.mask == "none"
        )  # a mask's tiles have lengths of their own

    def launch(self, blueprint: hopper.Shape, p: Attention, args: tuple[Any, ...]) -> None:
        """Arrays are copied where the copy engine cannot read them."""
        q, k, v, mask, out, lse, factor = args
        properties = cb.device_properties_of()
        plan = hopper.plan_for(q, k, v, p.causal, properties, mask, p.mask, blueprint)
        q, k, v = (a if hopper.copyable(a) else copy(a) for a in (q, k, v))
        hopper.launch(q, k, v, out, lse, factor, plan, properties, mask)


class Planes(Routine):
    """Matrix units of a plane."""

    name = "planes"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """Any floats, widths up to 256."""
        return None if p.units else "arrays are not for matrix units"

    def blueprints(self, p: Attention, properties: cb.DeviceProperties) -> Iterator[planes.Shape]:
        """Planes and keys of a tile by the rules, then others."""
        yield planes.Shape()
        depth, width = -(-p.depth // 16) * 16, -(-(p.width or p.depth) // 16) * 16
        parts = 1 if as_dtype(p.dtype).bits == 16 else 3
        for shape in (*planes.SHAPES, planes.Shape(2, 64), planes.Shape(2, 32)):
            mask = "words" if p.mask == "bool" else p.mask
            plan = planes.PlaneAttention(
                depth, width, *astuple(shape), parts, "f16", p.causal, mask, parts == 1
            )
            if plan.shared_bytes() <= properties.max_shared_memory:
                yield shape

    def launch(self, blueprint: planes.Shape, p: Attention, args: tuple[Any, ...]) -> None:
        """Arrays stay where they are."""
        q, k, v, mask, out, lse, factor = args
        plan = planes.plan_for(
            q, k, v, mask, p.mask, p.causal, cb.device_properties_of(), blueprint
        )
        planes.launch(q, k, v, mask, out, lse, factor, plan)


class Split(Routine):
    """Matrix units of a plane, keys split among planes and cubes, query heads of a key head together."""

    name = "split"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """Any floats, widths up to 256."""
        if not p.units:
            return "arrays are not for matrix units"
        return (
            None if planned(p, properties, split.Shape()) else "a tile does not fit shared memory"
        )

    def group(self, key: Attention) -> int:
        """For few rows, or where tiles of rows leave cores idle."""
        return 0 if split_pays(key) else -1

    def blueprints(self, p: Attention, properties: cb.DeviceProperties) -> Iterator[split.Shape]:
        """Planes, keys and parts by the rules, then others."""
        yield split.Shape()
        for shape in split.SHAPES:
            if planned(p, properties, shape):
                yield shape

    def launch(self, blueprint: split.Shape, p: Attention, args: tuple[Any, ...]) -> None:
        """Arrays stay where they are."""
        q, k, v, mask, out, lse, factor = args
        properties = cb.device_properties_of()
        plan = split.plan_for(q, k, v, p.mask, p.causal, properties, blueprint)
        split.launch(q, k, v, mask, out, lse, factor, plan, properties, blueprint.splits)


def rows_of(p: Attention) -> int:
    """Queries that look at the same keys."""
    return p.heads // (p.groups or p.heads) * p.length


def planned(p: Attention, properties: cb.DeviceProperties, shape: split.Shape) -> bool:
    """Whether arrays fit a cube's shared memory however they lie: as words, through registers, of several dtypes."""
    kinds = ((1, True), (1, False), (3, False)) if as_dtype(p.dtype).bits == 16 else ((3, False),)
    width = p.width or p.depth
    plans = (
        split.planned(
            rows_of(p), p.depth, width, parts, "bf16", p.causal, p.mask, words, properties, shape
        )
        for parts, words in kinds
    )
    return None not in plans


def split_pays(p: Attention) -> bool:
    """Whether queries are few for their keys: by what both ways take on an H200, in microseconds.

    By tiles of 64 or 128 rows a block takes the same time however few rows are there, and cores may stay idle.
    """
    rows, properties = rows_of(p), device_properties(p.device)
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
    plan = split.planned(
        rows,
        p.depth,
        p.width or p.depth,
        parts,
        "bf16",
        p.causal,
        p.mask,
        parts == 1,
        properties,
        split.Shape(),
    )
    if plan is None:
        return False
    items, blocks = p.batch * (p.groups or p.heads) * -(-rows // plan.rows), -(-keys // plan.keys)
    by_parts, _ = split.best_splits(
        items, blocks, plan, properties.cores, properties.max_shared_memory
    )
    return by_parts < CLEARLY * by_tiles


@dataclass(frozen=True)
class Single:
    """One query at a time: there is nothing to choose."""


class Few(Routine):
    """Few queries on a CPU, one at a time: lanes lie along the width."""

    name = "few"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """On a CPU."""
        return "for CPUs" if has_planes(p) else None

    def group(self, key: Attention) -> int:
        """Keys and values are read for every query."""
        return 0 if key.length <= 4 * lines.FEW else -1

    def blueprints(self, p: Attention, properties: cb.DeviceProperties) -> Iterator[Single]:
        """By the rules."""
        yield Single()

    def launch(self, blueprint: Single, p: Attention, args: tuple[Any, ...]) -> None:
        """A cube does a query."""
        q, k, v, mask, out, lse, factor = args
        few.launch(q, k, v, mask, p.mask, out, lse, p.causal, factor, cb.device_properties_of())


class Lines(Routine):
    """Queries in the lanes of lines, on any device."""

    name = "lines"

    def blueprints(self, p: Attention, properties: cb.DeviceProperties) -> Iterator[Strips]:
        """By the rules; on a CPU then other blocks of keys, other tiles, other numbers of queries for a cube."""
        yield Strips()
        if has_planes(p):
            return
        many = properties.vector_registers >= 32
        yield from (
            Strips(shape) for shape in (((6, 4), (12, 2)) if many else ((6, 2), (12, 1), (4, 3)))
        )
        yield from (Strips(keys=keys) for keys in (24, 48, 192) if keys <= 2 * p.keys)
        yield from (Strips(tiles=tiles) for tiles in (1, 2, 4, 8))

    def launch(self, blueprint: Strips, p: Attention, args: tuple[Any, ...]) -> None:
        """A cube does some strips of queries."""
        q, k, v, mask, out, lse, factor = args
        lines.launch(
            q, k, v, mask, p.mask, out, lse, p.causal, factor, cb.device_properties_of(), blueprint
        )


def has_planes(p: Attention) -> bool:
    """Whether the device's units work in planes, as a GPU's."""
    return device_properties(p.device).plane_size > 1


def guess(p: Attention) -> str:
    """The routine that is taken without a measurement."""
    if p.units:
        if split_pays(p) and planned(p, device_properties(p.device), split.Shape()):
            return "split"
        return "hopper" if p.units == "wgmma" else "planes"
    return "few" if p.length <= lines.FEW and not has_planes(p) else "lines"


def arguments(p: Attention, seed: int) -> tuple[Any, ...]:
    """query, key, value, mask, out, log-sum-exp, factor, as the routines take them."""
    rng, dtype = np.random.default_rng(seed), as_dtype(p.dtype).numpy
    groups, width = p.groups or p.heads, p.width or p.depth
    shapes = (
        (p.heads, p.length, p.depth),
        (groups, p.keys, p.depth),
        (groups, p.keys, width),
        (p.heads, p.length, width),
    )
    q, k, v, out = (rng.standard_normal((p.batch, *s), np.float32).astype(dtype) for s in shapes)
    mask: Any = None
    if p.mask != "none":
        mask = rng.random((p.batch, 1, p.length, p.keys), np.float32)
        mask = mask < 0.75 if p.mask == "bool" else mask.astype(dtype)
    device = as_device(p.device)
    if gpu_of(device) is not None:
        q, k, v, out = (upload(a, device) for a in (q, k, v, out))
        mask = None if mask is None else upload(mask, device)
    if mask is not None:
        mask = np.broadcast_to(mask, (p.batch, p.heads, p.length, p.keys))
    return q, k, v, mask, out, None, p.depth**-0.5


def _checked(p: Attention) -> tuple[np.ndarray, ...]:
    """Batch, head and place of some queries, the first and the last among them."""
    shape = p.batch, p.heads, p.length
    return np.unravel_index(
        np.unique(np.linspace(0, p.batch * p.heads * p.length - 1, CHECKED).astype(int)), shape
    )


def _host(a: Any) -> np.ndarray:
    return a if isinstance(a, np.ndarray) else a.numpy()  # type: ignore[no-any-return]


def reference(p: Attention, args: tuple[Any, ...]) -> Sequence[np.ndarray]:
    """Some queries' results in float64."""
    q, k, v = (_host(a) for a in args[:3])
    shared = p.heads // (p.groups or p.heads)
    found = []
    for b, h, i in zip(*_checked(p), strict=True):
        scores = k[b, h // shared].astype(np.float64) @ q[b, h, i].astype(np.float64) * args[6]
        if p.mask != "none":
            row = _host(args[3])[b, h, i]
            scores = (
                np.where(row, scores, -np.inf)
                if p.mask == "bool"
                else scores + row.astype(np.float64)
            )
        if p.causal:
            scores[i + 1 :] = -np.inf
        weights = np.exp(scores - max(scores.max(), -1e300))
        found.append(weights / max(weights.sum(), 1e-300) @ v[b, h // shared].astype(np.float64))
    return [np.stack(found)]


def results(p: Attention, args: tuple[Any, ...]) -> Sequence[np.ndarray]:
    """The same of what a routine wrote."""
    return [_host(args[4])[_checked(p)]]


def tolerance(p: Attention) -> tuple[float, float]:
    """Relative and absolute: weights of 16 bits are rounded, and so are results."""
    unit = {"bf16": 3e-2, "f16": 5e-3}.get(p.dtype, 1e-4 if p.units else 2e-5)
    return unit, unit


def work(p: Attention) -> Work:
    """Queries, keys and values are read once, results are written once; half of the products where it is causal."""
    size, width, groups = as_dtype(p.dtype).itemsize, p.width or p.depth, p.groups or p.heads
    moved = p.batch * (p.depth + width) * (p.heads * p.length + groups * p.keys)
    flops = 2 * p.batch * p.heads * p.length * p.keys * (p.depth + width)
    return Work(
        size * moved,
        flops // 2 if p.causal else flops,
        "f32" if p.device.startswith("cpu") else p.dtype,
    )


def typical(device: str) -> Sequence[Attention]:
    """Heads of 64 and 128 as language models have them, and a single query."""
    features = device_properties(device).features
    dtype = "f16" if "mma" in features else "f32"
    units: Units = "wgmma" if {"wgmma", "tma"} <= features else "mma" if "mma" in features else ""
    shapes = [
        (8, 12, 128, 128, 64),
        (1, 12, 512, 512, 64),
        (1, 8, 1024, 1024, 64),
        (1, 8, 512, 512, 128),
        (1, 12, 1, 1024, 64),
    ]
    found = [Attention(device, *s, dtype=dtype, units=units) for s in shapes]
    return [*found, Attention(device, 1, 8, 1024, 1024, 64, dtype=dtype, causal=True, units=units)]


ATTENTION = Op(
    "attention", [Hopper(), Planes(), Split(), Few(), Lines()], Attention, make=arguments,
    outputs=lambda args: args[4:5], reference=reference, results=results, tolerance=tolerance, work=work,
    typical=typical, guess=guess,
)  # fmt: skip
