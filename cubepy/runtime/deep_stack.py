"""What compiling inside a program needs: room on the stack, since the compiler recurses and its
caller may have used the stack up, and that Python's collector of cycles rests.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from cubepy.errors import NestingError

Result = TypeVar("Result")
_here = threading.local()
_collecting = threading.Lock()
_resting = 0
_collects = False


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python's collector of cycles rest, in all threads: a trace of a program, a walk over a
    kernel and its way to machine code make tens of thousands of objects that live as long as that
    takes, for which it would look at all objects of the process again and again.
    """
    global _resting, _collects
    with _collecting:
        if not _resting:
            _collects = gc.isenabled()
            gc.disable()
        _resting += 1
    try:
        yield
    finally:
        with _collecting:
            _resting -= 1
            if not _resting and _collects:
                gc.enable()


def with_room(work: Callable[[], Result]) -> Result:
    """What `work` gives; where it meets Python's recursion limit, it runs again on the empty stack
    of a new thread.

    Raises:
        NestingError: an empty stack does not hold it either.
    """
    nested = getattr(_here, "working", False)
    _here.working = True
    try:
        return work()
    except RecursionError:
        if nested:  # the caller is another compilation, which starts again as a whole
            raise
    finally:
        _here.working = nested
    try:
        return _in_a_thread(work)
    except NestingError:
        raise
    except RecursionError:
        raise NestingError("the kernel nests too deeply to be compiled") from None


def _in_a_thread(work: Callable[[], Result]) -> Result:
    found: list[Any] = []
    failed: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        _here.working = True
        try:
            found.append(context.run(work))
        except BaseException as error:  # whatever it is, it is the caller's
            failed.append(error)

    thread = threading.Thread(target=run, name="cubepy-compiler", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    result: Result = found[0]
    return result
