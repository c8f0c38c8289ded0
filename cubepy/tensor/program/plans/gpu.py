"""A program's call on a GPU: one block of memory for numbers and all that is in between, and what
machine code launches, as a graph where the same memory comes again.

Most calls of a loop use the memory of the call before, or of the one before that. So that their
graphs can be launched again, as much as possible lies in one block: the numbers of the call, small
arguments, which are copied into it, what is in between, and small results, which are copied out.
What a call gives to tensors from outside (parameters, states of optimizers) is another block, which
is free again when it is given anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.device import Device, gpu_of
from cubepy.runtime.memory.device_array import DeviceArray, empty, upload
from cubepy.runtime.memory.layout import layout_of
from cubepy.runtime.memory.spans import beginning, extent, meet
from cubepy.runtime.replay.gpu import LINE as BITS
from cubepy.runtime.replay.gpu import settler
from cubepy.runtime.replay.plan import Plan
from cubepy.runtime.replay.record import Launch, Mark, Recorder
from cubepy.runtime.tensor_map import ArrayMap
from cubepy.tensor.program.plans.arena import Buffer, Lifetime, planned, rounded
from cubepy.tensor.program.plans.operands import ProgramOperands, Result

LINE = 256
"""Bytes that arrays of the block begin at a multiple of, as memory of the pool does."""
SMALL = 1 << 16
"""Bytes of results that are copied out of the block."""
BROUGHT = 1 << 20
"""Bytes of arguments that are copied into it."""
FEW = 8
"""Launches that are no graph: to copy an argument takes as long as two of them."""
LEAST = 1 << 17
"""Bytes of a block, so that it does not take turns with the memory of small arrays."""
NUMBER = 16
"""Bytes that numbers begin at a multiple of."""


class Numbers:
    """The numbers of a call, side by side.

    Args:
        device: the GPU.
        arrays: of the host, as they are in some call.

    Attributes:
        size: bytes of all.
    """

    def __init__(self, device: Device, arrays: Sequence[np.ndarray]) -> None:
        self.sizes = [rounded(a.nbytes, NUMBER) for a in arrays]
        self.size, self.device = sum(self.sizes), device
        self.layout = layout_of((self.size,), None, np.dtype(np.uint8), device)

    def packed(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The bytes of the block."""
        parts = [a.tobytes().ljust(size, b"\0") for a, size in zip(arrays, self.sizes, strict=True)]
        return np.frombuffer(b"".join(parts), np.uint8)

    def block(self, arrays: Sequence[np.ndarray]) -> DeviceArray:
        """New memory with the numbers of a call."""
        return upload(self.packed(arrays), self.device)

    def views(self, block: DeviceArray, arrays: Sequence[np.ndarray]) -> list[DeviceArray]:
        """The numbers as arrays of the block."""
        found, at = [], block.address
        for array, size in zip(arrays, self.sizes, strict=True):
            layout = layout_of(array.shape, None, array.dtype, self.device)
            found.append(DeviceArray(at, layout, block.owner))
            at += size
        return found

    def put(self, frame: Any, arrays: Sequence[np.ndarray]) -> None:
        """Write the numbers of a call to the beginning of its block."""
        target = DeviceArray(frame.address, self.layout, frame)
        gpu_of(self.device).upload(target, self.packed(arrays))


class GpuProgram(ProgramOperands):
    """The arrays of a program's call on a GPU: inputs, memory of large results, the block.

    Args:
        calls: which has recorded one.
        outputs: what that gave.

    Attributes:
        few: whether the launches are no graph.
        memory: bytes of the memory of large results; of a few launches small ones are one of them.
        small: bytes of small results of others.
        together: which memory small results of a few launches are in.
        brought: where inputs that are copied into the block are there.

    Raises:
        Unsuitable: something that no launch wrote is read, or given.
    """

    def __init__(self, calls: GpuCalls, outputs: Sequence[Any]) -> None:
        self.calls, self.device, inputs = calls, calls.device, calls.arrays
        self.gpu, self.ordinal = gpu_of(self.device), self.device.ordinal
        super().__init__(self.gpu.replays(self.ordinal), calls.recorded, inputs)
        self.write_inputs(calls.in_place)
        states, numbers = calls.states, calls.numbers
        self.few = len(self.recorded.steps) <= FEW
        brought = [] if self.few else calls.brought
        self.kept = [a for a in self.kept if type(a) is DeviceArray]
        found = (((a.address | BITS + 1) & -(a.address | BITS + 1)) - 1 for a in inputs)
        self.lines = [(n, 0, bits) for n, bits in enumerate(found) if n not in brought]
        self.numbers = None if numbers is None else numbers[0]
        buffers = self.buffers(() if numbers is None else (numbers[1],))
        self.memory: list[int] = []
        self.small, self.together = 0, -1
        mine: dict[int, tuple[int | None, int]] = {}  # buffer -> which memory, where in it
        made = {
            n: self.known(outputs[n]) or self.made(outputs[n], buffers, mine, n in states)
            for n in sorted(range(len(outputs)), key=lambda n: n not in states)
        }
        self.outputs = [made[n] for n in range(len(outputs))]
        between = [b for at, b in buffers.items() if at not in mine]
        offsets, size = planned(between, LINE)
        at = rounded(self.numbers.size if self.numbers else 0, LINE)
        self.brought: dict[int, int] = {}  # input -> where it is in the block
        for n in brought:
            self.brought[n] = at
            at += rounded(inputs[n].nbytes, LINE)
        self.begin_small, first = at, at + self.small
        self.lifetimes = [
            Lifetime(first + o, b.size, b.first, b.last)
            for b, o in zip(between, offsets, strict=True)
        ]
        self.arena, frame = first + size, len(inputs) + len(self.memory)
        if self.memory and states:
            self.memory[0] = max(LEAST, self.memory[0])
        if self.arena:
            self.arena = max(LEAST, self.arena)
        if numbers is not None:
            at = numbers[1].address
            self.read_only.add(at)
            self.spans.append((at, at + numbers[0].size, frame, at))
        for n, offset in self.brought.items():
            start, behind, _, at = self.spans[n]
            self.spans[n] = start, behind, frame, at - offset
        for at, (which, offset) in mine.items():
            b = buffers[at]
            operand = frame if which is None else len(inputs) + which
            offset += self.begin_small if which is None else 0
            self.spans.append((b.start, b.start + b.size, operand, b.start - offset))
        for b, offset in zip(between, offsets, strict=True):
            self.spans.append((b.start, b.start + b.size, frame, b.start - first - offset))
        self.sort_spans()

    def buffers(self, other: Sequence[DeviceArray]) -> dict[int, Buffer]:
        """The memory that was taken and used, by address."""
        taken = {owner.address: size for owner, size in self.recorded.allocations}
        for array in (*other, *self.recorded.constants):
            if isinstance(array, DeviceArray):
                taken.pop(getattr(array.owner, "address", None), None)
        starts = sorted(taken)
        found: dict[int, Buffer] = {}
        for n, step in enumerate(self.recorded.steps):
            if isinstance(step, Mark):
                raise Unsuitable("a loop or a branch")
            leaves = step.leaves if isinstance(step, Launch) else step.arguments
            for leaf in leaves:
                array = leaf.array if isinstance(leaf, ArrayMap) else leaf
                if not isinstance(array, DeviceArray) or not array.size:
                    continue
                near = bisect_right(starts, beginning(array)) - 1
                if near < 0 or beginning(array) >= starts[near] + taken[starts[near]]:
                    continue
                at = starts[near]
                known = found.setdefault(at, Buffer(at, taken[at], n, n))
                known.last = n
        return found

    def made(
        self,
        array: Any,
        buffers: dict[int, Buffer],
        mine: dict[int, tuple[int | None, int]],
        state: bool,
    ) -> Result:
        """An output that launches wrote, with memory for it."""
        if not isinstance(array, DeviceArray):
            raise Unsuitable(f"a result that is {type(array).__name__}")
        start, (low, high) = beginning(array), extent(array)
        for at, b in buffers.items():
            if at <= start + low and start + high <= at + b.size:
                break
        else:
            raise Unsuitable("a result that no launch wrote")
        if at not in mine:
            size = rounded(b.size, LINE)
            if state:  # all of them in the first memory
                if not self.memory:
                    self.memory.append(0)
                mine[at] = 0, self.memory[0]
                self.memory[0] += size
            elif b.size <= SMALL and self.few:  # they are one memory
                if self.together < 0:
                    self.together = len(self.memory)
                    self.memory.append(0)
                mine[at] = self.together, self.memory[self.together]
                self.memory[self.together] += size
            elif b.size <= SMALL:
                mine[at] = None, self.small
                self.small += size
            else:
                mine[at] = len(self.memory), 0
                self.memory.append(b.size)
        which, offset = mine[at]
        return Result("new", which, array, offset + start - at)

    def call(
        self,
        plan: Plan,
        names: Sequence[str],
        scope: dict[str, Any],
        view: Callable[[int, str], str],
        done: Sequence[str] = (),
        reused: Any = None,
    ) -> tuple[list[str], list[str]]:
        go, table, alive = plan.table.ready()
        gpu, device, ordinal = self.gpu, self.device, self.ordinal
        graphs: Any = getattr(gpu, "graphs", None)

        def run(stream: Any, *addresses: int) -> Any:
            return go(table, stream.handle, *addresses)

        scope |= {"threads": gpu.here, "ordinal": ordinal, "use": gpu.use}
        again = graphs is not None and not self.few
        scope["run"] = graphs(ordinal, run, plan.launches) if again else run
        scope |= {"thread_stream": gpu.thread_stream, "DeviceArray": DeviceArray}
        scope |= {"alive": (alive, self.kept), "launches": plan.launches}
        wide = [f"{names[n]}.address" for n, _, bits in self.lines if bits == BITS]
        tests = [f"{names[n]}.address & {bits}" for n, _, bits in self.lines if 0 < bits < BITS]
        tests += [f"({' | '.join(wide)}) & {BITS}"] if wide else []
        made = "".join(f"r{n}, " for n in range(len(self.outputs)))
        head = ["stream = threads.streams.get(ordinal) or thread_stream(ordinal)"]
        head.append(f"if {' or '.join(['stream.capture is not None', *tests])}:")
        head += [
            f"    {made or '_'} = compute(({''.join(f'{name}, ' for name in self.calls.names)}))",
            "else:",
        ]
        lines: list[str] = []
        views: list[str] = []
        given = ["0" if n in self.brought else f"{x}.address" for n, x in enumerate(names)]
        if plan.steps:
            for n, name in [(n, x) for n, x in enumerate(names) if n not in self.brought]:
                lines += [f"o = {name}.owner", "if o.last is not stream:"]
                lines.append(f"    use(stream, o, {n in self.calls.in_place})")
        if plan.steps and self.kept:
            scope["settle"], scope["settled"] = settler(self.kept, gpu.use)
            lines += ["if settled[0] is not stream:", "    settle(stream)"]
        for k, size in enumerate((*self.memory, self.arena)):
            name = f"m{k}" if k < len(self.memory) else "frame"
            if size:
                taking, known = gpu.pool(ordinal).short_way(size, name)
                lines += taking
                scope |= known
                given.append(f"{name}.address")
        if self.numbers is not None:
            scope["put"] = self.numbers.put
            lines.append(f"put(frame, ({''.join(f'{name}, ' for name in self.calls.numbered)}))")
        scope["copy_in"] = self.copy_in
        lines += [f"copy_in(frame, {offset}, {names[n]})" for n, offset in self.brought.items()]
        if plan.steps:
            lines.append(f"code = run(stream, {', '.join(given)})")
            lines += [*done, "if code:", "    return again(code, args, kwargs)"]
            lines.append("counters.launches += launches")
        if self.small:
            lines.append("small = copied(frame)")
            begin, size = self.begin_small, self.small
            layout = layout_of((size,), None, np.dtype(np.uint8), device)

            def copied(frame: Any) -> Any:
                block = gpu.allocate(ordinal, size)
                source = DeviceArray(frame.address + begin, layout, frame)
                gpu.copy(DeviceArray(block.address, layout, block), source)
                return block

            scope["copied"] = copied
        for n, r in enumerate(self.outputs):
            if r.kind == "input":
                views.append(f"r{n} = {view(n, names[r.of])}")
            elif r.kind == "constant":
                scope[f"same{n}"] = r.array
                views.append(f"r{n} = same{n}")
            else:
                scope[f"layout{n}"] = r.array.layout
                where = "small" if r.of is None else f"m{r.of}"
                views.append(
                    f"r{n} = DeviceArray({where}.address + {r.offset}, layout{n}, {where})"
                )
        body = [*lines, *views] or ["pass"]
        return [*head, *(f"    {line}" for line in body)], []

    def copy_in(self, frame: Any, offset: int, array: DeviceArray) -> None:
        """Copy an argument into the block."""
        self.gpu.copy(DeviceArray(frame.address + offset, array.layout, frame), array)


class GpuCalls:
    """How calls of a program on a GPU are recorded.

    Args:
        device: the GPU.
        names: of the arrays of a call.
        numbers: which of them are of the host, and written to the block by every call.
        constants: which of them are the same in every call.
        arguments: which of them are arguments, and may be elsewhere in every call.
        written: which of them ops write in place.
        states: which outputs are given to tensors from outside.

    Attributes:
        inputs: names of the arrays that are operands.
        numbered: names of the numbers.
        arrays, recorded, numbers, brought, in_place: of the recorded call: its operands, its
            launches, the numbers and their memory, which operands are copied into the block, and
            which are written.
    """

    def __init__(
        self,
        device: Device,
        names: Sequence[str],
        numbers: Collection[int],
        constants: Collection[int],
        arguments: Collection[int],
        written: Collection[int],
        states: Collection[int],
    ) -> None:
        self.device, self.names, self.states = device, names, states
        self.constants, self.arguments, self.written = constants, arguments, written
        self.places = sorted(numbers)
        self.numbered = [names[n] for n in self.places]
        self.inputs: list[str] = []

    def begin(self, arrays: Sequence[Any]) -> tuple[list[Any], Recorder]:
        """The arrays of a call on the device, and what records it.

        Raises:
            Unsuitable: one is on the host, or another device.
        """
        given = list(arrays)
        fixed = {n for n, a in enumerate(given) if n in self.constants and type(a) is np.ndarray}
        mine = [n for n in range(len(given)) if n not in self.places and n not in fixed]
        if any(type(given[n]) is not np.ndarray for n in self.places):
            raise Unsuitable("a number that is not on the host")
        for n in mine:
            if type(given[n]) is not DeviceArray or given[n].device != self.device:
                raise Unsuitable("an input that is not on the GPU")
        self.arrays = disjoint([given[n] for n in mine])
        self.inputs = [self.names[n] for n in mine]
        self.in_place = [k for k, n in enumerate(mine) if n in self.written]
        if any(self.arrays[k] is not given[mine[k]] for k in self.in_place):
            raise Unsuitable("an array that is written, and shares memory with another one")
        self.brought = []
        for k, (n, array) in enumerate(zip(mine, self.arrays, strict=True)):
            given[n] = array
            if n in self.arguments and array.layout.contiguous and 0 < array.nbytes <= BROUGHT:
                self.brought.append(k)
        self.numbers: tuple[Numbers, DeviceArray] | None = None
        if self.places:
            hosts = [given[n] for n in self.places]
            numbers = Numbers(self.device, hosts)
            self.numbers = numbers, numbers.block(hosts)
            for n, view in zip(self.places, numbers.views(self.numbers[1], hosts), strict=True):
                given[n] = view
        for n in fixed:
            given[n] = upload(given[n], self.device)
        self.fixed = [given[n] for n in fixed]
        self.recorded = Recorder()
        return given, self.recorded

    def operands(self, outputs: Sequence[Any]) -> GpuProgram:
        """Where the arrays of the call were."""
        self.recorded.constants += self.fixed
        return GpuProgram(self, outputs)

    def forget(self) -> None:
        """Let go of the call that was recorded."""
        self.arrays, self.fixed, self.numbers = [], [], None
        self.recorded = Recorder()


def disjoint(arrays: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Arrays of which none shares memory with another one: as they are, or copies with the same
    strides.
    """
    found: list[DeviceArray] = []
    for array in arrays:
        if any(meet(array, other) for other in found):
            low, high = extent(array)
            raw = empty((high - low + LINE,), np.uint8, array.device)
            at = raw.address + (array.address + low - raw.address) % LINE - low
            copy = DeviceArray(at, array.layout, raw.owner)
            once = tuple([slice(None) if step else slice(1) for step in array.strides])
            copy[once] = array[once]  # what is repeated is written once
            array = copy
        found.append(array)
    return found
