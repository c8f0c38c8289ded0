"""Operands of a plan on a GPU: the addresses of its arrays, and of memory that it takes.

The function of a plan takes addresses out of arguments of any kind, orders their memory against
other streams, and takes memory from the pool. It refuses while a graph is being captured. Results
are new arrays or views of arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.device import gpu_of
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.replay.arguments import ON_GPU, TENSORS, TORCH, array_in, array_on_gpu
from cubepy.runtime.replay.plan import Operands
from cubepy.runtime.replay.record import Recorder

LINE = 127  # bits of an address by which kernels may have been chosen


def aligned_like(address: int) -> int:
    """The bits that addresses of the same alignment have in common with one: those up to its lowest
    one, so that slices at 32 beginnings are six kinds.
    """
    lowest = address & -address
    return 2 * lowest - 1 if 0 < lowest <= LINE else LINE


class GpuOperands(Operands):
    """The arrays among the arguments, then the memory that the call takes.

    Args:
        recorded, values, result: the call.
        out: which argument is the array that it gives back, if it was given one.
        symbolic: the arrays that stood for those of the arguments, if lengths were symbols.
    """

    def __init__(
        self,
        recorded: Recorder,
        values: Sequence[Any],
        result: Any,
        out: int | None,
        symbolic: list[DeviceArray] | None = None,
    ) -> None:
        self.places = [n for n, v in enumerate(values) if type(v) in ON_GPU]
        arrays = symbolic or [a for n in self.places if (a := array_on_gpu(values[n])) is not None]
        known = arrays or ([result] if type(result) is DeviceArray else [])  # it is made of nothing
        if (
            not known
            or len(arrays) < len(self.places)
            or (out is not None and out not in self.places)
        ):
            raise Unsuitable("arguments that are not all known")
        device = known[0].layout.device
        self.gpu, self.ordinal = gpu_of(device), device.ordinal
        tables = getattr(self.gpu, "replays" if symbolic is None else "symbolic_replays", None)
        if tables is None:
            raise Unsuitable("a device without machine code for this")
        self.out = None if out is None else self.places.index(out)
        self.kinds = [type(values[n]) for n in self.places]
        self.sizes = [size for _, size in recorded.allocations]
        taken = [
            (len(arrays) + k, owner.address, size)
            for k, (owner, size) in enumerate(recorded.allocations)
        ]
        given = list(enumerate(arrays))
        super().__init__(tables(self.ordinal), given, taken, recorded.constants)
        self.lines = [(n, array.address, aligned_like(array.address)) for n, array in given]

    def begin(self, scope: dict[str, Any], steps: int) -> list[str]:
        use = self.gpu.use
        scope |= {"here": self.gpu.here, "ordinal": self.ordinal, "use": use}
        scope["DeviceArray"] = DeviceArray
        lines = [
            "stream = here.streams.get(ordinal)",
            "if stream is None or stream.capture is not None:",
            "    return REFUSED",
        ]
        lines = lines if steps or self.sizes else []
        for k, (n, kind) in enumerate(zip(self.places, self.kinds, strict=True)):
            if kind in TORCH:
                lines.append(f"p{k} = values[{n}].data_ptr()")
                continue
            lines.append(f"a{k} = values[{n}]" + (".storage.array" if kind in TENSORS else ""))
            lines.append(f"p{k} = a{k}.address")
            if k in self.written:
                lines += [f"if not a{k}.writeable:", "    return REFUSED"]
            if steps:
                lines += [f"o = a{k}.owner", "if o.last is not stream:"]
                lines.append(f"    use(stream, o, {k in self.written})")
        if self.kept:
            scope["settle"], scope["settled"] = settler(self.kept, use)
            lines += ["if settled[0] is not stream:", "    settle(stream)"]
        for k, size in enumerate(self.sizes):
            taking, names = self.gpu.pool(self.ordinal).short_way(size, f"b{k}")
            lines += taking
            scope |= names
        return lines

    def passed(self) -> str:
        addresses = [f"p{k}" for k in range(len(self.places))]
        addresses += [f"b{k}.address" for k in range(len(self.sizes))]
        return ", ".join(["stream.handle", *addresses])

    def results(self, result: Any, scope: dict[str, Any]) -> list[str]:
        several = type(result) in (tuple, list)
        return [self.result(v, k, scope) for k, v in enumerate(result if several else (result,))]

    def result(self, value: Any, k: int, scope: dict[str, Any]) -> str:
        """One array of a result: new, or a view of an argument."""
        array: Any = value if type(value) is DeviceArray else array_in(value)
        position = None if array is None else self.locate(array, False)
        if position is None:
            raise Unsuitable("a result that is no new array")
        which, offset = position
        scope |= {f"layout{k}": array.layout, f"offset{k}": offset}
        start = which - len(self.places)
        if start < 0 and self.kinds[which] in TORCH:
            raise Unsuitable("a view of an array of another library")
        if start >= 0 and which not in self.written:
            raise Unsuitable("a result that no launch wrote")
        address, owner = (f"p{which}", f"a{which}.owner")
        writeable = f", a{which}.writeable" if start < 0 else ""
        if start >= 0:
            address, owner = f"b{start}.address", f"b{start}"
        address += f" + offset{k}" if offset else ""
        text = (
            f"DeviceArray({address}, layout{k}, "
            f"{owner}{writeable if array.writeable else ', False'})"
        )
        if array is value:
            return text
        wrap = next(n for n, t in zip(self.places, self.kinds, strict=True) if t in TENSORS)
        return f"values[{wrap}].__cubepy_wrap__({text})"


def settler(
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
