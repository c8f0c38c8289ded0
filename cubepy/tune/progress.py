"""Progress of long measurements: a bar where `rich` is installed and a person watches, lines of
text otherwise.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol, TextIO

from cubepy.config import config


class Progress(Protocol):
    """What the tuner tells while it works."""

    def start(self, title: str, steps: int) -> None:
        """A race begins, with so many candidates."""

    def step(self, name: str) -> None:
        """A candidate is prepared."""

    def finish(self, result: str) -> None:
        """The race is over."""


class Silent:
    """Says nothing."""

    def start(self, title: str, steps: int) -> None:
        """Nothing."""

    def step(self, name: str) -> None:
        """Nothing."""

    def finish(self, result: str) -> None:
        """Nothing."""


class Lines:
    """One line for each race; on a terminal the line shows the candidate at work.

    Without a stream it writes to what is standard error at that moment: programs swap and close it.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.given = stream
        self.title, self.steps, self.done, self.begin = "", 0, 0, 0.0

    @property
    def stream(self) -> TextIO:
        """Where lines go now."""
        return sys.stderr if self.given is None else self.given

    def start(self, title: str, steps: int) -> None:
        """Begin a line."""
        self.title, self.steps, self.done, self.begin = title, steps, 0, time.perf_counter()
        if not self.stream.isatty():
            self.stream.write(f"{title}: {steps} candidates ... ")
            self.stream.flush()

    def step(self, name: str) -> None:
        """Show the candidate."""
        self.done += 1
        if self.stream.isatty():
            self.stream.write(f"\r\x1b[K{self.title} [{self.done}/{self.steps}] {name}"[:160])
            self.stream.flush()

    def finish(self, result: str) -> None:
        """End the line."""
        head = f"\r\x1b[K{self.title}: " if self.stream.isatty() else ""
        self.stream.write(f"{head}{result} ({time.perf_counter() - self.begin:.1f} s)\n")
        self.stream.flush()


class Bar:
    """A bar of `rich` for each race."""

    def __init__(self, rich: Any, stream: TextIO) -> None:
        self.rich, self.stream = rich, stream
        self.display: Any = None
        self.steps = 0

    def start(self, title: str, steps: int) -> None:
        """Show a bar."""
        columns = self.rich.progress
        self.steps = steps
        self.display = columns.Progress(
            columns.TextColumn("{task.description}"),
            columns.BarColumn(),
            columns.MofNCompleteColumn(),
            columns.TimeElapsedColumn(),
            columns.TextColumn("{task.fields[note]}"),
            console=self.rich.console.Console(file=self.stream),
        )
        self.display.add_task(title, total=steps, note="")
        self.display.start()

    def step(self, name: str) -> None:
        """Move it."""
        self.display.update(self.display.task_ids[0], advance=1, note=name[:60])

    def finish(self, result: str) -> None:
        """Fill it and leave the result beside it."""
        self.display.update(self.display.task_ids[0], completed=self.steps, note=result[:80])
        self.display.stop()


def progress_for(stream: TextIO | None = None) -> Progress:
    """What suits the stream (standard error by default) and the settings."""
    where = sys.stderr if stream is None else stream
    if not config.progress or where is None:  # a program without a console has no standard error
        return Silent()
    if where.isatty():
        try:
            import rich.console  # an extra; lines do without
            import rich.progress

            return Bar(rich, where)
        except ImportError:
            return Lines(stream)
    return Lines(stream)
