"""What compiling inside a program needs: room on the stack, since the compiler recurses and its
caller may have used the stack up, in one piece; and that Python's collector of cycles rests.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from cubepy.errors import NestingError

Result = TypeVar("Result")
Given = ParamSpec("Given")
WIDE = 65_600
"""Words of a frame for which Python makes a piece of 1 MiB, half of which is left for other frames:
more than a walk has.
"""
_here = threading.local()
_collecting = threading.Lock()
_resting = 0
_collects = False


def _wide(work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """`work(*args, **kwargs)`, with much room on the stack for values, of which it uses none."""
    return work(*args, **kwargs)


if sys.version_info >= (3, 11):  # before, every frame has memory of its own
    _wide.__code__ = _wide.__code__.replace(co_stacksize=WIDE)


def in_one_piece(work: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function whose frames, and those of what it calls, lie in one piece of Python's stack.

    Python takes that from the system in pieces of 16 KiB, and gives a piece back as soon as the
    first frame in it ends: a loop that calls from the end of one gets memory and gives it back in
    every turn, 5 us, and a compiler goes up and down all the time.
    """

    @wraps(work)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        return _wide(work, *args, **kwargs)

    return run


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
