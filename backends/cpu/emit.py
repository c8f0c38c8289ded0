"""Printing a program for the CPU: a loop over cubes, units inside."""

from __future__ import annotations

import math

from cubepy.backends.cpu.fission import Split, Units, split
from cubepy.backends.llvm.printing import Emitted, Parameter, Printer, carrier
from cubepy.compiler.ir import Alloc, Barrier, Program, walk

HEADER = '''"""{title}"""
from cubepy.backends.llvm.ops import *

INF = float("inf")
NAN = float("nan")

'''


class CpuPrinter(Printer):
    """Prints one program as a function of a range of cubes."""

    def __init__(self, program: Program, reserved: frozenset[str]) -> None:
        super().__init__(program, reserved)
        self.split: Split = split(program)
        self.per_unit = frozenset(self.split.per_unit)
        self.locals_per_unit = program.has_barrier and self.units_count > 1

    def emit(self) -> Emitted:
        """The whole module."""
        program = self.program
        parameters = [
            Parameter(n, "i64") for n in ("first", "last", "cubes_x", "cubes_y", "cubes_z")
        ]
        parameters += [Parameter("err", "ptr", "i64"), *self.array_parameters()]
        for mem in program.shared:
            self.line(
                f'{self.var(mem.name)} = stack("{carrier(mem.dtype)}", 0, {math.prod(mem.shape or ())})'
            )
        for name in sorted(self.per_unit):
            t = program.variables[name]
            self.line(
                f'{self.var(name)} = stack("{carrier(t.dtype)}", {t.lanes}, {self.units_count})'
            )
        for s in walk(program.body):
            if isinstance(s, Alloc):
                self.alloc(s.mem)
        self.line("for cube in range(first, last):")
        self.depth += 1
        self.topology_of_cube()
        self.block(self.split.body)
        title = f"{program.name}: {program.mode}, {'x'.join(map(str, program.units))} units"
        names = ", ".join(p.name for p in parameters)
        text = HEADER.format(title=title) + f"def kernel({names}):\n" + "\n".join(self.lines) + "\n"
        return Emitted(text, tuple(parameters), tuple(self.sites))

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
            for name, count in loops:
                self.line(f"for {name} in range({count}):")
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
            self.block(s.body)
        self.depth = depth

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


def emit(program: Program, reserved: frozenset[str]) -> Emitted:
    """Print a program for the CPU; `reserved` are names that the text must not hide."""
    return CpuPrinter(program, reserved).emit()
