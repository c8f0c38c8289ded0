"""Counters of what the runtime did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from cubepy.runtime.memory.pool import memory_stats


@dataclass
class Stats:
    """Counts since the process began (or since `reset`); `dict(stats)` gives them by name.

    Attributes:
        specialised: kernels understood for a new combination of comptime values, dtypes and
            layouts.
        compiled: modules that the backend's compiler translated.
        loaded: modules whose machine code came from the cache on disk.
        launches: launches of all kernels.
        ops: of tensors that were checked and chosen; repetitions of these, and programs, count as
            launches alone.
        traces: of functions that `cb.jit` has.
        retraces: those of functions that were traced before.
        plans: programs that became one call of machine code.
        calls: of programs.
        arena: bytes of the arenas of those plans.
        lengths: calls on a GPU that were worked out from calls of other lengths.
        pool_in_use, pool_reserved, pool_peak: bytes of the memory pool of the current device, when
            it was asked (see `cb.memory_stats`).
    """

    specialised: int = 0
    compiled: int = 0
    loaded: int = 0
    launches: int = 0
    ops: int = 0
    traces: int = 0
    retraces: int = 0
    plans: int = 0
    calls: int = 0
    arena: int = 0
    lengths: int = 0
    pool_in_use: int = 0
    pool_reserved: int = 0
    pool_peak: int = 0

    def reset(self) -> None:
        """Set every counter to zero."""
        for one in fields(self):
            setattr(self, one.name, 0)

    def keys(self) -> Iterator[str]:
        """The names of the counters."""
        return (one.name for one in fields(self))

    def __getitem__(self, name: str) -> int:
        if name not in self.keys():
            raise KeyError(name)
        return int(getattr(self, name))

    def __str__(self) -> str:
        return "\n".join(f"{name:<14} {self[name]:>14,}" for name in self.keys())


counters = Stats()


def stats(*, reset: bool = False) -> Stats:
    """A snapshot of the counters.

    Args:
        reset: whether they begin at zero again; the memory pool goes on as it is.

    Example:
        >>> stats().compiled >= 0
        True
        >>> sorted(dict(stats()))[:3]
        ['arena', 'calls', 'compiled']
    """
    pool: Any = memory_stats()
    found = replace(
        counters, pool_in_use=pool.in_use, pool_reserved=pool.reserved, pool_peak=pool.peak
    )
    if reset:
        counters.reset()
    return found
