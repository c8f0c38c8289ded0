"""Memory rules of a launch: outputs can be written, and have bytes in common with nothing but
themselves.
"""

from __future__ import annotations

from typing import Any

from cubepy.compiler.program import Program
from cubepy.errors import AliasError, ReadOnlyError
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.spans import ARRAYS, beginning, extent, interleaved, same

EMPTY = (0, 0)


def plan(program: Program, leaves: list[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """Which leaves are outputs, and the extent of every array; tensor maps are not looked at."""
    return program.written, [extent(v) if isinstance(v, ARRAYS) else None for v in leaves]


def in_place(program: Program, leaves: list[Any]) -> bool:
    """Whether an output is, exactly, also another argument."""
    if not program.written:
        return False
    arrays = [(j, v, beginning(v)) for j, v in enumerate(leaves) if isinstance(v, ARRAYS)]
    for i in program.written:
        out = leaves[i]
        start = beginning(out)
        for j, other, at in arrays:
            if at == start and j != i and same(out, other):
                return True
    return False


def check(prepared: Any, leaves: list[Any], launcher: Any) -> bool:
    """Refuse outputs that are read-only or overlap another argument; gives whether one is worked on
    in place.

    Raises:
        ReadOnlyError: an output that cannot be written.
        AliasError: an output that overlaps another argument without being exactly that argument.
    """
    found = False
    spans = []
    for v, r in zip(leaves, prepared.ranges, strict=True):
        if r is None:
            spans.append(EMPTY)
        else:
            at = v.address if type(v) is DeviceArray else address(v)
            spans.append((at + r[0], at + r[1]))
    for i in prepared.outputs:
        out = leaves[i]
        if not (out.writeable if type(out) is DeviceArray else out.flags.writeable):
            raise ReadOnlyError(
                f"{launcher.kernel.__name__} writes {_name(prepared, i)!r}, which is read-only",
                hint="pass a copy, or set array.flags.writeable",
            )
        low, high = spans[i]
        for j, (first, last) in enumerate(spans):
            if low < last and first < high and j != i:
                if same(out, leaves[j]):
                    found = True
                elif not interleaved(out, leaves[j]):
                    raise AliasError(
                        f"the output {_name(prepared, i)!r} of {launcher.kernel.__name__} overlaps "
                        f"{_name(prepared, j)!r} in memory without being exactly that argument",
                        hint="copy one of them",
                    )
    return found


def _name(prepared: Any, operand: int) -> str:
    return str(prepared.executable.program.arguments[operand].path)
