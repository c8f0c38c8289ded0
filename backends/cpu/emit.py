"""Printing a program for the CPU: a loop over cubes, units inside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cubepy.backends.cpu.fission import Units, split
from cubepy.backends.cpu.own_counts import OwnCounts
from cubepy.backends.cpu.strides import turned
from cubepy.backends.llvm.copies import without_copies
from cubepy.backends.llvm.emitted import Emitted, Parameter
from cubepy.backends.llvm.names import OPS
from cubepy.backends.llvm.printing import carrier
from cubepy.backends.llvm.ranges import Sum
from cubepy.compiler.ir import Alloc, Atomic, Barrier, DebugPrint, Mem, Program, walk
from cubepy.errors import SharedMemoryError
from cubepy.runtime.deep_stack import in_one_piece

HEADER = '''"""{title}"""
from cubepy.backends.llvm.ops import *

INF = float("inf")
NAN = float("nan")

'''
RESERVED = frozenset(OPS) | {
    "first",
    "last",
    "cubes_x",
    "cubes_y",
    "cubes_z",
    "err",
    "cube",
    "cube_row",
    "row_first",
    "position",
    "position_x",
    "cube_x",
    "cube_y",
    "cube_z",
    "unit",
    "unit_x",
    "unit_y",
    "unit_z",
    "INF",
    "NAN",
    "kernel",
    "range",
}
"""Names that generated code uses, so that variables must not hide them."""


STACK_LIMIT = 4 << 20
"""Bytes that a cube may keep: threads that Python or the system makes have 8 MiB and more."""


def stack_overflow(size: int, units: int, s: Alloc) -> SharedMemoryError:
    """The error for local memory that would run over the end of a thread's stack."""
    whose = f" for {units} units of a cube, which meet at barriers," if units > 1 else ""
    return SharedMemoryError(
        f"the kernel keeps {size} bytes of local memory{whose} on a thread's stack, which has room "
        f"for {STACK_LIMIT}",
        location=s.loc,
        hint="use less of it, fewer units, or an array argument with a part for each unit",
    )


@dataclass(frozen=True)
class CpuText(Emitted):
    """Generated code for a CPU.

    Attributes:
        assumes: what sizes of arguments must fulfil, each `>= 0` (see `ranges`).
        parts: how many parts of a cube are run for themselves; the function counts these.
    """

    assumes: tuple[Sum, ...] = ()
    parts: int = 1


class CpuPrinter(OwnCounts):
    """Prints one program as a function of a range of cubes."""

    def __init__(
        self,
        program: Program,
        reserved: frozenset[str],
        denied: frozenset[Sum] | None,
        in_place: bool = False,
    ) -> None:
        super().__init__(program, reserved, denied)
        self.split = split(program)
        self.per_unit = frozenset(self.split.per_unit)
        seen = [s for s in walk(program.body) if isinstance(s, (Atomic, DebugPrint))]
        if seen and not in_place:
            self.find_counts()
        if self.units_count > 1:
            self.merge(
                any(isinstance(s, DebugPrint) or s.mem.name not in self.counted for s in seen)
            )
        # one unit a cube has nothing to divide beside, and units that may read what others write
        # are not vectorised
        self.divides_as_f64 = self.units_count > 1 and not program.outputs & program.reads
        self.locals_per_unit = program.has_barrier and self.units_count > 1

    def emit(self) -> CpuText:
        """The whole module.

        Raises:
            SharedMemoryError: a cube keeps more than a thread's stack holds.
        """
        program = self.program
        parameters = [
            Parameter(n, "i64") for n in ("first", "last", "cubes_x", "cubes_y", "cubes_z")
        ]
        parameters += [Parameter("err", "ptr", "i64"), *self.array_parameters()]
        for mem in program.shared:
            self.line(
                f'{self.var(mem.name)} = stack("{carrier(mem.dtype)}", 0, '
                f"{math.prod(mem.shape or ())})"
            )
        kept = 0  # bytes on the stack
        for name in sorted(self.per_unit):
            t = program.variables[name]
            kept += max(1, t.lanes) * t.dtype.itemsize * self.units_count
            self.line(
                f'{self.var(name)} = stack("{carrier(t.dtype)}", {t.lanes}, {self.units_count})'
            )
        for s in walk(program.body):
            if isinstance(s, Alloc):
                self.alloc(s.mem)
                times = self.units_count if self.locals_per_unit else 1
                count = math.prod(s.mem.shape or ()) * max(1, s.mem.lanes)
                kept += count * -(-s.mem.dtype.bits // 8) * times
                if kept > STACK_LIMIT:
                    raise stack_overflow(kept, times, s)
        if self.counted:
            self.begin_counts()
        depth = self.depth
        with self.cubes():
            self.block(self.split.body)
        self.depth = depth
        if self.counted:
            self.end_counts()
        title = f"{program.name}: {program.mode}, {'x'.join(map(str, program.units))} units"
        names = ", ".join(p.name for p in parameters)
        text = HEADER.format(title=title) + f"def kernel({names}):\n" + "\n".join(self.lines) + "\n"
        assumed = tuple(sorted(self.assumed, key=Sum.text))
        return CpuText(text, tuple(parameters), tuple(self.sites), assumed, self.parts)

    @contextmanager
    def cubes(self) -> Iterator[None]:
        """The loop over cubes, or over rows of them, around what is printed inside."""
        uses = {a for a in "XYZ" if self.used((f"CUBE_POS_{a}", f"ABSOLUTE_POS_{a}"))}
        if self.merged == "line":
            yield
        elif self.merged == "rows":
            with self.rows(uses):
                yield
        else:
            self.line("for cube in range(first, last):")
            self.depth += 1
            if "X" in uses:
                self.line("cube_x = cube % cubes_x")
            if "Y" in uses:
                self.line("cube_y = (cube // cubes_x) % cubes_y")
            if "Z" in uses:
                self.line("cube_z = cube // (cubes_x * cubes_y)")
            yield

    def stmt_Units(self, s: Units) -> None:
        """What every unit does."""
        if self.units_count == 1:
            self.block(s.body)
        else:
            super().stmt_Units(s)

    def position(self, name: str) -> str:
        """A topology value as a 64-bit text."""
        x, y, z = self.program.units
        if self.merged and name in ("ABSOLUTE_POS", "ABSOLUTE_POS_X"):
            return "position" if self.merged == "line" else "position_x"
        axis = {"_X": ("x", x), "_Y": ("y", y), "_Z": ("z", z)}.get(name[-2:])
        if axis is None:
            n = self.units_count
            return {
                "ABSOLUTE_POS": f"(cube * {n} + unit)" if n > 1 else "cube",
                "CUBE_POS": "cube",
                "CUBE_COUNT": "(cubes_x * cubes_y * cubes_z)",
                "UNIT_POS": "unit",
            }[name]
        letter, count = axis
        unit = f"unit_{letter}" if count > 1 else "0"
        return {
            "ABSOLUTE_POS": f"(cube_{letter} * {count} + {unit})"
            if count > 1
            else f"cube_{letter}",
            "CUBE_POS": f"cube_{letter}",
            "CUBE_COUNT": f"cubes_{letter}",
            "UNIT_POS": unit,
        }[name[:-2]]

    def who(self, mem: Mem) -> str:
        """A thread runs all units of a cube, one after the other."""
        return "own" if mem.kind == "shared" else "atomic"

    def stmt_Barrier(self, s: Barrier) -> None:
        """One unit, or a place where the kernel was split."""


@in_one_piece
def text_of(
    program: Program, denied: frozenset[Sum] | None = frozenset(), in_place: bool = False
) -> CpuText:
    """Print a program for the CPU.

    Args:
        program: what to print.
        denied: assumptions on sizes that do not hold; None: to follow nothing of index arithmetic.
        in_place: whether arguments share memory.
    """
    program = without_copies(program)
    if program.units != (1, 1, 1):
        program = turned(program)
    return CpuPrinter(program, RESERVED, denied, in_place).emit()
