"""A launch that was seen before: what is known of it, so that only addresses and numbers are new; and
the memory rules of a launch: outputs can be written, and have bytes in common with nothing but
themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.compiler.program import Program
from cubepy.errors import AliasError, ReadOnlyError
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.spans import ARRAYS, beginning, extent, folded, interleaved, same

EMPTY = (0, 0)
Positions = tuple[tuple[int, int], ...]
Conversions = tuple[tuple[int, Callable[[Any], Any]], ...]


class Prepared:
    """A launch seen before: its runner, where its leaves are, and how to check their memory."""

    __slots__ = (
        "converted",
        "executable",
        "fresh",
        "guard",
        "holds",
        "in_place",
        "leaves",
        "outputs",
        "quick",
        "ranges",
        "runner",
        "simple",
        "tried",
    )

    def __init__(
        self,
        executable: Any,
        runner: Any,
        outputs: tuple[int, ...],
        ranges: list[Any],
        in_place: bool,
        simple: Positions | None,
        converted: Conversions = (),
    ) -> None:
        self.executable, self.runner, self.in_place = executable, runner, in_place
        self.outputs, self.ranges, self.simple = outputs, ranges, simple
        self.converted = converted if simple is not None else ()
        self.guard = executable.program.guard
        self.holds = None if self.guard is None else self.guard.holds
        self.quick: Any = None
        self.leaves: list[Any] | None = (
            None  # those of the launch that it was made for, until that runs
        )
        self.tried: set[Any] = set()  # keys of launches that it was tried to repeat by machine code
        self.fresh = simple is not None and not in_place and hasattr(runner, "quick")

    def exact(self, values: tuple) -> tuple:
        """The arguments with numbers as their parameters' dtypes have them.

        Raises:
            DTypeError: a number that its parameter cannot hold.
        """
        exact = list(values)
        for i, convert in self.converted:
            exact[i] = convert(exact[i])
        return tuple(exact)

    def write_quick(self) -> None:
        """The launch came again: it is worth a function of its own, where the runner makes them."""
        if getattr(self.runner, "trials", 0):
            return  # it is not known yet how it runs
        self.fresh = False
        self.quick = self.runner.quick(self.simple, self.outputs, self.ranges)


def outputs_of(program: Program, leaves: list[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """Which leaves are outputs, and the extent of every array; tensor maps are not looked at.

    Raises:
        AliasError: an output with elements that share bytes, as a stretched axis has.
    """
    for i in program.written:
        out = leaves[i]
        if folded(out) and (out.writeable if type(out) is DeviceArray else out.flags.writeable):
            raise AliasError(
                f"{program.name} writes {str(program.arguments[i].path)!r}, whose elements have "
                f"bytes in common: it has the shape {tuple(leaves[i].shape)} and strides of "
                f"{tuple(leaves[i].strides)} bytes",
                hint="pass an array whose elements are apart, as a copy is",
            )
    return program.written, [extent(v) if isinstance(v, ARRAYS) else None for v in leaves]


def works_in_place(program: Program, leaves: list[Any]) -> bool:
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


def check(prepared: Prepared, leaves: list[Any], launcher: Any) -> bool:
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


def _name(prepared: Prepared, operand: int) -> str:
    return str(prepared.executable.program.arguments[operand].path)
