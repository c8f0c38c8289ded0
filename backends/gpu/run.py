"""Laying out and running launches on a GPU: one prepared block of arguments, one call of the
driver.

A parameter of a generated kernel is one 64-bit word (a tensor map: 16 of them): for an array its
pointer, its sizes and its strides (in elements); for a number its value (a float of 32 bits or less
as the 32 bits of its f32 in the low half, a float of 64 bits as its bits); at the end, when the
kernel reports faults, the address of the record for them, and that of the region that it prints to,
if it does. The driver gets the address of every
word, which was 0.5 us faster on an H200's host than one buffer with its size.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

from cubepy.backends.gpu.native import kernel_faults as faults
from cubepy.backends.gpu.native.driver_errors import WRONG_CONTEXT
from cubepy.backends.gpu.native.module import Function, check_grid
from cubepy.backends.gpu.native.stream import NativeEvent, NativeStream, thread_stream, use
from cubepy.backends.gpu.prints import prints
from cubepy.errors import LaunchError
from cubepy.lang.grid import Dim3
from cubepy.runtime.generated import written

INTEGER, F32, F64 = range(3)
MAP_WORDS = 16


class GpuRunner:
    """A launch whose block of arguments is laid out; pointers and numbers come at every run.

    The executable gives `loadable` (its code), `program`, `units`, `shared_bytes`, `cluster` (None
    or three numbers), `overlap` (whether it may begin before the launch before it has ended),
    `sites` (what can fail; empty when nothing is reported), `loose` (bits that no address may have
    set), and `whole` (what gives the variant for other addresses).
    """

    def __init__(self, exe: Any, leaves: Sequence[Any], cubes: Dim3, ordinal: int = 0) -> None:
        self._allocate(self.lay_out(exe, leaves, cubes, ordinal))
        self.unaligned: GpuRunner | None = None
        self.config: Any = self.configuration(cubes)
        self.extended: Any = None
        self.config_at: Any = None
        library: Any = self.driver.api()
        if self.config is not None:
            self.config_at = ctypes.c_void_p(ctypes.addressof(self.config))
            self.extended = library.untyped("launch_configured")
        self.many = self.driver.count() > 1
        self.native = library.untyped("launch")

    def lay_out(self, exe: Any, leaves: Sequence[Any], cubes: Dim3, ordinal: int) -> list[int]:
        """Find out what is where in the block of arguments; gives its words, without addresses and
        numbers.
        """
        self.exe, self.ordinal, self.empty = exe, ordinal, math.prod(cubes) == 0
        check_grid(cubes, exe.program.name, exe.units, exe.loadable.driver.most_units)
        function: Function = exe.loadable.on(ordinal)
        self.context = function.context
        self.driver = self.context.driver
        words: list[int] = []
        starts: list[int] = []  # where each parameter begins, in words
        self.arrays: list[
            tuple[int, int, bool]
        ] = []  # leaf, place in the block, whether it is written
        self.numbers: list[tuple[int, int, int]] = []  # leaf, place in the block, kind
        self.maps: list[tuple[int, int, bool]] = []
        for n, (value, argument) in enumerate(zip(leaves, exe.program.arguments, strict=True)):
            slot = len(words)
            if argument.mem is None:
                dtype = argument.scalar.dtype
                kind = INTEGER if not dtype.is_float else F64 if dtype.itemsize == 8 else F32
                self.numbers.append((n, slot, kind))
                words.append(0)
                starts.append(slot)
            elif argument.mem.kind == "map":
                self.maps.append((n, slot, argument.mem.name in exe.program.outputs))
                words += [0] * MAP_WORDS
                starts.append(slot)
            else:
                self.arrays.append((n, slot, argument.mem.name in exe.program.outputs))
                words += [0, *value.shape, *(s // value.itemsize for s in value.strides)]
                starts += range(slot, len(words))
        self.fault_word = len(words) if exe.sites else -1
        for _ in range(bool(exe.sites) + prints(exe.sites)):
            starts.append(len(words))
            words.append(0)
        self.starts = starts
        self.function = function
        self.cubes = cubes
        self.loose: int = exe.loose
        self.head = (ctypes.c_void_p(function.handle), *cubes, *exe.units, exe.shared_bytes)
        return words

    @classmethod
    def symbolic(cls, exe: Any, leaves: Sequence[Any], cubes: Dim3, ordinal: int) -> GpuRunner:
        """A launch of which lengths are symbols: it is laid out, but cannot run."""
        made = cls.__new__(cls)
        made.block = made.lay_out(exe, leaves, cubes, ordinal)  # type: ignore[assignment]
        made.config = made.configuration(cubes)
        return made

    def configuration(self, cubes: Dim3) -> Any:
        """The native description of a launch that no plain call can say, or None."""
        return None

    @staticmethod
    def encoded(value: Any) -> bytes:
        """The words of a tensor map.

        Raises:
            LaunchError: the vendor's GPUs have none.
        """
        raise LaunchError("only NVIDIA's GPUs have tensor maps")

    def _allocate(self, words: Sequence[int]) -> None:
        n = max(1, len(words))
        self.block = (ctypes.c_int64 * n)(*words)
        self.floats = (ctypes.c_double * n).from_buffer(self.block)
        self.singles = (ctypes.c_float * (2 * n)).from_buffer(self.block)
        start = ctypes.addressof(self.block)
        self.pointers = (ctypes.c_void_p * max(1, len(self.starts)))(
            *(start + 8 * at for at in self.starts)
        )
        self.parameters = ctypes.c_void_p(ctypes.addressof(self.pointers))

    def fill(self, leaves: Sequence[Any], stream: NativeStream) -> int:
        """Put pointers and numbers into the block, and order the launch against other users of the
        memory.

        Gives the bits that any address has set.
        """
        block, bits = self.block, 0
        for n, slot, writes in self.arrays:
            operand = leaves[n]
            block[slot] = address = operand.address
            bits |= address
            owner = operand.owner
            if owner.last is not stream:
                use(stream, owner, writes)
        for n, slot, kind in self.numbers:
            value = leaves[n]
            if kind == INTEGER:
                block[slot] = value  # ctypes keeps the low 64 bits
            elif kind == F32:
                self.singles[2 * slot] = value
            else:
                self.floats[slot] = value
        for n, slot, writes in self.maps:
            operand = leaves[n]
            words = self.encoded(operand)
            ctypes.memmove(ctypes.addressof(block) + 8 * slot, words, 8 * MAP_WORDS)
            use(stream, operand.array.owner, writes)
        return bits

    def run(self, leaves: Sequence[Any], values: tuple, stream: NativeStream | None = None) -> None:
        """Put the launch on a stream (the thread's own when none is named); does not wait
        for it.
        """
        if self.empty:
            return
        if stream is None:
            stream = thread_stream(self.driver, self.ordinal)
        if self.fill(leaves, stream) & self.loose:
            self.elsewhere(leaves).run(leaves, values, stream)
            return
        if self.fault_word >= 0:
            for at, address in enumerate(faults.of(stream).take(self.exe, stream), self.fault_word):
                self.block[at] = address
        if self.many:
            self.slow(stream)
        elif code := self._native_launch(stream):
            self.again(code, stream)

    def elsewhere(self, leaves: Sequence[Any]) -> GpuRunner:
        """The runner for arrays that are less aligned than those that this one was made for."""
        if self.unaligned is None:
            other = self.exe.whole.variant(leaves)
            self.unaligned = type(self)(other, leaves, self.cubes, self.ordinal)
        return self.unaligned

    def slow(self, stream: NativeStream) -> None:
        """Launch where the thread's context may be that of another GPU."""
        with self.context.active():
            self.context.check(self._native_launch(stream), f"launching {self.exe.program.name}")

    def _native_launch(self, stream: NativeStream) -> int:
        if self.config is None:
            return self.native(*self.head, stream.argument, self.parameters, None)  # type: ignore[no-any-return]
        self.config.stream = stream.handle
        return int(self.extended(self.config_at, self.head[0], self.parameters, None))

    def again(self, code: int, stream: NativeStream) -> None:
        """After a failed launch: once more in the right context, if that was the reason."""
        if code in WRONG_CONTEXT:
            self.slow(stream)
        else:
            self.context.check(code, f"launching {self.exe.program.name}")

    def seconds(self, run: Callable[[], None], stream: NativeStream | None = None) -> float:
        """The seconds that the device takes for a launch; waits for it."""
        stream = stream or thread_stream(self.driver, self.ordinal)
        start, stop = NativeEvent(self.context), NativeEvent(self.context)
        start.record(stream)
        run()
        stop.record(stream)
        stop.synchronize()
        return stop.seconds_since(start)

    def quick(self, sources: Any, outputs: Any, extents: Any) -> Any:
        """A function of (values, stream) that launches, or None when only the general path can."""
        return generated(self, sources, outputs, extents)

    def bound(
        self, leaves: Sequence[Any], values: tuple, stream: NativeStream | None = None
    ) -> Callable[[], None]:
        """A function that runs with these leaves, with a block of its own.

        Without a stream it uses that of the thread that calls it.
        """
        if self.empty:
            return lambda: None
        if any(leaves[n].address & self.loose for n, _, _ in self.arrays):
            return self.elsewhere(leaves).bound(leaves, values, stream)
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._allocate(list(self.block))
        twin.fill(leaves, thread_stream(self.driver, self.ordinal) if stream is None else stream)
        owners = [(leaves[n].owner, writes) for n, _, writes in twin.arrays]
        owners += [(leaves[n].array.owner, writes) for n, _, writes in twin.maps]
        if twin.fault_word >= 0 or twin.config is not None or twin.many:
            return lambda: twin.run(leaves, values, stream)
        return _quick(twin, tuple(owners), stream)


def _quick(twin: GpuRunner, owners: tuple, fixed: NativeStream | None) -> Callable[[], None]:
    """The shortest way to one launch: a comparison an array, and the driver's call."""
    native, head, parameters, ordinal = twin.native, twin.head, twin.parameters, twin.ordinal
    driver, here = twin.driver, twin.driver.here
    used = tuple([owner for owner, _ in owners])
    made: list[Any] = [(None, ())]  # the stream of the last call, and the driver's arguments for it

    def launch() -> None:
        stream = fixed or here.streams.get(ordinal) or thread_stream(driver, ordinal)
        known, arguments = made[0]
        if stream is not known:
            arguments = (*head, stream.argument, parameters, None)
            made[0] = (stream, arguments)
        for owner in used:
            if owner.last is not stream:
                for memory, writes in owners:
                    use(stream, memory, writes)
                break
        code = native(*arguments)
        if code:
            twin.again(code, stream)

    return launch


Quick = Callable[[tuple, Any], bool]


def generated(
    runner: GpuRunner,
    sources: Sequence[tuple[int, int]],
    outputs: Sequence[int],
    extents: Sequence[Any],
) -> Quick | None:
    """A function of the bound values and a stream that launches; it gives False when the general
    path must.

    It does what the general path does (pointers and numbers into the block, overlap, order between
    streams), without its loops: on an H200's host that is the difference between being slower and
    being faster than Triton.

    Args:
        runner: of the launch; one with tensor maps has no such function.
        sources: where each leaf is among the values: (argument, -1), or (argument, position in
            its tuple).
        outputs: leaves that are written.
        extents: of each leaf that is an array: first byte and one past the last, relative to its
            address.
    """
    if runner.empty or runner.fault_word >= 0 or runner.many or runner.maps:
        return None
    lines = [
        "def quick(values, stream):",
        "    if stream is None:",
        "        stream = here.streams.get(ordinal) or thread_stream(driver, ordinal)",
    ]
    for n, _, _ in runner.arrays:
        i, j = sources[n]
        lines += [
            f"    x{n} = values[{i}]" + (f"[{j}]" if j >= 0 else ""),
            f"    p{n} = x{n}.address",
        ]
    scope: dict[
        str, Any
    ] = {}  # what depends on lengths has a name: launches of one structure share the text
    arrays = [n for n, _, _ in runner.arrays]
    wrong = [f"not x{n}.writeable" for n in outputs]
    for n in outputs:
        for m in arrays:
            if m != n and extents[n][1] > extents[n][0] and extents[m][1] > extents[m][0]:
                wrong.append(f"low{n}_{m} < p{n} - p{m} < high{n}_{m}")
                scope[f"low{n}_{m}"] = extents[m][0] - extents[n][1]
                scope[f"high{n}_{m}"] = extents[m][1] - extents[n][0]
    if runner.loose and arrays:
        wrong.append(f"({' | '.join(f'p{n}' for n in arrays)}) & {runner.loose}")
    if wrong:
        lines += [f"    if {' or '.join(wrong)}:", "        return False"]
    for n, slot, writes in runner.arrays:
        lines += [
            f"    block[{slot}] = p{n}",
            f"    if x{n}.owner.last is not stream:",
            f"        use(stream, x{n}.owner, {writes})",
        ]
    for n, slot, kind in runner.numbers:
        i, j = sources[n]
        value = f"values[{i}]" + (f"[{j}]" if j >= 0 else "")
        target = {INTEGER: f"block[{slot}]", F32: f"singles[{2 * slot}]"}.get(
            kind, f"floats[{slot}]"
        )
        lines.append(f"    {target} = {value}")
    head = runner.head
    if runner.config is None:
        sizes = [f"size{k}" for k in range(1, len(head))]
        scope.update(zip(sizes, head[1:], strict=True))
        call = f"native(function, {', '.join(sizes)}, stream.argument, parameters, None)"
    else:
        lines.append("    config.stream = stream.handle")
        call = "extended(config_at, function, parameters, None)"
    lines += [
        f"    code = {call}",
        "    if code:",
        "        again(code, stream)",
        "    return True",
    ]
    scope |= {
        "here": runner.driver.here,
        "driver": runner.driver,
        "thread_stream": thread_stream,
        "ordinal": runner.ordinal,
        "block": runner.block,
        "singles": runner.singles,
        "floats": runner.floats,
        "native": runner.native,
        "function": head[0],
        "parameters": runner.parameters,
        "again": runner.again,
        "use": use,
        "keep": runner,
        "config": runner.config,
        "config_at": runner.config_at,
        "extended": runner.extended,
    }
    return written("\n".join(lines), f"<launch of {runner.exe.program.name}>", scope)  # type: ignore[no-any-return]
