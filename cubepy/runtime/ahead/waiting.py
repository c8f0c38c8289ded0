"""One line on a terminal while kernels compile, so that a first call does not look as if it hung.

Nothing is said before half a second, nothing where nobody watches (unless CUBEPY_PROGRESS=1 asks
for it), and the line is gone when the wait is over. Calls that follow each other closely are one
wait.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from cubepy.config import config

AFTER = 0.5
"""Seconds of compiling before anything is said, and between two looks at the clock afterwards."""
CLEAR = "\r\x1b[K"


def watched(stream: TextIO | None) -> bool | None:
    """Whether a stream is a terminal that can erase a line; None where nothing is to be said at
    all.
    """
    if stream is None or config.progress is False:
        return None
    try:
        terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return None
    return terminal if terminal or config.progress is True else None


class Wait:
    """Kernels that are compiled one after the other, and the line that tells of them.

    Args:
        after: seconds of compiling before anything is said (AFTER if not given).
        stream: where it is said, if not on what is standard error at that moment.

    Attributes:
        drawn: set while the line, or one of its lines, can be seen.
    """

    def __init__(self, after: float | None = None, stream: TextIO | None = None) -> None:
        self.after, self.stream = after, stream
        self.lock = threading.Lock()
        self.drawn = threading.Event()
        self.kernel, self.count = "", 0
        self.seconds = 0.0  # of compiling, in this wait
        self.begun = self.ended = 0.0

    @contextlib.contextmanager
    def compiling(self, kernel: str) -> Iterator[None]:
        """Tell of a kernel for as long as the block takes."""
        stream = self.stream or sys.stderr
        terminal = watched(stream)
        if terminal is None:
            yield
            return
        after = AFTER if self.after is None else self.after
        over = threading.Event()
        with self.lock:
            self.begun = time.monotonic()
            if self.begun - self.ended > AFTER:
                self.kernel, self.count, self.seconds = "", 0, 0.0
            self.count += kernel != self.kernel  # a GPU's comes in two steps
            self.kernel = kernel
            first = max(0.0, after - self.seconds)
        arguments = (stream, terminal, over, first, after)
        threading.Thread(target=self.tell, args=arguments, daemon=True).start()
        try:
            yield
        finally:
            with self.lock:
                over.set()
                self.ended = time.monotonic()
                self.seconds += self.ended - self.begun
                if self.drawn.is_set() and terminal:
                    self.write(stream, CLEAR)
                self.drawn.clear()

    def tell(
        self, stream: TextIO, terminal: bool, over: threading.Event, first: float, after: float
    ) -> None:
        """Draw the line when it is time, and again while the kernel compiles."""
        wait = first
        while not over.wait(wait):
            with self.lock:
                if over.is_set() or not self.write(stream, self.line(terminal)):
                    return
                self.drawn.set()
            if not terminal:
                return
            wait = max(after, 0.1)

    def line(self, terminal: bool) -> str:
        """What is said now."""
        seconds = self.seconds + time.monotonic() - self.begun
        text = f"cubepy: compiling {self.kernel} (kernel {self.count}, {seconds:.1f} s) ..."
        if not terminal:
            return f"{text}\n"
        return CLEAR + text[: shutil.get_terminal_size().columns - 1]

    def write(self, stream: TextIO, text: str) -> bool:
        """Write at once; False where the stream is gone, which must not stop the kernel."""
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            return False
        return True


WAIT = Wait()
"""The wait of this process."""
