"""The shape of products of packed weights with one to four rows: what a cube holds, and where in
its shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import cubepy as cb
from cubepy.quant.linear.gpu.blueprint import CHUNK, COLUMNS, MOST_PANELS, PANEL, Room, best_panels

PASS = 256
"""Inputs that a plane rounds at a time, eight a lane."""
_FEW_INPUTS = 1 << 15
"""Inputs of all rows of a product of few rows: every cube keeps their digits."""
_DEEPEST = 8
_PIPELINE_BYTES = 99 << 10
"""Bytes of codes that a cube of few rows has under way, if two blocks of a plane are no more. One
row of 4096 x 14336 in groups of 32: 10.7 us with 80 KB, 10.9 with 100, 11.6 with 160; in groups of
128: 9.9 us with 66 KB, 9.6 with 99, 9.9 with 132. Measured on an H200.
"""
_PIPELINE_BYTES_OF_MANY = 140 << 10
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


@dataclass(frozen=True)
class FewBlueprint:
    """What changes the code of `cubepy.quant.linear.gpu.gemv`.

    Attributes:
        rows: rows of activations.
        digits: columns of eight bits that stand for a row: two, or four for f32.
        group: inputs that share a scale, or 0 (int8).
        symmetric: whether codes stand for n - 8 (int4).
        planes: planes of a cube; they share its panels, and each takes blocks of its own.
        panels: panels of a cube.
        depth: blocks of a plane that are under way.
        each: blocks of a plane.
        ahead: blocks that are asked for before the launch before this one has ended.
        bias, residual, activation: the epilogue.
        whole: whether rows of activations are whole lines of eight.
        early: whether the launch may begin before the one before it has ended.
        soon: whether the pipeline's other blocks are asked for before rows are rounded, not after
            the first pass.
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
    def step_blocks(self) -> int:
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
        """16-byte loads of a lane for activations in the pipeline: none."""
        return 0

    @property
    def factor_lines(self) -> int:
        """Pieces of 16 bytes of factors in the pipeline: none."""
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
        return -(-(-(-self.each // self.step_blocks) * self.step_blocks * self.block) // PASS)

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


@cache
def plan_few(
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
) -> tuple[FewBlueprint, int] | None:
    """The blueprint for one to four rows of float activations, and the number of cubes; None for
    more, or without room for their digits.

    `whole`: rows are lines of eight.

    Example:
        >>> import cubepy as cb
        >>> plan, cubes = plan_few(896, 64, 1, 32, False, cb.bf16, Room(132, 232448), False, False,
        ...     None)
        >>> plan.planes, plan.panels, cubes
        (16, 7, 128)
        >>> plan_few(896, 64, 5, 32, False, cb.bf16, Room(132, 232448), False, False, None) is None
        True
    """
    digits = 2 if dtype in (cb.bf16, cb.f16) else 4
    if m * digits > COLUMNS or m * blocks * max(CHUNK, group) > _FEW_INPUTS:
        return None
    count = best_panels(panels, target.cores, MOST_PANELS[1])

    def shaped(planes: int, depth: int) -> FewBlueprint:
        return FewBlueprint(
            m,
            digits,
            group,
            symmetric,
            planes,
            count,
            depth,
            -(-blocks // planes),
            1,
            bias,
            residual,
            function,
            whole,
            target.overlap,
        )

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
            _PIPELINE_BYTES_OF_MANY if planes > 16 else _PIPELINE_BYTES
        ):
            break
        depth += 1
    plan = shaped(planes, depth)
    if not plan.once:
        ahead = max(1, min(depth, _AHEAD_BYTES // (16 * planes * plan.slot)))
        plan = replace(plan, ahead=ahead, soon=plan.passes == 1)
    return plan, -(-panels // count)


def best_planes(blocks: int, shaped: Callable[[int], FewBlueprint]) -> int:
    """How many planes share the blocks of a row: those that take the fewest turns together, and
    then as many as can be.

    A turn costs about as much where half of its blocks are missing. A plane keeps the activations
    of its passes in registers, 20 for each, besides 32.
    """

    def rounds(planes: int) -> tuple[int, int]:
        plan = shaped(planes)
        return planes * -(-plan.each // plan.step_blocks), -planes

    fits = [n for n in range(16, 29) if 32 * n * (32 + 20 * shaped(n).passes) <= _REGISTERS]
    return min(fits, key=rounds) if blocks > 16 and fits else min(16, blocks)
