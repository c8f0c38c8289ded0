"""Whether the thread records what it launches, for whoever allocates, launches or waits (see
`replay`).
"""

from __future__ import annotations

import threading
from typing import Any

from cubepy.config import on_change

active = 0
"""How many calls record now, in all threads: launches look at this before they look at the thread.
"""
detours = 0
"""How many reasons there are, in all threads, to repeat no call from a table of the host: somebody
records, profiles or forces a routine."""
generation = 0
"""Traces of another generation are not repeated: `changed` begins a new one."""
settings = 0
"""What is recorded on the host while this changes is not kept."""
tables: list[dict[Any, Any]] = []
"""Tables of calls on the host, emptied when what they hold may be done in another way."""
_here = threading.local()
_count = threading.Lock()


def current() -> Any:
    """The recorder of this thread (a `Recorder`), or None."""
    return getattr(_here, "recorder", None)


def begin(recorder: Any) -> Any:
    """Let a recorder see what the thread does; gives the one that saw it before."""
    global active, detours
    before = current()
    _here.recorder = recorder
    with _count:
        active += 1
        detours += 1
    return before


def end(before: Any) -> None:
    """Go back to the recorder that was."""
    global active, detours
    _here.recorder = before
    with _count:
        active -= 1
        detours -= 1


def detour(steps: int) -> None:
    """From here on (1), or no longer (-1), no call is repeated from a table of the host."""
    global detours
    with _count:
        detours += steps


def spoil() -> None:
    """The call that records does what a trace cannot repeat."""
    if active:
        recorder = current()
        if recorder is not None:
            recorder.spoiled = True


def judged(flag: Any) -> None:
    """The call goes on because the last launch left its flag (an int64 that was zero before) as it
    was: a repetition must look at its own."""
    if active:
        recorder = current()
        if recorder is not None:
            recorder.judged(flag)


def changed() -> None:
    """What the library chooses from now on may differ: traces that were made before do not hold."""
    global generation
    generation += 1
    forget()


def forget() -> None:
    """Empty the tables of calls on the host: a setting has another value."""
    global settings
    settings += 1
    for table in tables:
        table.clear()


on_change.append(forget)
