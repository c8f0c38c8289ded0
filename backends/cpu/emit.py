"""Printing a program for the CPU: a loop over cubes, units inside."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cubepy.backends.cpu.fission import Split, Units, split
from cubepy.backends.llvm.copies import without_copies
from cubepy.backends.llvm.emitted import Emitted, Parameter
from cubepy.backends.llvm.names import OPS
from cubepy.backends.llvm.printing import carrier
from cubepy.backends.llvm.ranges import Sum
from cubepy.backends.llvm.wide_text import WideText, written_inside
from cubepy.compiler.ir import Alloc, Assign, Barrier, Expr, If, Mem, Program, Stmt, walk
from cubepy.errors import SharedMemoryError

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
    """

    assumes: tuple[Sum, ...] = ()


class CpuPrinter(WideText):
    """Prints one program as a function of a range of cubes."""

    def __init__(
        self, program: Program, reserved: frozenset[str], denied: frozenset[Sum] | None
    ) -> None:
        super().__init__(program, reserved, denied)
        self.split: Split = split(program)
        self.per_unit = frozenset(self.split.per_unit)
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
        self.line("for cube in range(first, last):")
        self.depth += 1
        self.topology_of_cube()
        self.block(self.split.body)
        title = f"{program.name}: {program.mode}, {'x'.join(map(str, program.units))} units"
        names = ", ".join(p.name for p in parameters)
        text = HEADER.format(title=title) + f"def kernel({names}):\n" + "\n".join(self.lines) + "\n"
        assumed = tuple(sorted(self.assumed, key=Sum.text))
        return CpuText(text, tuple(parameters), tuple(self.sites), assumed)

    def topology_of_cube(self) -> None:
        """Positions of the cube along the axes, if they are used."""
        if self.used(("CUBE_POS_X", "ABSOLUTE_POS_X")):
            self.line("cube_x = cube % cubes_x")
        if self.used(("CUBE_POS_Y", "ABSOLUTE_POS_Y")):
            self.line("cube_y = (cube // cubes_x) % cubes_y")
        if self.used(("CUBE_POS_Z", "ABSOLUTE_POS_Z")):
            self.line("cube_z = cube // (cubes_x * cubes_y)")

    def stmt_Units(self, s: Units) -> None:
        x, y, z = self.program.units
        depth = self.depth
        if self.units_count == 1:
            self.block(s.body)
        else:
            loops = [(n, c) for n, c in (("unit_z", z), ("unit_y", y), ("unit_x", x)) if c > 1]
            bounds, facts, body = self.bounded(s.body)
            for name, count in loops:
                self.line(f"for {name} in range({bounds.get(name, count)}):")
                self.depth += 1
            if len(loops) > 1:
                parts = [
                    f"unit_{a} * {m}" if m > 1 else f"unit_{a}"
                    for a, m, c in (("x", 1, x), ("y", x, y), ("z", x * y, z))
                    if c > 1
                ]
                self.line(f"unit = {' + '.join(parts)}")
            else:
                self.line(f"unit = {loops[0][0]}")
            self.facts += facts
            self.block(body)
            del self.facts[len(self.facts) - len(facts) :]
        self.depth = depth

    def bounded(self, body: list[Stmt]) -> tuple[dict[str, str], list[Sum], list[Stmt]]:
        """Ends of the loops over units where the whole body is under a guard of their position, and
        the body without it.

        A loop whose turns all work is one that LLVM moves things out of, and turns into lines.
        """
        *before, last = body or [Barrier()]
        given = [s for s in before if isinstance(s, Assign)]
        if not self.follows or len(given) < len(before):
            return {}, [], body
        if not isinstance(last, If) or not last.then or last.orelse:
            return {}, [], body
        known, inner = dict(self.beside), self.inner
        self.inner = written_inside(body)
        for s in given:
            found = self.wide(s.value) if self._keeps(s.name) else None
            self.beside.pop(s.name, None)
            if found is not None:
                self.beside[s.name] = found
        ends: dict[str, str] = {}
        facts: list[Sum] = []
        left: list[Expr] = []
        for test in _conjuncts(last.cond):
            follows = self.follow(test)
            end = self._end_of(follows[0]) if len(follows) == 1 else None
            if end is None or end[0] in ends:
                left.append(test)
            else:
                ends[end[0]] = end[1]
                facts += follows
        self.beside, self.inner = known, inner
        if not ends:
            return {}, [], body
        rest: list[Stmt] = last.then
        if left:
            cond = left[0]
            for test in left[1:]:
                cond = Expr("and", last.cond.type, (cond, test))
            rest = [If(cond, last.then, [], loc=last.loc)]
        return ends, facts, [*before, *rest]

    def _end_of(self, fact: Sum) -> tuple[str, str] | None:
        """The loop that a fact bounds from above, and its end: a position is at most what stays the
        same in a cube.
        """
        axes = {"unit_x": "X", "unit_y": "Y", "unit_z": "Z"}
        units = dict(zip(axes, self.program.units, strict=True))
        positions = {self.position(f"ABSOLUTE_POS_{a}"): n for n, a in axes.items() if units[n] > 1}
        if units["unit_y"] == units["unit_z"] == 1:
            positions[self.position("ABSOLUTE_POS")] = "unit_x"
        found = [(p, positions[p.text]) for p, n in fact.terms if p.text in positions and n == -1]
        if len(found) != 1:
            return None
        position, name = found[0]
        rest = fact + Sum(((position, 1),), 1)
        if not all(p.size is not None or p.text in self.fixed for p, _ in rest.terms):
            return None
        cube = position.text[1:-1].rpartition(" + ")[0]
        return name, f"minnum(i64({units[name]}), i64({rest.text()} - {cube}))"

    def who(self, mem: Mem) -> str:
        """A thread runs all units of a cube, one after the other."""
        return "own" if mem.kind == "shared" else "atomic"

    def stmt_Barrier(self, s: Barrier) -> None:
        """One unit, or a place where the kernel was split."""

    def position(self, name: str) -> str:
        """A topology value as a 64-bit text."""
        x, y, z = self.program.units
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


def _conjuncts(cond: Expr) -> list[Expr]:
    """The conditions that must all hold for this one."""
    if cond.op == "and" and not cond.type.lanes:
        return [c for part in cond.args for c in _conjuncts(part)]
    return [cond]


def text_of(program: Program, denied: frozenset[Sum] | None = frozenset()) -> CpuText:
    """Print a program for the CPU.

    Args:
        program: what to print.
        denied: assumptions on sizes that do not hold; None: to follow nothing of index arithmetic.
    """
    return CpuPrinter(without_copies(program), RESERVED, denied).emit()
