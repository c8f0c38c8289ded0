"""Code that a program will need, found while its first kernels are missing.

The first run of a program may need dozens of kernels that nobody has compiled, one after the other.
When the second of them is missing, the program runs once on the side, on memory of its own, and
every launch of it ends where the code is known that it needs: other processes compile that
meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cubepy.runtime import recording

FEW = 2
"""Missing kernels from which on one looks for more."""
watching = 0
"""How many first runs there are now, in all threads: who prepares launches looks at this first."""
_here = threading.local()
_count = threading.Lock()


class FirstRun:
    """What is missing in the first run of a program.

    Args:
        on_the_side: runs it on the side.

    Attributes:
        missing: kernels that were missing until one looked for more.
        failed: why one did not see all of them.
    """

    failed: Exception | None = None

    def __init__(self, on_the_side: Callable[[], None]) -> None:
        self.on_the_side, self.missing, self.looked = on_the_side, 0, False

    def meet(self, executable: Any) -> None:
        """The run is going to need this code."""
        if self.looked or not getattr(executable, "missing", False):
            return
        self.missing += 1
        if self.missing >= FEW:
            self.looked = True
            try:
                with aside():
                    self.on_the_side()
            except (
                Exception
            ) as error:  # the real run goes on, and says what is wrong if anything is
                self.failed = error


@contextmanager
def first_run(on_the_side: Callable[[], None]) -> Iterator[None]:
    """The block is the first run of a program."""
    global watching
    before = getattr(_here, "run", None)
    _here.run = FirstRun(on_the_side)
    with _count:
        watching += 1
    try:
        yield
    finally:
        _here.run = before
        with _count:
            watching -= 1


def meet(executable: Any) -> None:
    """This thread is going to need this code."""
    run = getattr(_here, "run", None)
    if run is not None:
        run.meet(executable)


@contextmanager
def aside() -> Iterator[None]:
    """Launches of this thread do nothing in the block but to say what code they need; nothing is
    recorded, and no call that came before is repeated.
    """
    before = getattr(_here, "looks", False)
    _here.looks = True
    try:
        with recording.suspended():
            yield
    finally:
        _here.looks = before


def looks() -> bool:
    """Whether launches of this thread do nothing now."""
    return getattr(_here, "looks", False)
