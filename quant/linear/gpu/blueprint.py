"""The shape of the products of planes with packed weights: what a cube holds, and where in its
shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from cubepy.runtime.device import DeviceProperties

CHUNK = 64
"""Inputs of one 16-byte load of a lane."""
PANEL = 16
COLUMNS = 8
"""Columns of activations of one fragment."""
MOST_PANELS = {1: 7, 2: 7, 3: 4, 4: 4}
"""Panels of a cube by the fragments of columns: their sums stay in registers."""


class Room(NamedTuple):
    """Cores of a device, bytes of shared memory of a cube, and features: whether launches may
    overlap, clusters of cubes, products of groups of planes.
    """

    cores: int
    shared: int
    overlap: bool = False
    cluster: bool = False
    groups: bool = False

    @classmethod
    def of(cls, properties: DeviceProperties) -> Room:
        """What plans ask of a device."""
        return cls(
            properties.cores,
            properties.max_shared_memory,
            "overlap" in properties.features,
            "cluster" in properties.features,
            properties.features >= {"wgmma", "tma", "cluster"},
        )


@dataclass(frozen=True)
class PlaneBlueprint:
    """What changes the code of a product of planes.

    Attributes:
        parts: bf16 numbers that stand for one activation.
        tiles: fragments of eight columns.
        group: inputs that share a scale, or 0 (int8).
        symmetric: whether codes stand for n - 8 (int4).
        planes: planes of a cube; they share its panels, and each takes blocks of its own.
        panels: panels of a cube.
        depth: blocks of a plane that are under way.
        eight: whether activations are bytes.
        bias, residual, activation: the epilogue.
        early: whether the launch may begin before the one before it has ended: weights are fetched
            meanwhile.
        splits: 2 if two cubes of a cluster share panels, and each takes blocks of its own.
        raw: whether rows come as they are, bf16 of whole blocks, and every cube scales and adds
            them up itself.
        once: whether all blocks of a plane are under way at once.
        separate: whether the sums of a cluster's other cube have shared memory of their own, and
            not that of blocks.
        ahead: whether codes are all asked for before the launch before this one has ended, and rows
            come to registers.
    """

    parts: int
    tiles: int
    group: int
    symmetric: bool
    planes: int
    panels: int
    depth: int
    eight: bool = False
    bias: bool = False
    residual: bool = False
    activation: Any = None
    early: bool = False
    raw: bool = False
    splits: int = 1
    once: bool = False
    separate: bool = False
    ahead: bool = False

    @property
    def block(self) -> int:
        """Inputs that a plane takes at a time: whole groups and whole chunks."""
        return max(CHUNK, self.group)

    @property
    def width(self) -> int:
        """Inputs whose sum is taken."""
        return self.group or CHUNK

    @property
    def halves(self) -> int:
        """Pieces of four bits of a code."""
        return 1 if self.group else 2

    @property
    def loads(self) -> int:
        """16-byte loads of a lane for a block of a panel."""
        return self.block // CHUNK * self.halves

    @property
    def fact_words(self) -> int:
        """Words that say the scales (and minimums) of a lane's two channels, for a block."""
        return self.block // self.group * (1 if self.symmetric else 2) if self.group else 0

    @property
    def lines(self) -> int:
        """16-byte loads of a lane for a block of activations in the pipeline."""
        return 0 if self.ahead else self.tiles * self.block // (64 if self.eight else 32)

    @property
    def starts(self) -> int:
        """Words of a block's sums of activations."""
        return 0 if self.eight or self.raw else self.tiles * COLUMNS * (self.block // self.width)

    @property
    def rounded(self) -> bool:
        """Whether codes become bf16 weights, instead of sums of codes being scaled: cheaper for
        small groups.
        """
        return self.raw and 0 < self.group < 128

    @property
    def pairs(self) -> int:
        """Pieces of 16 bytes of a block's scales and minimums as pairs of bf16."""
        return 8 * self.panels * (self.block // self.group) if self.rounded else 0

    @property
    def factor_lines(self) -> int:
        """Pieces of 16 bytes of a block's factors."""
        return self.block // 8 if self.raw else 0

    @property
    def slot(self) -> int:
        """Pieces of 16 bytes of a block that is under way."""
        others = 8 * self.panels * self.fact_words + self.starts
        return 32 * (self.panels * self.loads + self.lines) + self.factor_lines + others // 4

    @property
    def columns(self) -> int:
        """Columns of activations that a cube keeps."""
        return self.tiles * COLUMNS

    @property
    def span(self) -> int:
        """Pieces of 16 bytes of a plane: its blocks under way, and at the end its sums."""
        return max(self.pairs + self.depth * self.slot, self.panels * self.columns * PANEL // 4)

    @property
    def half(self) -> int:
        """Words of a plane's sums of half of the channels."""
        return self.panels * self.columns * PANEL // 2

    @property
    def landing(self) -> tuple[int, int]:
        """Words before the sums of the other cube's first plane, and from one plane to the next."""
        return (
            (4 * self.planes * self.span, self.half)
            if self.separate
            else (self.half, 4 * self.span)
        )

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        return self.planes * (16 * self.span + (4 * self.half if self.separate else 0))

    @property
    def offset(self) -> float:
        """What the sums of activations are multiplied with, to take away what codes stand
        too high.
        """
        return -136.0 if self.group and self.symmetric else -128.0

    @property
    def units(self) -> int:
        """Units of a cube."""
        return 32 * self.planes


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
