"""Windows along an axis whose positions come one after the other: what is kept of them, and for how
long.

Windows of which many overlap are done in groups that all share one position. What comes before it
is kept window by window, from there backwards; what comes behind is one running maximum (van Herk,
"A fast algorithm for local minimum and maximum filters on rectangular and octagonal kernels",
1992). So as many lines are kept as windows overlap, and a result takes three maxima however long
its window is. Other windows are kept one by one until their last position.
"""

from __future__ import annotations

from dataclasses import dataclass

from cubepy.kernels.windows.rows_gpu import Steps

NEW = -1  # the position that has just come, among what is kept


@dataclass(frozen=True)
class SlidingWindow:
    """Windows along an axis, of every `hop`-th position. `ahead` of them are done by code that is
    written out; with `looped`, as often as is wanted.
    """

    steps: Steps
    ahead: int
    looped: bool
    hop: int = 1

    @property
    def grouped(self) -> bool:
        """Whether windows are done in groups."""
        return self.steps.spacing == 1 and self.steps.taps > max(3, 2 * self.steps.ins)

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
        """Positions before those of the code that is repeated."""
        return max(0, self.steps.reach - self.steps.ins)

    @property
    def again(self) -> bool:
        """Whether the code that is repeated also takes in the positions before its own, in a turn
        that gives nothing.
        """
        return self.looped and 2 * self.lead > self.ahead * self.steps.ins

    @property
    def positions(self) -> range:
        """Positions of the code that is repeated."""
        end = self.lead + self.ahead * self.steps.ins
        return range(
            self.lead, end if self.looped else (self.ahead - 1) * self.steps.ins + self.steps.reach
        )


def overlap(steps: Steps) -> int:
    """Windows that reach over the same position."""
    return (steps.reach - 1) // steps.ins + 1


Kept = tuple[int, int, int]
"""Where the larger of two goes: a slot, or which window is done; slots or NEW (twice the same: no
larger one).
"""


def kept(sliding: SlidingWindow, r: int) -> tuple[Kept, ...]:
    """What to do with position r before windows are done."""
    steps, n = sliding.steps, sliding.overlap
    if not sliding.grouped:
        inside = [w for w in _holding(sliding, r) if r != w * steps.ins + steps.reach - 1]
        return tuple((w % n, NEW, NEW if r == w * steps.ins else w % n) for w in inside)
    slot, found = r // steps.ins % n, []
    begins = r % steps.ins == 0
    if slot < n - 1:
        found.append((slot, NEW, NEW if begins else slot))
    elif begins:  # the position that a group shares
        found.append((slot, NEW, NEW))
        found += [(v, v, v + 1) for v in range(n - 2, -1, -1)]
    _, behind = _shared(sliding, r)
    if 1 <= behind <= steps.taps - 1:
        found.append((n, NEW, NEW if behind == 1 else n))
    return tuple(found)


def done(sliding: SlidingWindow, r: int) -> tuple[Kept, ...]:
    """The window that is done with position r, if there is one, counted from the first position
    of all.
    """
    steps = sliding.steps
    w = (r - steps.reach + 1) // steps.ins
    if w < 0 or w * steps.ins + steps.reach - 1 != r:
        return ()
    if not sliding.grouped:
        return ((w, NEW, NEW if steps.taps == 1 else w % sliding.overlap),)
    slot = w % sliding.overlap
    return ((w, slot, sliding.overlap if _shared(sliding, r)[1] else slot),)


def wanted(sliding: SlidingWindow, r: int) -> bool:
    """Whether position r is in a window."""
    return bool(kept(sliding, r) or done(sliding, r))


def _holding(sliding: SlidingWindow, r: int) -> list[int]:
    """The windows that hold position r, of those that keep all to themselves."""
    steps = sliding.steps
    first = max(0, -(-(r - steps.reach + 1) // steps.ins))
    return [w for w in range(first, r // steps.ins + 1) if (r - w * steps.ins) % steps.spacing == 0]


def _shared(sliding: SlidingWindow, r: int) -> tuple[int, int]:
    """The group of windows that are being done at position r, and how far behind the position that
    they share it is.
    """
    ins, n = sliding.steps.ins, sliding.overlap
    group = (r - (n - 1) * ins) // (n * ins)
    behind = r - (n - 1) * ins - group * n * ins
    return group, behind if group >= 0 else -1
