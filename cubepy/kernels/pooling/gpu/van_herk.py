"""Windows along an axis whose places come one after the other: what is kept of them, and for how
long.

Windows of which many overlap are done in groups that all share one place. What comes before it is
kept window by window, from there backwards; what comes behind is one running maximum (van Herk, "A
fast algorithm for local minimum and maximum filters on rectangular and octagonal kernels", 1992).
So as many lines are kept as windows overlap, and a result takes three maxima however long its
window is. Other windows are kept one by one until their last place.
"""

from __future__ import annotations

from dataclasses import dataclass

from cubepy.kernels.windows.rows_gpu import Steps

NEW = -1  # the place that has just come, among what is kept


@dataclass(frozen=True)
class Ring:
    """Windows along an axis, of every `hop`-th place. `ahead` of them are done by code that is
    written out; with `looped`, as often as is wanted.
    """

    steps: Steps
    ahead: int
    looped: bool
    hop: int = 1

    @property
    def grouped(self) -> bool:
        """Whether windows are done in groups."""
        return self.steps.apart == 1 and self.steps.taps > max(3, 2 * self.steps.ins)

    @property
    def overlap(self) -> int:
        """After how many windows the same slots are used again."""
        return overlap(self.steps)

    @property
    def slots(self) -> int:
        """How many lines are kept."""
        return self.overlap + self.grouped

    @property
    def lead(self) -> int:
        """Places before those of the code that is repeated."""
        return max(0, self.steps.reach - self.steps.ins)

    @property
    def again(self) -> bool:
        """Whether the code that is repeated also takes in the places before its own, in a turn that
        gives nothing.
        """
        return self.looped and 2 * self.lead > self.ahead * self.steps.ins

    @property
    def places(self) -> range:
        """Places of the code that is repeated."""
        end = self.lead + self.ahead * self.steps.ins
        return range(
            self.lead, end if self.looped else (self.ahead - 1) * self.steps.ins + self.steps.reach
        )


def overlap(steps: Steps) -> int:
    """Windows that reach over the same place."""
    return (steps.reach - 1) // steps.ins + 1


Kept = tuple[int, int, int]
"""Where the larger of two goes: a slot, or which window is done; slots or NEW (twice the same: no
larger one).
"""


def kept(ring: Ring, r: int) -> tuple[Kept, ...]:
    """What to do with place r before windows are done."""
    steps, n = ring.steps, ring.overlap
    if not ring.grouped:
        inside = [w for w in _holding(ring, r) if r != w * steps.ins + steps.reach - 1]
        return tuple((w % n, NEW, NEW if r == w * steps.ins else w % n) for w in inside)
    slot, found = r // steps.ins % n, []
    begins = r % steps.ins == 0
    if slot < n - 1:
        found.append((slot, NEW, NEW if begins else slot))
    elif begins:  # the place that a group shares
        found.append((slot, NEW, NEW))
        found += [(v, v, v + 1) for v in range(n - 2, -1, -1)]
    _, behind = _shared(ring, r)
    if 1 <= behind <= steps.taps - 1:
        found.append((n, NEW, NEW if behind == 1 else n))
    return tuple(found)


def done(ring: Ring, r: int) -> tuple[Kept, ...]:
    """The window that is done with place r, if there is one, counted from the first place of all."""
    steps = ring.steps
    w = (r - steps.reach + 1) // steps.ins
    if w < 0 or w * steps.ins + steps.reach - 1 != r:
        return ()
    if not ring.grouped:
        return ((w, NEW, NEW if steps.taps == 1 else w % ring.overlap),)
    slot = w % ring.overlap
    return ((w, slot, ring.overlap if _shared(ring, r)[1] else slot),)


def wanted(ring: Ring, r: int) -> bool:
    """Whether place r is in a window."""
    return bool(kept(ring, r) or done(ring, r))


def _holding(ring: Ring, r: int) -> list[int]:
    """The windows that hold place r, of those that keep all to themselves."""
    steps = ring.steps
    first = max(0, -(-(r - steps.reach + 1) // steps.ins))
    return [w for w in range(first, r // steps.ins + 1) if (r - w * steps.ins) % steps.apart == 0]


def _shared(ring: Ring, r: int) -> tuple[int, int]:
    """The group of windows that are being done at place r, and how far behind the place that they
    share it is.
    """
    ins, n = ring.steps.ins, ring.overlap
    group = (r - (n - 1) * ins) // (n * ins)
    behind = r - (n - 1) * ins - group * n * ins
    return group, behind if group >= 0 else -1
