"""Whether the thread records what it launches, for whoever allocates, launches or waits (see
`replay`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from cubepy.config import on_change

active = 0
"""How many calls record now, in all threads: launches look at this before they look at the thread.
"""
detours = 0
"""How many reasons there are, in all threads, to repeat no call that came before: somebody
records, profiles or forces a routine."""
asked = False
"""Whether arguments of functions are asked for what they make of the call (`__cubepy_function__`):
since the first of them had reason to."""
settings = 0
"""What is recorded while this changes is not kept."""
tables: WeakSet[Any] = WeakSet()
"""Calls that are repeated (`replay.calls`), forgotten when they may be done in another way."""
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


@contextmanager
def suspended() -> Iterator[None]:
    """What the thread does within is not recorded."""
    before = begin(None)
    try:
        yield
    finally:
        end(before)


def detour(steps: int) -> None:
    """From here on (1), or no longer (-1), no call that came before is repeated."""
    global detours
    with _count:
        detours += steps


def ask() -> None:
    """Ask arguments of functions from here on."""
    global asked
    asked = True


def spoil() -> None:
    """The call that records does what no plan can repeat."""
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


def forget() -> None:
    """No call that came before is repeated: a setting has another value, or the library chooses in
    another way from now on.
    """
    global settings
    settings += 1
    for calls in tuple(tables):
        calls.clear()


on_change.append(forget)
