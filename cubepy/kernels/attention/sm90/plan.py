"""The shape of the attention's cubes on Hopper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubepy.kernels.attention.sm90 import masks as masking
from cubepy.kernels.attention.sm90.masks import BY_KEY, ITEM_BYTES, ROW_BYTES
from cubepy.runtime.device import DeviceProperties

GROUP = 128
"""Units that issue a product together: four planes."""
BLOCK = 64
"""Rows of a product, and columns of a tile in shared memory: 128 bytes, what the copy engine
swizzles.
"""
LONG = 4096
"""Keys from which tiles are large and one of queries is under way; below, two were faster on an
H200.
"""


@dataclass(frozen=True)
class HopperAttention:
    """What changes the code of the Hopper attention.

    Attributes:
        depth: width of queries, keys and values, rounded up to 64, 128 or 256.
        groups: groups of 64 query rows.
        keys: keys of a block, a multiple of 16.
        stages: blocks of keys, and of values, that are under way.
        causal: a query sees keys up to its own position.
        mask: "none", "keys" (bool) or "key bias" (added), the same for all rows, or "bool", "f16",
            "bf16", "f32".
        chosen: blocks that the mask hides are known before and left out, and tiles are given out as
            cubes are free.
        queries: tiles of queries that are there or under way: with two, short rows follow each
            other without a gap.
        resident: cubes that a core has at once.
    """

    depth: int = 128
    groups: int = 2
    keys: int = 128
    stages: int = 2
    causal: bool = False
    mask: str = "none"
    chosen: bool = False
    queries: int = 1
    resident: int = 1

    @property
    def rows(self) -> int:
        """Query rows of a tile."""
        return BLOCK * self.groups

    @property
    def units(self) -> int:
        """Units of a cube."""
        return GROUP * (self.groups + 1)

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a unit that copies, and of one that computes; all fit what a
        launch takes.
        """
        if self.resident > 1:
            return 24, 208
        return (40, 232) if self.groups == 2 else (32, 160)

    @property
    def mask_columns(self) -> int:
        """Elements of a row of the mask's tiles in shared memory; bools are in pairs."""
        return ROW_BYTES // max(2, ITEM_BYTES.get(self.mask, 4))

    @property
    def mask_boxes(self) -> int:
        """Tiles of the mask beside each other for a block."""
        return self.keys * ITEM_BYTES.get(self.mask, 0) // ROW_BYTES

    @property
    def mask_bytes(self) -> int:
        """Bytes of a block's part of the mask."""
        if self.mask == "none":
            return 0
        return (
            self.keys * 4 if self.mask in BY_KEY else self.rows * self.keys * ITEM_BYTES[self.mask]
        )

    @property
    def mask_stage(self) -> int:
        """Bytes from a block's part of the mask in shared memory to the next one's; the copy
        engine's are 128 apart.
        """
        return -(-self.mask_bytes // ROW_BYTES) * ROW_BYTES

    @property
    def longest_first(self) -> bool:
        """Whether rows differ in work, and those with most come first."""
        return self.causal or (self.chosen and self.mask not in BY_KEY)

    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        barriers = 8 * (2 * self.queries + 4 * self.stages) + 8 * self.stages
        rows = self.queries * self.rows + 2 * self.stages * self.keys
        return rows * self.depth * 2 + self.stages * self.mask_stage + barriers


@dataclass(frozen=True)
class Shape:
    """What may be chosen by measuring: groups of queries, keys of a block, tiles of queries under
    way, cubes of a core.

    Zeros leave it to the rules.
    """

    groups: int = 0
    keys: int = 0
    queries: int = 0
    resident: int = 0


def plan_for(
    q: Any,
    k: Any,
    v: Any,
    causal: bool,
    p: DeviceProperties,
    mask: Any = None,
    kind: str = "none",
    shape: Shape = Shape(),
) -> HopperAttention | None:
    """The blueprint for a problem, or None where this routine cannot do it; `kind` of mask: "none",
    "bool", "float".

    Widths up to 256 are rounded up: the copy engine fills with zeros what lies beyond an array.
    """
    width = max(q.shape[3], v.shape[3])
    if not {"wgmma", "tma"} <= p.features or not 0 < width <= 256:
        return None
    if q.dtype.itemsize != 2 or not q.dtype == k.dtype == v.dtype:
        return None
    if any(a.shape[3] % 8 for a in (q, k, v)):
        return None
    known = masking.kind_of(mask, kind)
    if known is None:
        return None
    keys = 96 if known == "f32" else 128 if known != "none" else even_blocks(k.shape[2])
    chosen = masking.worth_a_survey(mask, known, width)
    depth, groups, keys = (
        (64, 3, keys) if width <= 64 else (128, 2, keys) if width <= 128 else (256, 2, 80)
    )
    queries, resident = 1, 1
    if known == "none" and depth < 256 and k.shape[2] < LONG:
        queries = 2
        if depth == 64:
            groups, resident = (2, 1) if causal else (1, 2)
    if shape.groups:
        groups, queries, resident = (
            shape.groups,
            1 if chosen else shape.queries or 1,
            shape.resident or 1,
        )
    plan = HopperAttention(
        depth, groups, shape.keys or keys, 2, causal, known, chosen, queries, resident
    )
    return plan if depth < 256 or known in ("none", *BY_KEY) else None


def even_blocks(seen: int) -> int:
    """Keys of a block, 64 to 128, so that the last one of a few is not nearly empty.

    Example:
        >>> even_blocks(50), even_blocks(197), even_blocks(300), even_blocks(4097)
        (64, 112, 112, 128)
    """
    if seen > 1024:
        return 128
    blocks = -(-seen // 128)
    return max(64, -(-seen // (16 * blocks)) * 16)
