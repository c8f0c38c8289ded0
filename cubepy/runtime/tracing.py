"""Whether the thread records what it launches, for whoever allocates, launches or waits (see `trace`)."""

from __future__ import annotations

import threading
from typing import Any

recording = 0
"""How many calls record now, in all threads: launches look at this before they look at the thread."""
generation = 0
"""Traces of another generation are not repeated: `changed` begins a new one."""
_here = threading.local()
_count = threading.Lock()


def current() -> Any:
    """The recorder of this thread (a `trace.Recorder`), or None."""
    return getattr(_here, "recorder", None)


def begin(recorder: Any) -> Any:
    """Let a recorder see what the thread does; gives the one that saw it before."""
    global recording
    before = current()
    _here.recorder = recorder
    with _count:
        recording += 1
    return before


def end(before: Any) -> None:
    """Go back to the recorder that was."""
    global recording
    _here.recorder = before
    with _count:
        recording -= 1


def spoil() -> None:
    """The call that records does what a trace cannot repeat."""
    if recording:
        recorder = current()
        if recorder is not None:
            recorder.spoiled = True


def changed() -> None:
    """What the library chooses from now on may differ: traces that were made before do not hold."""
    global generation
    generation += 1
