"""A ring of stages in shared memory, as a struct: who fills it, who reads it, and where each of them is.

The words are CUTLASS's. A producer `acquire`s a stage, starts the copies into it, and goes on with `commit`; a consumer
`wait`s for a stage, reads it, and gives it back with `release`. Each of them walks the ring with a `Stage` of its own.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.matmul_ring import next_slot


@cb.struct
class Stage:
    """Where a producer or a consumer is in a ring of `stages` stages.

    `full` and `empty` are barriers with one count a stage: the copies have come, and the reads are done. `phase`
    changes with every round.
    """

    full: Any
    empty: Any
    slot: Any
    phase: Any
    stages: cb.Comptime[int]

    def acquire(self, nbytes):
        """Wait until the stage may be filled; so many bytes of copies will come to `full`."""
        cb.barrier_wait(self.empty, self.slot, 1 - self.phase)
        cb.barrier_expect(self.full, self.slot, nbytes)

    def commit(self):
        """The next stage, while the copies into this one are under way."""
        return self.next()

    def wait(self):
        """Wait until the stage is full."""
        cb.barrier_wait(self.full, self.slot, self.phase)

    def release(self, leader):
        """The next stage; this one may be filled again when the `leader` of every group of readers was here."""
        if leader:
            cb.barrier_arrive(self.empty, self.slot)
        return self.next()

    def next(self):
        """The stage after this one."""
        slot, phase = next_slot(self.slot, self.phase, self.stages)
        return Stage(self.full, self.empty, slot, phase, self.stages)
