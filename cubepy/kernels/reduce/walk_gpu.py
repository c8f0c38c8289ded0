"""Walks of a GPU's units: what a unit finds along its part of a row, and what units find together.

What is known of a part is a tuple: a total, or an element and its position, as lines or numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.reduce.reduction import Walk, joined, taken
from cubepy.lang.dtypes import DType

AHEAD = 4  # lines that a unit asks for before it uses the first


@dataclass(frozen=True)
class Pass:
    """A walk over elements in memory.

    Attributes:
        walk: what is done with each element.
        acc: the dtype to compute in.
        finish: what is made of what is known then; None: nothing, it is kept.
        before: how many walks went before.
        index: the dtype of positions, of a walk for positions.
        brief: whether lines are few, and a unit asks for one after the other.
    """

    walk: Walk
    acc: DType
    finish: Any = None
    before: int = 0
    index: Any = None
    brief: bool = False

    @property
    def of_parts(self) -> Pass:
        """The same over what was found in parts."""
        return replace(self, walk=self.walk.of_parts, brief=self.walk.positions)

    @property
    def partial(self) -> Pass:
        """The same, of which only a part is done."""
        return replace(self, walk=replace(self.walk, end=None), finish=None)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """Of what is known of a part."""
        return (self.acc,) if self.index is None else (self.acc, self.index)

    @property
    def streams(self) -> int:
        """How many parts of a unit's elements do not wait for each other."""
        return 1 if self.walk.positions or not self.ahead else AHEAD

    @property
    def ahead(self) -> bool:
        """Whether a unit asks for several lines before it uses the first."""
        return not (self.brief or self.walk.long)


@cb.func
def nothing(work: cb.Comptime[Pass], at, lanes: cb.Comptime[int]):
    """What is known of no elements; `at` is the position of any."""
    start = cb.splat(cb.cast(work.walk.start, work.acc), lanes)
    return (start, cb.splat(cb.cast(at, work.index), lanes)) if work.walk.positions else (start,)


@cb.func
def forward(state, elements, work: cb.Comptime[Pass]):
    """What is known once so many more elements were seen, each in the stream of its number."""
    for j in cb.unroll(range(len(elements))):
        state = tuple(
            taken(state[i], elements[j], work.walk) if i == j % work.streams else state[i]
            for i in cb.unroll(range(work.streams))
        )
    return state


@cb.func
def together(state, work: cb.Comptime[Pass]):
    """What is known of all streams."""
    for step in cb.unroll((1, 2)):
        if step < work.streams:
            state = tuple(
                joined(state[i], state[i + step], work.walk) if i % (2 * step) == 0 else state[i]
                for i in cb.unroll(range(work.streams))
            )
    return state[0]


@cb.func
def element_of_row(x, given, row, k, left, by, work: cb.Comptime[Pass], lanes: cb.Comptime[int]):
    """A line x[row, k:], of whose elements `left` count (None: all do)."""
    walk = work.walk
    if left is None:
        v = walk.value(cb.cast(x.load((row, k), lanes), work.acc), by)
    else:
        v = walk.value(cb.cast(x.load((row, k), lanes, valid=left), work.acc), by)
        v = cb.keep_first(v, left, cb.cast(walk.start, work.acc))
    if not walk.positions:
        return (v,)
    if given is not None:
        return v, cb.cast(given.load((row, k), lanes, valid=left), work.index)
    return v, cb.iota(lanes, work.index) + cb.cast(k, work.index)


@cb.func
def walk_row(x, given, row, k, stop, hop, by, work: cb.Comptime[Pass], lanes: cb.Comptime[int]):
    """What a unit finds in the lines x[row, k:], x[row, k + hop:] and so on, before `stop`."""
    at = cb.min(k, stop - 1)
    state = tuple(nothing(work, at, lanes) for _ in cb.unroll(range(work.streams)))
    if work.ahead:
        while k + (AHEAD - 1) * hop + lanes <= stop:
            elements = tuple(
                element_of_row(x, given, row, k + j * hop, None, by, work, lanes)
                for j in cb.unroll(range(AHEAD))
            )
            state = forward(state, elements, work)
            k += AHEAD * hop
    while k < stop:
        rest = element_of_row(x, given, row, k, stop - k, by, work, lanes)
        state = forward(state, (rest,), work)
        k += hop
    return together(state, work)


@cb.func
def lanes_joined(state, walk: cb.Comptime[Walk], lanes: cb.Comptime[int]):
    """What is known of all lanes, from the first on."""
    known = tuple(line[0] for line in state)
    for j in cb.unroll(range(1, lanes)):
        known = joined(known, tuple(line[j] for line in state), walk)
    return known


@cb.func
def scratch_for(work: cb.Comptime[Pass]):
    """Shared memory with a slot for every plane of the cube."""
    return tuple(
        cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM), dtype) for dtype in cb.unroll(work.dtypes)
    )


@cb.func
def units_joined(known, walk: cb.Comptime[Walk], group: cb.Comptime[int], scratch):
    """What `group` neighbouring units know together, given to all of them, in an order that never
    changes.

    `group` is a power of two, or whole planes; `scratch`, shared memory with a slot for every plane
    of the cube, is used only where a group is wider than a plane (then all units of the cube have
    to call it).
    """
    for k in cb.unroll(range(6)):
        if (32 >> k) < group and (32 >> k) < cb.PLANE_DIM:
            known = joined(known, tuple(cb.plane_shuffle_xor(v, 32 >> k) for v in known), walk)
    if group > cb.PLANE_DIM:
        planes = group // cb.PLANE_DIM
        if cb.UNIT_POS % cb.PLANE_DIM == 0:
            for i in cb.unroll(range(len(known))):
                scratch[i][cb.UNIT_POS // cb.PLANE_DIM] = known[i]
        cb.sync_cube()
        first = cb.UNIT_POS // group * planes
        known = tuple(slots[first] for slots in scratch)
        for k in range(1, planes):
            known = joined(known, tuple(slots[first + k] for slots in scratch), walk)
        cb.sync_cube()
    return known


@cb.func
def found_in_row(
    x,
    given,
    row,
    k,
    stop,
    by,
    work: cb.Comptime[Pass],
    lanes: cb.Comptime[int],
    units: cb.Comptime[int],
    scratch,
):
    """What `units` neighbouring units find in a row before `stop`, given to all of them; k is where
    this one begins.
    """
    state = walk_row(x, given, row, k, stop, units * lanes, by, work, lanes)
    return units_joined(lanes_joined(state, work.walk, lanes), work.walk, units, scratch)


@cb.func
def finished(known, found, number, count, work: cb.Comptime[Pass]):
    """The result of `count` elements, of what walks before knew and this one found."""
    if work.walk.positions:
        return found[1]
    number, count = cb.cast(number, work.acc), cb.cast(count, work.acc)
    value = found[0]
    if work.walk.end is not None:
        value = work.walk.end(value, count)
    return value if work.finish is None else work.finish(known + (value,), count, number)


@cb.func
def known_of_cube(
    x, row, walks: cb.Comptime, number, acc: cb.Comptime[DType], lanes: cb.Comptime[int]
):
    """What some walks find in a row, given to all units of a cube."""
    n, k = x.shape[1], cb.UNIT_POS * lanes
    scratch = (cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM), acc),)
    known: Any = ()
    for walk in cb.unroll(walks):
        work, by = Pass(walk, acc), walk.by(known, cb.cast(number, acc))
        found = found_in_row(x, None, row, k, n, by, work, lanes, cb.CUBE_DIM, scratch)
        known = known + (finished(known, found, number, n, work),)
    return known
