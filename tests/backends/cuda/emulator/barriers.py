"""Barriers in shared memory that count arrivals and bytes."""

from __future__ import annotations


class Barrier:
    """An mbarrier: arrivals and bytes that its phase still waits for."""

    def __init__(self, count: int) -> None:
        self.count = self.missing = count
        self.bytes = self.phase = 0

    def update(self, arrivals: int, count: int) -> None:
        """Some arrivals came; `count` bytes more are expected, or came where negative."""
        self.missing -= arrivals
        self.bytes += count
        assert self.missing >= 0, "more arrivals than a barrier counts"
        if self.missing == 0 and self.bytes == 0:
            self.phase, self.missing = 1 - self.phase, self.count

    def passes(self, parity: int) -> bool:
        """Whether the phase of this parity has ended."""
        return self.phase != parity
