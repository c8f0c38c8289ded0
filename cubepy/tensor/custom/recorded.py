"""Launches of kernels on tensors while ops are recorded: `kernel[grid](x, out)` becomes an op.

Values do not change, so a tensor that the kernel writes gets another value; memory that it shares
with others stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.errors import AliasError, CubeError, LaunchError, ReadOnlyError
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Over
from cubepy.runtime.device import as_device
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.spans import meet
from cubepy.tensor.array import apply
from cubepy.tensor.custom.arguments import Arguments, plain_grid
from cubepy.tensor.custom.launches import Given, grid_of, replaced, value_of, written
from cubepy.tensor.custom.names import name_of
from cubepy.tensor.program.observe import active
from cubepy.tensor.program.promised import sketches
from cubepy.tensor.value import located, outside


def recorded_launch(kernel: Kernel, grid: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Launch a kernel as an op of what is recorded; gives True.

    Raises:
        GradientError: it is given a tensor that needs a gradient.
        LaunchError: what a graph cannot hold, a stream, or another device.
        AliasError, ReadOnlyError: as any launch.
    """
    try:
        _recorded(kernel, grid, args, kwargs)
    except CubeError as error:
        if error.location is None:
            error.location = located(outside())
        raise
    return True


def _recorded(kernel: Kernel, grid: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    rest = dict(kwargs)
    mode, device, stream = (rest.pop(name, None) for name in ("mode", "device", "stream"))
    recorder = active.get()
    found = Arguments(kernel, args, rest, not recorder.any_gradients)
    tensors, names = found.tensors, found.names
    home = next((t.device for t in tensors if t.shape), None)
    if stream is not None or (device is not None and home not in (None, as_device(device))):
        raise LaunchError(
            f"{kernel.__name__} is launched on {'a stream' if device is None else device} while "
            "its tensors are recorded: an op runs where they are, in the order of ops",
            hint="leave stream= and device= away, or move tensors with x.to(device)",
        )
    form = plain_grid(grid)
    if isinstance(grid, Over) and grid.size == 0:
        return
    arrays = sketches([t.storage for t in tensors])
    outputs = sorted(written(kernel, grid_of(form), mode, found.given, arrays))
    if not outputs:  # it prints or asserts, and happens while tracing alone
        arrays = [t.storage.dense() for t in tensors]
        values = tuple([value_of(one, arrays, ()) for one in found.given])
        kernel.launches.launch(grid, values, {} if mode is None else {"mode": mode})
        return
    _memory(kernel, outputs, arrays, names)
    fresh = [n for n in outputs if recorder.op_of(tensors[n]) == "empty"]
    kept = [n for n in range(len(tensors)) if n not in fresh]

    def numbered(one: Given) -> Given:
        if one[0] != "input":
            return one if one[0] != "element" else ("element", kept.index(one[1]))
        n = one[1]
        return ("result", outputs.index(n)) if n in outputs else ("input", kept.index(n))

    results = [
        ("new", tensors[n].shape, tensors[n].dtype.name) if n in fresh else ("of", kept.index(n))
        for n in outputs
    ]
    made = apply(
        "launch",
        *[tensors[n] for n in kept],
        kernel=name_of(kernel),
        grid=form,
        mode=mode,
        given=tuple([replaced(one, numbered) for one in found.given]),
        results=tuple(results),
    )
    for n, new in zip(outputs, made, strict=True):
        for handle in found.handles[n]:
            handle._exchanged(new)


def _memory(
    kernel: Kernel, outputs: Sequence[int], arrays: Sequence[Any], names: dict[Any, str]
) -> None:
    """The rules that launches have for memory.

    Raises:
        ReadOnlyError: an output that cannot be written.
        AliasError: an output that overlaps another argument.
    """
    for n in outputs:
        out, name = arrays[n], names["input", n]
        if not (out.writeable if type(out) is DeviceArray else out.flags.writeable):
            raise ReadOnlyError(
                f"{kernel.__name__} writes {name!r}, which is read-only",
                hint="pass a copy, x.clone()",
            )
        for other, array in enumerate(arrays):
            if other != n and out.size and array.size and meet(out, array):
                raise AliasError(
                    f"the output {name!r} of {kernel.__name__} overlaps "
                    f"{names['input', other]!r} in memory without being exactly that argument",
                    hint="copy one of them",
                )
