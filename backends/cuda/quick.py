"""The shortest way from a launch's arguments to the driver: a function written for one prepared launch.

It does what the general path does (pointers and numbers into the block, overlap, order between streams), without
its loops: on an H200's host that is the difference between being slower and being faster than Triton.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from cubepy.backends.cuda.run import F32, INTEGER, MAP_WORDS, CudaRunner, entry
from cubepy.backends.cuda.stream import per_thread, thread_stream
from cubepy.backends.cuda.tensor_maps import encoded
from cubepy.runtime.order import order
from cubepy.runtime.written import written

Quick = Callable[[tuple, Any], bool]


def make(
    runner: CudaRunner,
    places: Sequence[tuple[int, int]],
    outputs: Sequence[int],
    extents: Sequence[Any],
    apart: bool = False,
) -> Quick | None:
    """A function of the bound values and a stream that launches; it gives False when the general path must.

    Args:
        runner: of the launch.
        places: where each leaf is among the values: (argument, -1), or (argument, place in its tuple).
        outputs: leaves that are written.
        extents: of each leaf that is an array: first byte and one past the last, relative to its address.
        apart: whether the arrays of tensor maps are known not to overlap what is written.
    """
    if runner.empty or runner.fault_word >= 0 or runner.many or (runner.maps and not apart):
        return None
    lines = [
        "def quick(values, stream):",
        "    if stream is None:",
        "        stream = here.streams.get(ordinal) or thread_stream(ordinal)",
    ]
    for n, _, _ in runner.arrays:
        i, j = places[n]
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
    for n, place, writes in runner.arrays:
        lines += [
            f"    block[{place}] = p{n}",
            f"    if x{n}.owner.last is not stream:",
            f"        use(stream, x{n}.owner, {writes})",
        ]
    for n, place, kind in runner.numbers:
        i, j = places[n]
        value = f"values[{i}]" + (f"[{j}]" if j >= 0 else "")
        target = {INTEGER: f"block[{place}]", F32: f"singles[{2 * place}]"}.get(
            kind, f"floats[{place}]"
        )
        lines.append(f"    {target} = {value}")
    for n, place, writes in runner.maps:
        i, j = places[n]
        lines += [
            f"    m{n} = values[{i}]" + (f"[{j}]" if j >= 0 else ""),
            f"    move(start + {8 * place}, encoded(m{n}), {8 * MAP_WORDS})",
            f"    if m{n}.array.owner.last is not stream:",
            f"        use(stream, m{n}.array.owner, {writes})",
        ]
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
        "here": per_thread,
        "thread_stream": thread_stream,
        "ordinal": runner.ordinal,
        "block": runner.block,
        "singles": runner.singles,
        "floats": runner.floats,
        "native": runner.native,
        "function": head[0],
        "parameters": runner.parameters,
        "again": runner.again,
        "use": _use,
        "keep": runner,
        "config": runner.config,
        "config_at": getattr(runner, "config_at", None),
        "extended": entry("cuLaunchKernelEx"),
        "move": ctypes.memmove,
        "start": ctypes.addressof(runner.block),
        "encoded": encoded,
    }
    return written("\n".join(lines), f"<launch of {runner.exe.program.name}>", scope)  # type: ignore[no-any-return]


def _use(stream: Any, owner: Any, writes: bool) -> None:
    if stream.capture is None:
        order(owner, stream, writes)
    else:
        stream.capture.use(owner, stream, writes)
