"""Counters of what the runtime did, and the profiler."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace

from cubepy.runtime import recording
from cubepy.runtime.notebook import preformatted


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


@dataclass
class Timing:
    """Calls of one kernel and the seconds that they took."""

    calls: int = 0
    seconds: float = 0.0


@dataclass
class Profile:
    """Time by kernel, collected inside `with cb.profile() as p`; printing it shows a table."""

    kernels: dict[str, Timing] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, name: str, seconds: float) -> None:
        """Count one launch."""
        t = self.kernels.setdefault(name, Timing())
        t.calls += 1
        t.seconds += seconds

    def _repr_html_(self) -> str:
        return preformatted("kernels by time", str(self))

    def __str__(self) -> str:
        rows = sorted(self.kernels.items(), key=lambda kv: -kv[1].seconds)
        total = sum(t.seconds for _, t in rows)
        width = max([len(n) for n, _ in rows] + [6])
        lines = [f"{'kernel':<{width}}  {'calls':>7}  {'ms':>10}  {'us/call':>9}  {'share':>6}"]
        for name, t in rows:
            lines.append(
                f"{name:<{width}}  {t.calls:>7}  {t.seconds * 1e3:>10.3f}  "
                f"{t.seconds / t.calls * 1e6:>9.2f}  {t.seconds / total if total else 0:>6.1%}"
            )
        lines.append(f"kernels {total * 1e3:.3f} ms of {self.seconds * 1e3:.3f} ms")
        return "\n".join(lines)


active: list[Profile] = []


@contextlib.contextmanager
def profile() -> Iterator[Profile]:
    """Measure every launch of the block, in all threads.

    Example:
        >>> with profile() as p:
        ...     pass
        >>> print(str(p).splitlines()[0])
        kernel    calls          ms    us/call   share
    """
    p = Profile()
    active.append(p)
    recording.detour(1)
    start = time.perf_counter()
    try:
        yield p
    finally:
        p.seconds = time.perf_counter() - start
        active.remove(p)
        recording.detour(-1)
