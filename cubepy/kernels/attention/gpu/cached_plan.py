"""How attention to a cache is shared among cubes, and lanes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubepy.kernels.attention.append import rolls
from cubepy.lang.dtypes import as_dtype, i8
from cubepy.runtime.device import DeviceProperties

FACTS = 4
"""Numbers behind each row of sums: the largest score and the sum of weights; the rest keeps rows at
multiples of 16 bytes.
"""
MOST_ROWS = 4
"""Queries of a tile."""
KEYS = 4
"""Keys of a group of lanes at once: as many loads are on their way. Twice as many of bytes."""
LEAST_STEPS = 4
"""Steps of a cube, at least, of a cache that is full."""


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        depth, width: of a key and of a value.
        rotated: numbers of a query or key that are rotated, the first ones; 0: none.
        window: positions that a query looks back at, itself included; 0: all.
        cap: scores are cap * tanh(score / cap); 0: as they are.
        rows: queries of a tile.
        line: numbers of a lane that lie side by side.
        group: lanes that share a key, a power of two.
        units: of a cube.
        keys: keys of a group at once.
        groups: heads of keys.
        heads: heads of queries that share one.
        single: whether there is one new position; its sums need no divisions.
        early: launches may overlap.
        rolling: whether positions go round in the cache.
        words: whether keys and values are bytes, read four at once.
    """

    depth: int
    width: int
    rotated: int
    window: int
    cap: float
    rows: int
    line: int
    group: int
    units: int
    keys: int = KEYS
    groups: int = 1
    heads: int = 1
    single: bool = False
    early: bool = False
    rolling: bool = False
    words: bool = False

    @property
    def streams(self) -> int:
        """Groups of a cube."""
        return self.units // self.group

    @property
    def step(self) -> int:
        """Keys of a cube at once."""
        return self.streams * self.keys

    @property
    def depth_lines(self) -> int:
        """Lines of a key that a lane holds."""
        return -(-self.depth // (self.group * self.line))

    @property
    def width_lines(self) -> int:
        """Lines of a value that a lane holds."""
        return -(-self.width // (self.group * self.line))

    @property
    def padded(self) -> int:
        """Numbers of a query in shared memory."""
        return self.depth_lines * self.group * self.line

    @property
    def stride(self) -> int:
        """Numbers of a row of what a group found."""
        return self.width + FACTS


def plan_for(
    q: Any, keys: Any, values: Any, rotated: int, window: int, cap: float, p: DeviceProperties
) -> Blueprint:
    """The blueprint for queries (B, H, L, D) and caches (B, G, C, D) and (B, G, C, E)."""
    depth, width = keys.shape[3], values.shape[3]
    line = 16 // max(2, as_dtype(keys.dtype).itemsize, as_dtype(values.dtype).itemsize)
    words = as_dtype(keys.dtype) is i8 and depth % line == 0 and width % line == 0
    lines = -(-max(depth, width) // line)
    group = min(p.plane_size, 1 << (lines - 1).bit_length())
    rows = min(MOST_ROWS, q.shape[1] // keys.shape[1] * q.shape[2])
    groups, single = keys.shape[1], q.shape[2] == 1
    fixed = (depth, width, rotated, window, cap, rows, line, group, 4 * p.plane_size)
    return Blueprint(
        *(
            *fixed,
            KEYS * (1 + words),
            groups,
            q.shape[1] // groups,
            single,
            "overlap" in p.features,
        ),
        rolling=rolls(window, q.shape[2], keys.shape[2]),
        words=words,
    )


def combining(plan: Blueprint, plane: int) -> Blueprint:
    """The blueprint of `combine`: parts are its keys."""
    line = 4
    lines = -(-plan.width // line)
    group = min(plane, 1 << (lines - 1).bit_length())
    return Blueprint(
        *(plan.width, plan.width, 0, 0, 0.0, 1, line, group, 8 * plane, KEYS),
        *(plan.groups, plan.heads, plan.single, plan.early),
    )


def splits_for(items: int, room: int, length: int, plan: Blueprint, cores: int) -> int:
    """Parts of the keys: enough cubes for all cores, none with less than a few steps.

    Example:
        >>> plan = Blueprint(128, 128, 128, 0, 0.0, 1, 8, 16, 128)
        >>> [splits_for(items, 4096, 1, plan, 132) for items in (1, 32, 1024)]
        [32, 17, 1]
    """
    most = room if plan.window == 0 else min(room, plan.window + length - 1)
    return max(1, min(-(-4 * cores // items), most // (LEAST_STEPS * plan.step)))
