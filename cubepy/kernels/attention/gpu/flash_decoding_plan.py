"""How the attention of few queries is cut: teams, blocks, and the cubes that share the keys
of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cubepy.kernels.attention.gpu.flash_mma_plan import PAD, Blocks
from cubepy.kernels.attention.gpu.operands import copyable
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.symbolic.cached import cached

FACTS = 4
"""Numbers behind each row of sums: the largest score, the sum of weights, two for the sake of
alignment.
"""


@dataclass(frozen=True)
class SplitAttention(Blocks):
    """What changes the code.

    Attributes:
        depth, width: columns of queries and keys, and of values, rounded up to 16.
        row_planes: planes of a team, each with 16 rows.
        teams: teams of a cube, each with blocks of keys of its own.
        keys: keys of a block, a multiple of 16.
        stages: blocks of a team that are there or under way.
        parts: 1, or 3 for f32.
        dtype: of operands: "f16" or "bf16".
        causal: a query sees keys up to its own position.
        mask: "none", "bool" (true: may look) or "float" (added to the scores).
        words: inputs are whole blocks of 16 bytes and come as arrays of words; one part.
        early: launches may overlap.
    """

    depth: int
    width: int
    row_planes: int
    teams: int
    keys: int
    stages: int
    parts: int
    dtype: str
    causal: bool
    mask: str
    words: bool = False
    early: bool = False

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return 16 * self.row_planes

    @property
    def units(self) -> int:
        """Units of a cube."""
        return 32 * self.row_planes * self.teams

    @property
    def query_words(self) -> int:
        """Words of the queries in shared memory."""
        return self.parts * self.rows * (self.depth // 2 + PAD)

    @property
    def buffer_words(self) -> int:
        """Words of all rings in shared memory, where the sums of the teams lie at the end."""
        buffer = self.teams * self.stages * (self.key_words + self.value_words)
        return max(buffer, self.teams * self.rows * (self.width + FACTS))

    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        return 4 * (self.query_words + self.buffer_words)


@dataclass(frozen=True)
class Shape:
    """What may be chosen by measuring: planes of a team, teams, keys of a block, stages, splits; 0:
    by the rules.
    """

    row_planes: int = 0
    teams: int = 0
    keys: int = 0
    stages: int = 0
    splits: int = 0


SHAPES = tuple(
    Shape(*s)
    for s in (
        (1, 4, 32, 2),
        (1, 8, 16, 2),
        (1, 2, 32, 3),
        (2, 2, 32, 3),
        (2, 4, 16, 3),
        (4, 2, 32, 2),
    )
)
"""What may be tried instead of the rules."""


def plan_for(
    q: Any, k: Any, v: Any, kind: str, causal: bool, p: DeviceProperties, shape: Shape = Shape()
) -> SplitAttention | None:
    """The blueprint for a problem, or None where this routine cannot do it; `kind` of mask: "none",
    "bool", "float".
    """
    narrow = q.dtype.itemsize == 2 and q.dtype == k.dtype == v.dtype
    dtype = "bf16" if not narrow or q.dtype.name == "bfloat16" else "f16"
    words = (
        narrow and "copy_async" in p.features and all(copyable(a, repeats=True) for a in (q, k, v))
    )
    rows = q.shape[1] // k.shape[1] * q.shape[2]
    return planned(
        rows, q.shape[3], v.shape[3], 1 if narrow else 3, dtype, causal, kind, words, p, shape
    )


@cached
def planned(
    rows: int,
    depth: int,
    width: int,
    parts: int,
    dtype: str,
    causal: bool,
    kind: str,
    words: bool,
    p: DeviceProperties,
    shape: Shape,
) -> SplitAttention | None:
    """The blueprint by the rules, where it is not chosen: a team for the rows, of 4 or 8 planes
    several teams.
    """
    depth, width = -(-depth // 16) * 16, -(-width // 16) * 16
    if "mma" not in p.features or max(depth, width) > 256 or min(depth, width) == 0:
        return None
    row_planes = shape.row_planes or (1 if rows <= 16 else 2 if rows <= 32 else 4)
    teams = shape.teams or (
        4 // row_planes if row_planes == 1 or "barrier" not in p.features else 8 // row_planes
    )
    if row_planes > 1 and "barrier" not in p.features:
        teams = 1
    stages = (shape.stages or 3) if words else 1
    early = "barrier" in p.features
    keys = shape.keys or (32 if max(depth, width) <= 64 else 16)
    plan = SplitAttention(
        depth, width, row_planes, teams, keys, stages, parts, dtype, causal, kind, words, early
    )
    while plan.shared_bytes() > p.max_shared_memory and not shape.keys:
        if plan.keys > 16:
            plan = replace(plan, keys=16)
        elif plan.stages > 2:
            plan = replace(plan, stages=plan.stages - 1)
        elif plan.teams > 1:
            plan = replace(plan, teams=plan.teams // 2)
        else:
            return None
    return plan if plan.shared_bytes() <= p.max_shared_memory else None


BLOCK_US = 0.19, 0.225
"""Microseconds of 8 KB of keys and values of a cube that is alone, and for each cube of a core.
Measured on an H200.
"""
START_US, COMBINE_US, PART_US = 2.2, 2.5, 0.02
"""Of a cube, of the second launch, and of a part in it."""


ROW_COST = 0.0375
"""What a row of a tile costs, where products take longer than copies: in costs of a block of 16
rows.
"""


def microseconds(
    items: int, blocks: int, splits: int, plan: SplitAttention, cores: int, shared: int
) -> float:
    """About how long `items` tiles take with their blocks in `splits` parts."""
    resident = max(1, min(shared // (plan.shared_bytes() + 1024), 2048 // plan.units, 4))
    each = -(-blocks // splits)
    cubes = items * -(-blocks // each)
    size = plan.keys * (plan.depth + plan.width) * (2 if plan.parts == 1 else 4) / 8192
    block = (
        size
        * max(1.0, ROW_COST * plan.rows)
        * max(BLOCK_US[0], BLOCK_US[1] * min(resident, -(-cubes // cores)))
    )
    waves = -(-cubes // (cores * resident))
    return waves * (each * block + START_US) + (
        COMBINE_US + PART_US * splits if splits > 1 else 0.0
    )


@cached
def best_splits(
    items: int, blocks: int, plan: SplitAttention, cores: int, shared: int
) -> tuple[float, int]:
    """The least microseconds, and the parts of the keys that take them.

    Example:
        >>> plan = SplitAttention(128, 128, 1, 4, 16, 3, 1, "bf16", False, "none", True, True)
        >>> [best_splits(items, 512, plan, 132, 232448)[1] for items in (8, 64, 1000)]
        [16, 2, 1]
    """
    most = max(1, blocks // plan.teams)
    tried = (1, *(min(most, max(1, n * cores // (2 * items))) for n in (1, 2, 4, 6, 8, 12, 16)))
    return min(
        (microseconds(items, blocks, splits, plan, cores, shared), splits) for splits in tried
    )


def splits_for(items: int, blocks: int, plan: SplitAttention, p: DeviceProperties) -> int:
    """Parts of the keys."""
    return best_splits(items, blocks, plan, p.cores, p.max_shared_memory)[1]
