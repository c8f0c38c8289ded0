"""The profiler: time by kernel, by op of tensors and by the user's line."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, overload

from cubepy.errors import ArgumentError
from cubepy.runtime import recording
from cubepy.runtime.cache import write_atomically
from cubepy.runtime.notebook import preformatted

MOST_EVENTS = 200_000
"""Calls that are kept one by one; later ones are only counted."""
MOST_ROWS = 30
"""Ops that the text shows."""


@dataclass
class Timing:
    """Calls of one kernel or op and the seconds that they took.

    Attributes:
        calls: how many.
        seconds: what they took together; of kernels on a GPU what the device took, of ops what
            passed on the host, which waits for their kernels.
        launched: of an op, the seconds of its kernels.
    """

    calls: int = 0
    seconds: float = 0.0
    launched: float = 0.0

    def add(self, other: Timing) -> None:
        """Count what another one counted."""
        self.calls += other.calls
        self.seconds += other.seconds
        self.launched += other.launched


class Event(NamedTuple):
    """One call.

    Attributes:
        name: of the kernel or op.
        kind: "kernel" or "op".
        start: seconds since the profile began.
        seconds: what it took.
        thread: which thread asked for it.
        line: of an op, "file:line" of the user's code that asked for it.
    """

    name: str
    kind: str
    start: float
    seconds: float
    thread: int
    line: str


@dataclass
class Profile:
    """Time by kernel and op, collected inside `with cb.profile() as p`; printing it shows tables.

    Attributes:
        kernels: by name.
        ops: of tensors, by name and the user's "file:line".
        events: the calls one by one.
        seconds: of the whole block.
        result: what a function gave that was profiled.
    """

    kernels: dict[str, Timing] = field(default_factory=dict)
    ops: dict[tuple[str, str], Timing] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    seconds: float = 0.0
    result: Any = None

    def __post_init__(self) -> None:
        self.began = time.perf_counter()
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        """Count one launch, which ended just now."""
        with self._lock:
            self.kernels.setdefault(name, Timing()).add(Timing(1, seconds))
            self._event(name, "kernel", seconds, "")

    def add_op(self, name: str, line: str, seconds: float, launched: float) -> None:
        """Count one op, which ended just now."""
        with self._lock:
            self.ops.setdefault((name, line), Timing()).add(Timing(1, seconds, launched))
            self._event(name, "op", seconds, line)

    def _event(self, name: str, kind: str, seconds: float, line: str) -> None:
        if len(self.events) < MOST_EVENTS:
            start = time.perf_counter() - self.began - seconds
            self.events.append(Event(name, kind, start, seconds, threading.get_ident(), line))

    def by_op(self) -> dict[str, Timing]:
        """The ops by their names."""
        return self._by(0)

    def by_line(self) -> dict[str, Timing]:
        """The ops by the user's lines."""
        return self._by(1)

    def _by(self, part: int) -> dict[str, Timing]:
        found: dict[str, Timing] = {}
        for key, timing in self.ops.items():
            found.setdefault(key[part], Timing()).add(timing)
        return found

    def to_json(self) -> str:
        """The tables as JSON."""
        kernels = [
            {"kernel": name, "calls": t.calls, "seconds": t.seconds}
            for name, t in self.kernels.items()
        ]
        ops = [
            {
                "op": op,
                "line": line,
                "calls": t.calls,
                "seconds": t.seconds,
                "kernel_seconds": t.launched,
            }
            for (op, line), t in self.ops.items()
        ]
        return json.dumps({"seconds": self.seconds, "kernels": kernels, "ops": ops})

    def chrome_trace(self, path: Any = None) -> str:
        """The calls one by one as chrome://tracing and Perfetto read them; also as a file.

        Args:
            path: of the file, which is whole or not there.
        """
        threads = {t: n for n, t in enumerate(dict.fromkeys(e.thread for e in self.events))}
        events = [
            {
                "name": e.name,
                "cat": e.kind,
                "ph": "X",
                "ts": e.start * 1e6,
                "dur": e.seconds * 1e6,
                "pid": 0,
                "tid": threads[e.thread],
                "args": {"line": e.line} if e.line else {},
            }
            for e in sorted(self.events, key=lambda e: e.start)
        ]
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
        if path is not None:
            write_atomically(Path(path), text.encode())
        return text

    def _repr_html_(self) -> str:
        return preformatted("kernels and ops by time", str(self))

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
        return "\n".join(lines + self._of_ops())

    def _of_ops(self) -> list[str]:
        """The table of ops."""
        if not self.ops:
            return []
        rows = sorted(self.ops.items(), key=lambda kv: -kv[1].seconds)
        width = max(len(op) for (op, _), _ in rows)
        width = max(width, 2)
        lines = [f"{'op':<{width}}  {'calls':>7}  {'ms':>10}  {'kernels ms':>10}  line"]
        for (op, line), t in rows[:MOST_ROWS]:
            lines.append(
                f"{op:<{width}}  {t.calls:>7}  {t.seconds * 1e3:>10.3f}  "
                f"{t.launched * 1e3:>10.3f}  {line}"
            )
        if len(rows) > MOST_ROWS:
            lines.append(f"... {len(rows) - MOST_ROWS} more")
        return lines


active: list[Profile] = []
_here = threading.local()


def launched() -> float:
    """The seconds of all kernels that this thread launched while somebody profiled."""
    return getattr(_here, "seconds", 0.0)


def note_launch(name: str, seconds: float) -> None:
    """A kernel of this thread was measured."""
    _here.seconds = launched() + seconds
    for p in list(active):
        p.add(name, seconds)


@contextlib.contextmanager
def _profile() -> Iterator[Profile]:
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


@overload
def profile() -> AbstractContextManager[Profile]: ...
@overload
def profile(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Profile: ...
def profile(function: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
    """Measure every launch and every op of tensors of a block, in all threads, or of one call.

    Programs of `cb.jit` run step by step meanwhile; their ops are those that they run, fused ones
    too, with the lines that asked for them. Python's time between ops is in `seconds` alone.

    Args:
        function: what to call; without one, the profile is for a `with` block.
        args, kwargs: of the function. It is called once before, so that nothing is compiled in the
            call that is measured.

    Raises:
        ArgumentError: it is no function.

    Example:
        >>> with profile() as p:
        ...     pass
        >>> print(str(p).splitlines()[0])
        kernel    calls          ms    us/call   share
        >>> profile(max, 1, 2).result
        2
    """
    if function is None:
        return _profile()
    if not callable(function):
        raise ArgumentError(
            f"cb.profile takes a function, not {type(function).__name__}",
            hint="write cb.profile(f, x, y), or `with cb.profile() as p:`",
        )
    function(*args, **kwargs)
    with _profile() as p:
        p.result = function(*args, **kwargs)
    return p
