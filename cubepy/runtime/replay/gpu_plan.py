"""Calls on a GPU that are replayed: from a trace (`trace`) to one function that does all of the
call's host work.

A trace says what a call launched, for arrays of the same layouts. When it is wanted again, a
function is written for it that takes the addresses out of the arguments, takes memory, and calls
machine code that launches everything (`backends.cuda.replay`). The function refuses what it was not
made for: other alignments, arrays that share memory in another way, a graph that is being captured;
then the long way decides.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from cubepy.errors import OutOfMemoryError
from cubepy.runtime import recording
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.generated import written
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.spans import meet
from cubepy.runtime.replay import trace as traces
from cubepy.runtime.replay.gpu_arguments import ON_GPU, TENSORS, TORCH
from cubepy.runtime.replay.host_plan import REFUSED, plain
from cubepy.runtime.replay.trace import MapPlace, Trace
from cubepy.runtime.stats import counters
from cubepy.runtime.tables import room

LIMIT = 4096
VARIANTS = 8
"""Ways of sharing memory and of alignment that are repeated for the same layouts."""


class GpuCalls:
    """Calls of one function on GPUs.

    Attributes:
        ready: by key, functions of all arguments.
    """

    def __init__(self) -> None:
        self.ready: dict[Any, Callable[..., Any]] = {}
        self.variants: dict[Any, list[Callable[..., Any]]] = {}
        tables = self.ready, self.variants
        recording.tables += tables
        weakref.finalize(self, _unlist, tables).atexit = False

    def keep(
        self, key: Any, values: Sequence[Any], out: int | None, trace: Trace, inputs: Sequence[Any]
    ) -> None:
        """Let a call that came for the third time be repeated from now on, if it can be.

        Args:
            key: of the call.
            values: its arguments.
            out: which of them is the array that it gives back, if it got one.
            trace: of the call.
            inputs: the device arrays among the arguments, in order.
        """
        if (
            trace.replays < 2
            or key in trace.tried
            or not all(type(v) in ON_GPU or plain(v) for v in values)
        ):
            return
        trace.tried.add(key)
        try:
            made = replay_of(trace, inputs, values, out)
        except (Unsuitable, OutOfMemoryError):
            return
        room(self.variants, LIMIT, self.ready)
        known = self.variants.setdefault(key, [])
        if len(known) >= VARIANTS:
            known.clear()
        known.append(made)
        self.ready[key] = made if len(known) == 1 else _any_of(tuple(known))


def _unlist(gone: tuple[dict[Any, Any], ...]) -> None:
    recording.tables[:] = [t for t in recording.tables if all(t is not g for g in gone)]


def _any_of(functions: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    def again(*values: Any) -> Any:
        for f in functions:
            result = f(*values)
            if result is not REFUSED:
                return result
        return REFUSED

    return again


def replay_of(
    trace: Trace, inputs: Sequence[DeviceArray], values: Sequence[Any], out: int | None
) -> Any:
    """A function of the arguments that does what the traced call did, or gives REFUSED with nothing
    done.

    Raises:
        Unsuitable: there is something in the call that it cannot do.
    """
    tables = getattr(trace.gpu, "replays", None)
    if tables is None or trace.bound:
        raise Unsuitable("a device without machine code for this")
    return GpuPlan(trace, inputs, tables(trace.ordinal), values, out).function()


class GpuPlan:
    """The table of a call, and the text of its function.

    Attributes:
        written: inputs that a launch writes.
        constants: memory that every repetition reads.
    """

    def __init__(
        self,
        trace: Trace,
        inputs: Sequence[DeviceArray],
        table: Any,
        values: Sequence[Any],
        out: int | None,
    ) -> None:
        self.trace, self.inputs, self.table, self.values, self.out = (
            trace,
            inputs,
            table,
            values,
            out,
        )
        self.arrays = [n for n, v in enumerate(values) if type(v) in ON_GPU]
        if len(self.arrays) != len(inputs) or (out is not None and out not in self.arrays):
            raise Unsuitable("arguments that are not all known")
        self.written = set() if out is None else {self.arrays.index(out)}
        self.constants: list[Any] = []
        gpu = trace.gpu
        taken = [gpu.allocate(trace.ordinal, 1)] * len(
            trace.sizes
        )  # nothing is launched: any address will do
        for step, runner, places in trace.recorded:
            leaves = [traces.found(p, inputs, taken) for p in places]
            wheres = [self.where(p) for p in places]
            if runner is not None:
                table.launch(runner, leaves, wheres)
                for n, _, writes in (*runner.arrays, *runner.maps):
                    if writes:
                        self.write(wheres[n])
            else:
                self.other(step, leaves, wheres)
        self.rules()

    def where(self, place: Any) -> tuple[int, int] | None:
        """Which address a place is relative to, and how far; None for what stays the same."""
        if type(place) is MapPlace:
            place = place.array
        if type(place) is tuple:
            source, offset = place[:2]
            return (source if source >= 0 else len(self.inputs) - 1 - source), offset
        if type(place) is DeviceArray:
            self.constants.append(place)
        return None

    def write(self, where: tuple[int, int] | None) -> None:
        if where is None:
            raise Unsuitable("a constant that is written")
        if where[0] < len(self.inputs):
            self.written.add(where[0])

    def other(self, step: Any, leaves: list[Any], wheres: list[Any]) -> None:
        """A copy or a fill."""
        gpu, target = self.trace.gpu, leaves[0]
        self.write(wheres[0])
        first = target.address, wheres[0]
        if step == gpu.fill:
            self.table.other("cuMemsetD8Async", [first, (leaves[1], None), (target.nbytes, None)])
        elif step == gpu.copy and leaves[1].device == target.device:
            self.table.other(
                "cuMemcpyDtoDAsync_v2",
                [first, (leaves[1].address, wheres[1]), (target.nbytes, None)],
            )
        else:
            raise Unsuitable("a copy between devices")

    def rules(self) -> None:
        """What must hold for the inputs of a repetition."""
        for n, one in enumerate(self.inputs):
            self.table.align(n, 127, one.address & 127)
            for m, other in enumerate(self.inputs[:n]):
                if meet(one, other):
                    self.table.relate(m, n, one.address - other.address)
                elif n in self.written or m in self.written:
                    self.table.apart(m, other.layout.extent, n, one.layout.extent)

    def function(self) -> Callable[..., Any]:
        """The function of all arguments."""
        trace, sizes, values, arrays = self.trace, self.trace.sizes, self.values, self.arrays
        scope: dict[str, Any] = {
            "here": trace.gpu.here,
            "ordinal": trace.ordinal,
            "REFUSED": REFUSED,
            "counters": counters,
            "DeviceArray": DeviceArray,
            "use": trace.gpu.use,
            "failed": self.table.failed,
        }
        guards = {f"valid{n}": g.valid for n, g in enumerate(trace.guards)}
        scope.update(guards)
        go, scope["table"], scope["alive"] = self.table.ready(len(self.inputs) + len(sizes))
        scope["go"] = go
        lines = [
            f"def again({', '.join(f'v{n}' for n in range(len(values)))}):",
            *(f"    if not {name}():\n        return REFUSED" for name in guards),
            "    stream = here.streams.get(ordinal)",
            "    if stream is None or stream.capture is not None:",
            "        return REFUSED",
        ]
        for k, n in enumerate(arrays):
            if type(values[n]) in TORCH:
                lines.append(f"    p{k} = v{n}.data_ptr()")
                continue
            lines.append(f"    a = v{n}" + (".storage.array" if type(values[n]) in TENSORS else ""))
            if k in self.written:
                lines += ["    if not a.writeable:", "        return REFUSED"]
            lines += [
                "    o = a.owner",
                "    if o.last is not stream:",
                f"        use(stream, o, {k in self.written})",
                f"    p{k} = a.address",
            ]
        if self.constants:
            scope["settle"], scope["settled"] = _settler(self.constants, trace.gpu.use)
            lines += ["    if settled[0] is not stream:", "        settle(stream)"]
        for n, size in enumerate(sizes):
            taking, names = trace.gpu.pool(trace.ordinal).short_way(size, f"b{n}")
            lines += [f"    {line}" for line in taking]
            scope.update(names)
        given = [
            *(f"p{k}" for k in range(len(arrays))),
            *(f"b{n}.address" for n in range(len(sizes))),
        ]
        lines += [
            f"    code = go(table, stream.handle, {', '.join(given)})",
            "    if code:",
            "        failed(code)",
            "        return REFUSED",
            f"    counters.launches += {trace.launches}",
            f"    return {self.result(scope)}",
        ]
        return written("\n".join(lines), "<repeated call on a GPU>", scope)  # type: ignore[no-any-return]

    def result(self, scope: dict[str, Any]) -> str:
        """What the function gives, as text."""
        values, arrays = self.values, self.arrays
        if self.out is not None:
            place = self.trace.results[0]
            if self.trace.several or type(place) is not tuple or place[0] < 0:
                raise Unsuitable("a result that is not the array that was given for it")
            source, target = self.inputs[place[0]], self.inputs[arrays.index(self.out)]
            same = source is target or (
                meet(source, target) and source.address + place[1] == target.address
            )
            if not same and arrays[place[0]] != self.out:
                raise Unsuitable("a result that is not the array that was given for it")
            return f"v{self.out}"
        parts = []
        wrap = next((f"v{n}.__cubepy_wrap__" for n in arrays if type(values[n]) in TENSORS), "")
        for k, place in enumerate(self.trace.results):
            if type(place) is not tuple or place[0] >= 0:
                raise Unsuitable("a result that is no new array")
            number, offset, scope[f"layout{k}"], writeable = place
            block = f"b{-1 - number}"
            address = f"{block}.address" + (f" + offset{k}" if offset else "")
            scope[f"offset{k}"] = offset
            array = f"DeviceArray({address}, layout{k}, {block}" + (
                ")" if writeable else ", False)"
            )
            parts.append(f"{wrap}({array})" if self.trace.wrapped else array)
        return f"({''.join(f'{p}, ' for p in parts)})" if self.trace.several else parts[0]


def _settler(
    constants: list[DeviceArray], use: Callable[..., None]
) -> tuple[Callable[[Any], None], list[Any]]:
    """A function that lets a stream come after what filled the constants, and which stream that was
    done for.
    """
    settled = [None]

    def settle(stream: Any) -> None:
        for array in constants:
            if array.owner.last is not stream:
                use(stream, array.owner, False)
        settled[0] = stream

    return settle, settled


def view_at(layout: Any, offset: int) -> Callable[[DeviceArray], DeviceArray]:
    """A function that gives a view_at of an array, so many bytes from its beginning."""

    def again(array: DeviceArray) -> DeviceArray:
        return DeviceArray(array.address + offset, layout, array.owner, array.writeable)

    return again
