"""How many results a unit of `max_sliding` makes, and how far it walks: by the numbers it holds."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.pooling.gpu.van_herk import SlidingWindow
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.kernels.windows.rows_gpu import PlanePlan, Steps, lined, row_bands_of, row_loads

HELD = (128, 90)
"""Numbers that a unit holds, about, with windows to 5 and longer across: of sliding windows and
rows' values.
"""
MANY = 1 << 18  # units, from which on there are enough of them
LOOP_STEPS = 10  # of a loop that a unit makes, at most
GAPS = 4
"""Cubes on a core where windows have gaps: ptxas alone takes registers for fewer (81 % of a copy,
not 93).
"""
ROWS = 4  # of results in a plane, at most


def held_by(
    sliding: SlidingWindow, down: Steps, across: Steps, blocks: int, columns: int, halves: bool
) -> int:
    """How many numbers, or lines of channels, a unit holds; with `halves`, two numbers in
    a word.
    """
    wide = -(-columns // 2) if halves else columns
    rows = down.positions(blocks) * wide if down.positions(blocks) > 1 else 0
    return sliding.slots * blocks * wide + across.positions(columns) + rows


def plan_of(
    x: Any, out: Any, sliding: SlidingWindow, down: Steps, across: Steps, last: bool, halves: bool
) -> tuple[PlanePlan, int, int]:
    """A plan for the planes of x, with the numbers of a row's groups of results and of a column's
    row bands.
    """
    blocks = min(ROWS, out.shape[1])
    shared = across.taps > across.ins and (across.spacing == 1 or across.ins == 1)
    columns = min(4 if across.taps > 3 * across.ins else 2, out.shape[2]) if shared else 1
    lanes, wide = (line_of(x, out), 1) if last else (1, line_of(x))
    lined_up = 1 if last else lined(x, out, across)
    columns = lined_up if lined_up > 1 else columns
    most = HELD[across.reach > 5]
    while (lanes * columns * blocks) > 1 and lanes * held_by(
        sliding, down, across, blocks, columns, halves
    ) > most:
        if blocks > 1:
            blocks //= 2
        elif lanes * x.itemsize > 4:
            lanes //= 2
        elif columns > 1:
            columns //= 2
        else:
            lanes //= 2
    groups, bands, margin, ragged = row_bands_of(x, out, down, blocks, columns)
    loads = row_loads(
        across, columns, min(wide, columns), groups * columns * across.ins > x.shape[2]
    )
    cubes = GAPS if sliding.hop > 1 and not last and across.taps <= 5 else 0
    lanes = columns if lined_up > 1 else lanes
    plan = PlanePlan(down, across, blocks, columns, last, lanes, loads, margin, ragged, cubes)
    return plan, groups, bands


def pieces_of(sliding: SlidingWindow, deep: int, units: int) -> tuple[int, int]:
    """Units along an axis of so many windows, and iterations of each, if there are so many units
    without that.
    """
    every = -(-deep // sliding.ahead)
    loop_steps = max(1, min(LOOP_STEPS, every, every * units // MANY)) if sliding.looped else 1
    pieces = -(-every // loop_steps)
    return pieces, -(-every // pieces)
