"""Counters of what the runtime did."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass
class Stats:
    """Counts since the process began (or since `reset`).

    Attributes: specialised: kernels understood for a new combination of comptime values, dtypes and
        layouts. compiled: modules that the backend's compiler translated. loaded: modules whose
        machine code came from the cache on disk. launches: launches of all kernels. traces: of
        functions that `cb.jit` has. retraces: those of functions that were traced before.
    """

    specialised: int = 0
    compiled: int = 0
    loaded: int = 0
    launches: int = 0
    traces: int = 0
    retraces: int = 0

    def reset(self) -> None:
        """Set every counter to zero."""
        for one in fields(self):
            setattr(self, one.name, 0)


counters = Stats()


def stats() -> Stats:
    """A snapshot of the counters.

    Example:
        >>> stats().compiled >= 0
        True
    """
    return replace(counters)
