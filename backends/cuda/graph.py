"""Graphs: work of streams recorded once by the driver, and run again as one launch."""

from __future__ import annotations

from ctypes import byref, c_int, c_size_t, c_void_p

from cubepy.backends.cuda import driver
from cubepy.backends.cuda.driver import Context, api, check, context
from cubepy.backends.cuda.memory import Arena, pool, with_room
from cubepy.backends.cuda.stream import NativeStream, all_streams, set_thread_stream, thread_stream
from cubepy.errors import LaunchError
from cubepy.runtime.order import Tracked, order

_RELAXED = 2
_KERNEL = 0


class Capture:
    """Work of this thread on one GPU, recorded instead of run.

    Attributes:
        stream: where the thread's work goes meanwhile.
        arena: the memory that is allocated meanwhile.
        kept: the memory that the recorded work uses, what of the capture uses it, and whether it is written.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self.context: Context = context(ordinal)
        self.stream = NativeStream(self.context, blocking=False)
        self.kept: dict[int, tuple[Tracked, Tracked, bool]] = {}
        self.arena = Arena(pool(ordinal))
        self.side = NativeStream(self.context, blocking=False)  # for copies that happen during the capture
        self._shadows: dict[int, Tracked] = {}
        self.members: list[NativeStream] = []
        self._before: NativeStream | None = None

    def begin(self) -> None:
        """Start to record.

        Raises:
            LaunchError: this thread records already.
        """
        own = thread_stream(self.context.ordinal)
        if own.capture is not None:
            raise LaunchError("this thread is recording a graph already", hint="captures do not nest")
        for other in all_streams(self.context.ordinal):
            if other.capture is None:
                self.stream.wait(other)
        with self.context.active():
            check(api().cuStreamBeginCapture_v2(self.stream.handle, _RELAXED), "starting a capture", self.stream.label)
        self.stream.capture = self
        self._before = set_thread_stream(self.context.ordinal, self.stream)

    def join(self, stream: NativeStream) -> None:
        """Record the work of another stream, too, from here on."""
        if stream.capture is None:
            event = self.stream.mark()
            stream.wait_event(event)
            stream.capture = self
            self.members.append(stream)

    def use(self, owner: Tracked, stream: NativeStream, writes: bool) -> None:
        """Order a use of memory against the others of this capture, and keep the memory as long as the graph."""
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
        made = c_void_p()
        set_thread_stream(self.context.ordinal, self._before)
        try:
            if not failed:
                for member in self.members:
                    self.stream.wait_event(member.mark())
        finally:
            for stream in (self.stream, *self.members):
                stream.capture = None
            with self.context.active():
                code = api().cuStreamEndCapture(self.stream.handle, byref(made))
        if failed:
            if made.value:
                api().cuGraphDestroy(made)
            return None
        check(code, "ending a capture", self.stream.label)
        return NativeGraph(self.context, made.value or 0, self)


@driver.until_exit
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
        made, n = c_void_p(), c_size_t()
        with where.active():
            code = with_room(where.ordinal, lambda: api().cuGraphInstantiateWithFlags(byref(made), handle, 0))
            check(code, "instantiating a graph", where.label)
            self.executable = made.value or 0
            check(api().cuGraphGetNodes(handle, None, byref(n)), "asking for the nodes of a graph", where.label)
            found = (c_void_p * max(1, n.value))()
            check(api().cuGraphGetNodes(handle, found, byref(n)), "asking for the nodes of a graph", where.label)
        self.nodes, self.kernels = n.value, 0
        for node in list(found)[: n.value]:
            kind = c_int()
            check(api().cuGraphNodeGetType(node, byref(kind)), "asking for the type of a node", where.label)
            self.kernels += kind.value == _KERNEL

    def launch(self, stream: NativeStream) -> None:
        """Run everything on a stream; does not wait for it."""
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
        self.ran = True
        with self.context.active():
            check(api().cuGraphLaunch(self.executable, stream.handle), "launching a graph", stream.label)
        if self.faults is not None:
            self.faults.pending = list(self.checks)
            stream.watched.add(self.faults)

    def __del__(self) -> None:
        if driver.usable():
            library = driver.api()
            if getattr(self, "executable", 0):
                library.cuGraphExecDestroy(c_void_p(self.executable))
            if getattr(self, "handle", 0):
                library.cuGraphDestroy(c_void_p(self.handle))
