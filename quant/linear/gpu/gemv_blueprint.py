"""The shape of products of packed weights with one to four rows: what a cube holds, and where in
its shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubepy.quant.linear.gpu.blueprint import CHUNK, COLUMNS, PANEL

PASS = 256
"""Inputs that a plane rounds at a time, eight a lane."""


@dataclass(frozen=True)
class FewBlueprint:
    """What changes the code of `cubepy.quant.linear.gpu.gemv`.

    Attributes: rows: rows of activations. digits: columns of eight bits that stand for a row: two,
        or four for f32. group: inputs that share a scale, or 0 (int8). symmetric: whether codes
        stand for n - 8 (int4). planes: planes of a cube; they share its panels, and each takes
        blocks of its own. panels: panels of a cube. depth: blocks of a plane that are under way.
        each: blocks of a plane. ahead: blocks that are asked for before the launch before this one
        has ended. bias, residual, activation: the epilogue. whole: whether rows of activations are
        whole lines of eight. early: whether the launch may begin before the one before it has
        ended. soon: whether the ring's other blocks are asked for before rows are rounded, not
        after the first pass.
    """

    rows: int
    digits: int
    group: int
    symmetric: bool
    planes: int
    panels: int
    depth: int
    each: int
    ahead: int = 1
    bias: bool = False
    residual: bool = False
    activation: Any = None
    whole: bool = False
    early: bool = False
    soon: bool = True

    @property
    def block(self) -> int:
        """Inputs that a plane takes at a time: whole groups and whole chunks."""
        return max(CHUNK, self.group)

    @property
    def ranks(self) -> int:
        """Columns of the same inputs: the digits of each row."""
        return self.digits * (1 << (self.rows - 1).bit_length())

    @property
    def reach(self) -> int:
        """Inputs of a column."""
        return max(32, self.block * self.ranks // COLUMNS)

    @property
    def turn(self) -> int:
        """Blocks of which sums are kept apart by the columns."""
        return COLUMNS // self.ranks * self.reach // self.block

    @property
    def spans(self) -> int:
        """Groups of a column."""
        return max(1, self.reach // self.group) if self.group else 1

    @property
    def unshifted(self) -> bool:
        """Whether bytes of two codes are operands as they are, without a shift and a mask for the
        higher one.

        The second channel's sums are then 16 times its own plus those of the first. Of up to 128
        inputs they stay below 2^22, which the mantissa of `MAGIC_FLOAT` has room for.
        """
        return self.group > 0 and self.reach // self.spans <= 128

    @property
    def kinds(self) -> int:
        """Numbers that a group has: a scale, and a minimum."""
        return 1 if self.symmetric else 2

    @property
    def loads(self) -> int:
        """16-byte loads of a lane for a block of a panel."""
        return self.block // CHUNK * (1 if self.group else 2)

    @property
    def fact_words(self) -> int:
        """Words that say the scales (and minimums) of a lane's two channels, for a block."""
        return self.block // self.group * self.kinds if self.group else 0

    @property
    def columns(self) -> int:
        """Columns of results that a cube keeps: its rows."""
        return self.rows

    @property
    def parts(self) -> int:
        """Columns of results that a row has."""
        return 1

    @property
    def eight(self) -> bool:
        """Whether activations are bytes: never."""
        return False

    @property
    def lines(self) -> int:
        """16-byte loads of a lane for activations in the ring: none."""
        return 0

    @property
    def factor_lines(self) -> int:
        """Pieces of 16 bytes of factors in the ring: none."""
        return 0

    @property
    def slot(self) -> int:
        """Pieces of 16 bytes of a block that is under way."""
        return self.panels * (32 * self.loads + 2 * self.fact_words)

    @property
    def span(self) -> int:
        """Pieces of 16 bytes of a plane: its blocks under way, and at the end its sums."""
        return max(self.depth * self.slot, self.panels * self.rows * PANEL // 4)

    @property
    def once(self) -> bool:
        """Whether all blocks of a plane are under way at once."""
        return self.depth >= self.each

    @property
    def passes(self) -> int:
        """How often a plane rounds inputs of a row."""
        return -(-(-(-self.each // self.turn) * self.turn * self.block) // PASS)

    @property
    def crowded(self) -> bool:
        """Whether sums and rows fill the registers of a core, so that every pass tests for the end
        of its row: where only the last one does, ptxas keeps more values at a time. One row of
        14336 x 14336 in groups of 32 took 32.0 us with the test, 32.6 us without it and 32 bytes of
        spills (H200).
        """
        return self.planes * self.passes * self.panels > 400

    @property
    def digit_words(self) -> int:
        """Words of a plane's digits."""
        return self.passes * PASS // 4 * self.ranks

    @property
    def room(self) -> int:
        """Words of a plane's digits, and of what they are worth and add up to."""
        return (
            self.digit_words
            + self.passes * PASS * self.spans // self.reach * (self.ranks // self.digits) * 2
        )

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        return self.planes * (16 * self.span + 4 * self.room)

    @property
    def units(self) -> int:
        """Units of a cube."""
        return 32 * self.planes
