"""Graphs: work of streams recorded once by the driver, and run again as one launch."""

from __future__ import annotations

import threading
from ctypes import byref, c_int, c_size_t, c_void_p

from cubepy.backends.gpu.native.driver import Context, until_exit
from cubepy.backends.gpu.native.memory import Arena, pool, with_room
from cubepy.backends.gpu.native.stream import NativeEvent, NativeStream, marks, thread_stream
from cubepy.errors import LaunchError
from cubepy.runtime.memory.hazards import Tracked, order

_RELAXED = 2
_KERNEL = 0


class Capture:
    """Work of this thread on one GPU, recorded instead of run.

    Attributes:
        stream: where the thread's work goes meanwhile.
        arena: the memory that is allocated meanwhile.
        kept: the memory that the recorded work uses, what of the capture uses it, and whether it is
            written.
    """

    def __init__(self, where: Context) -> None:
        self.context = where
        self.stream = NativeStream(self.context, blocking=False)
        self.kept: dict[int, tuple[Tracked, Tracked, bool]] = {}
        self.arena = Arena(pool(where.driver, where.ordinal))
        self.side = NativeStream(
            self.context, blocking=False
        )  # for copies that happen during the capture
        self._shadows: dict[int, Tracked] = {}
        self.members: list[NativeStream] = []
        self._before: NativeStream | None = None
        self._streams: dict[int, NativeStream] = {}  # those of the thread

    def begin(self) -> None:
        """Start to record.

        Raises:
            LaunchError: this thread records already.
        """
        where = self.context
        own = thread_stream(where.driver, where.ordinal)
        if own.capture is not None:
            raise LaunchError(
                "this thread is recording a graph already", hint="captures do not nest"
            )
        with where.whole:
            where.captures += 1
        try:
            with marks, where.active():  # nobody's event comes between the two
                code = where.driver.api().begin_capture(self.stream.handle, _RELAXED)
                self.stream.capture = self if code == 0 else None
            where.check(code, "starting a capture")
        except BaseException:
            self._over()
            raise
        self._before, self._streams = own, where.driver.here.streams
        self._streams[where.ordinal] = self.stream

    def _over(self) -> None:
        with self.context.whole:
            self.context.captures -= 1

    def join(self, stream: NativeStream) -> None:
        """Record the work of another stream, too, from here on.

        Raises:
            LaunchError: another capture records it.
        """
        with marks:
            if stream.capture is self:
                return
            if stream.capture is not None:
                raise LaunchError(
                    "the stream is being captured by another thread",
                    hint="give every thread a stream of its own",
                )
            last_event = NativeEvent(self.context, timed=False)
            last_event.record(stream)
            stream.wait_event(self.stream.mark())
            stream.last_event, stream.capture = last_event, self
            self.members.append(stream)

    def use(self, owner: Tracked, stream: NativeStream, writes: bool) -> None:
        """Order a use of memory against the others of this capture, and keep the memory as long as
        the graph.
        """
        if getattr(owner, "arena", None) is self.arena:
            shadow = self._shadows.setdefault(owner.address, Tracked())  # type: ignore[attr-defined]
        else:
            known = self.kept.get(id(owner))
            shadow = Tracked() if known is None else known[1]
            self.kept[id(owner)] = (owner, shadow, writes or (known is not None and known[2]))
        if shadow.last is not stream:
            order(shadow, stream, writes)

    def end(self, failed: bool) -> NativeGraph | None:
        """Stop to record; gives the graph, or None when the block failed."""
        assert self._before is not None
        made, api = c_void_p(), self.context.driver.api()
        self._streams[self.context.ordinal] = self._before
        try:
            if not failed:
                for member in self.members:
                    self.stream.wait(member)
        finally:
            with self.context.active():
                code = api.end_capture(self.stream.handle, byref(made))
            with marks:
                for stream in (self.stream, *self.members):
                    stream.capture = stream.last_event = None
            self._over()
        if failed or code:
            if made.value:
                api.destroy_graph(made)
            self.context.check(0 if failed else code, "ending a capture")
            return None
        return NativeGraph(self.context, made.value or 0, self)


@until_exit
class NativeGraph:
    """Recorded work that can be launched.

    Attributes:
        nodes: how many pieces of work it has.
        kernels: how many of them are kernels.
    """

    def __init__(self, where: Context, handle: int, capture: Capture) -> None:
        self.context, self.handle, self.ran = where, handle, False
        self.kept = [(owner, writes) for owner, _, writes in capture.kept.values()]
        self.arena = capture.arena
        self.faults = capture.stream.faults
        self.checks = list(self.faults.pending) if self.faults is not None else []
        self.lock = threading.Lock()  # the driver wants one launch of a graph at a time
        self.nodes, self.kernels = 0, 0
        made, n, api = c_void_p(), c_size_t(), where.driver.api()
        if handle:
            where.check(api.nodes(handle, None, byref(n)), "asking for the nodes of a graph")
        if n.value == 0:  # nothing was recorded: it is launched as nothing
            return
        with where.active():
            code = with_room(where, lambda: api.instantiate(byref(made), handle, 0))
            where.check(code, "instantiating a graph")
            self.executable = made.value or 0
            found = (c_void_p * n.value)()
            where.check(api.nodes(handle, found, byref(n)), "asking for the nodes of a graph")
        self.nodes = n.value
        for node in list(found):
            kind = c_int()
            where.check(api.node_type(node, byref(kind)), "asking for the type of a node")
            self.kernels += kind.value == _KERNEL

    def launch(self, stream: NativeStream) -> None:
        """Run everything on a stream; does not wait for it.

        Raises:
            LaunchError: the stream is being captured.
        """
        if stream.capture is not None:
            raise LaunchError(
                "a graph cannot be replayed while another one is being captured",
                hint="replay both one after the other, or capture all of the work in one graph",
            )
        if not self.nodes:
            return
        with self.lock:
            self._launch(stream)

    def _launch(self, stream: NativeStream) -> None:
        for owner, writes in self.kept:
            if owner.last is not stream:
                order(owner, stream, writes)
        for block in list(self.arena.blocks):
            if block.last is not stream:
                order(block, stream, True)
        if self.arena.home is not stream:
            if self.arena.home is not None and self.ran:
                stream.wait(self.arena.home)
            self.arena.home = stream
        if self.ran and self.faults is not None and self.faults.prints():
            self.faults.check(stream)  # the launch would clear what was said
        self.ran = True
        where = self.context
        with where.active():
            code = where.driver.api().launch_graph(self.executable, stream.handle)
            where.check(code, "launching a graph")
        if self.faults is not None:
            self.faults.pending = list(self.checks)
            stream.watched.add(self.faults)

    def __del__(self) -> None:
        driver = self.context.driver
        if driver.usable():
            library = driver.api()
            if getattr(self, "executable", 0):
                library.destroy_executable(c_void_p(self.executable))
            if getattr(self, "handle", 0):
                library.destroy_graph(c_void_p(self.handle))
