"""Launches of a program as graphs: where the same memory comes again, they are one launch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from cubepy.backends.gpu.native.driver import Context
from cubepy.backends.gpu.native.graph import Capture, NativeGraph
from cubepy.errors import LaunchError, OutOfMemoryError
from cubepy.runtime.tables import room

LEAST = 3
"""Launches that are worth a graph."""
GRAPHS = 8
"""Graphs that a program keeps: memory takes turns."""
SEEN = 64
"""Addresses that are remembered, to know whether they come again."""
WASTED = 32
"""Graphs that were made and hardly launched, after which no more are made."""


class PlanGraphs:
    """Runs the launches of a plan: the first time as they are, and again as a graph.

    Args:
        where: the GPU.
        run: a function of a stream and addresses that launches, and gives a code that is not 0
            where something went wrong.
        launches: how many there are.

    Attributes:
        graphs: by addresses, the latest last.
        captured: how many were made.
        why: why the last one could not be made; empty if none failed.
        replayed: how often one was launched.
    """

    def __init__(self, where: Context, run: Callable[..., Any], launches: int) -> None:
        self.context, self.run, self.few = where, run, launches < LEAST
        self.graphs: OrderedDict[tuple[int, ...], NativeGraph] = OrderedDict()
        self.seen: dict[tuple[int, ...], None] = {}
        self.captured, self.replayed, self.why = 0, 0, ""
        self.lock = threading.Lock()

    def __call__(self, stream: Any, *addresses: int) -> Any:
        graph = self.graphs.get(addresses)
        if graph is None:
            return self.other(stream, addresses)
        graph.launch(stream)
        self.replayed += 1
        return 0

    def other(self, stream: Any, addresses: tuple[int, ...]) -> Any:
        """Memory for which there is no graph."""
        if self.few or (self.captured > WASTED and self.replayed < 4 * self.captured):
            return self.run(stream, *addresses)
        if addresses not in self.seen or not self.lock.acquire(blocking=False):
            room(self.seen, SEEN)
            self.seen[addresses] = None
            return self.run(stream, *addresses)
        try:
            graph = self.capture(addresses)
            if graph is not None:
                graph.launch(stream)
                self.graphs[addresses] = graph
                while len(self.graphs) > GRAPHS:
                    self.graphs.popitem(last=False)
                return 0
        except (LaunchError, OutOfMemoryError) as error:  # the launches do without a graph
            self.why = str(error)
        finally:
            self.lock.release()
        return self.run(stream, *addresses)

    def capture(self, addresses: tuple[int, ...]) -> NativeGraph | None:
        """A graph of the launches; None where something went wrong."""
        capture, code = Capture(self.context), 1
        self.captured += 1
        capture.begin()
        try:
            code = self.run(capture.stream, *addresses)
        finally:
            graph = capture.end(bool(code))
        return graph
