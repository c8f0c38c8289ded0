"""Printing a program for an NVIDIA GPU: a unit is a thread, so the body is printed as it stands.

Shared memory is one dynamic allocation; every array of a cube has a fixed place in it, known to the text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cubepy.backends.llvm.printing import Emitted, Parameter, Printer
from cubepy.compiler.ir import Alloc, Barrier, Expr, Hardware, Mem, Program, walk

HEADER = '''"""{title}"""
from cubepy.backends.llvm.ops import *
from cubepy.backends.cuda.ops import *

INF = float("inf")
NAN = float("nan")

'''
AXES = ("x", "y", "z")
WIDE_ALIGNMENT = 1024
"""Alignment of shared arrays of a kilobyte or more: what 128-byte swizzled tiles need."""


@dataclass(frozen=True)
class CudaText(Emitted):
    """Generated code for a GPU, with the bytes of shared memory that it needs."""

    shared_bytes: int = 0


def shared_layout(memories: list[Mem]) -> tuple[dict[str, int], int]:
    """Where each shared array starts, in bytes, and the total."""
    places, end = {}, 0
    for mem in sorted(memories, key=lambda m: -_bytes(m)):
        size = _bytes(mem)
        step = WIDE_ALIGNMENT if size >= WIDE_ALIGNMENT else 16
        end = -(-end // step) * step
        places[mem.name] = end
        end += size
    return places, end


def _bytes(mem: Mem) -> int:
    return math.prod(mem.shape or ()) * mem.dtype.itemsize


class CudaPrinter(Printer):
    """Prints one program as a function that every thread runs."""

    def emit(self) -> CudaText:
        """The whole module."""
        program = self.program
        parameters = self.parameters()
        places, shared_bytes = shared_layout(program.shared)
        for mem in program.shared:
            self.line(f'{self.var(mem.name)} = shared_memory("{mem.dtype.name}", {places[mem.name]})')
        for s in walk(program.body):
            if isinstance(s, Alloc):
                self.alloc(s.mem)
        self.topology()
        self.block(program.body)
        if self.sites:
            parameters.append(Parameter("err", "ptr", "i64"))
        title = f"{program.name}: {program.mode}, {'x'.join(map(str, program.units))} units"
        names = ", ".join(p.name for p in parameters)
        text = HEADER.format(title=title) + f"def kernel({names}):\n" + "\n".join(self.lines) + "\n"
        return CudaText(text, tuple(parameters), tuple(self.sites), shared_bytes)

    def parameters(self) -> list[Parameter]:
        """The generated function's parameters: arrays with shape and strides, numbers, tensor maps."""
        maps = {self.var(a.mem.name) for a in self.program.arguments if a.mem is not None and a.mem.kind == "map"}
        extents = {f"{m}_{k}{d}" for m in maps for k in "ns" for d in range(8)}
        out = [p for p in self.array_parameters() if p.name not in extents]
        return [Parameter(p.name, "map", "i8") if p.name in maps else p for p in out]

    def topology(self) -> None:
        """Positions that the program uses, read once."""
        x, y, z = self.program.units
        for n, axis in enumerate(AXES):
            self.line(f"unit_{axis} = unit_position({n}, {self.program.units[n]})")
            self.line(f"cube_{axis} = cube_position({n})")
            self.line(f"cubes_{axis} = cube_count({n})")
        parts = [f"unit_{a} * {m}" if m > 1 else f"unit_{a}"
                 for a, m, c in (("x", 1, x), ("y", x, y), ("z", x * y, z)) if c > 1]  # fmt: skip
        self.line(f"unit = {' + '.join(parts) or '0'}")

    def stmt_Barrier(self, s: Barrier) -> None:
        self.line("sync_plane()" if s.plane else "sync_cube()")

    def stmt_Hardware(self, s: Hardware) -> None:
        values = [self.value(a) if a.type.lanes or not a.type.dtype.is_int else self.index(a) for a in s.args]
        parts = [*(self.var(m.name) for m in s.mems), *values, *map(repr, s.attrs)]
        call = f"{s.op}({', '.join(parts)})"
        if s.target is None:
            self.line(call)
        else:
            self.assign(s.target, call)

    def expr_plane(self, e: Expr) -> str:
        """A shuffle, vote or reduction among the units of a plane."""
        name = e.attr.removeprefix("plane_")
        args = [self.value(a) for a in e.args]
        if len(args) > 1:
            args[1] = f"i32({args[1]})"
        return self.rounded(e.type, f"plane_{name}({', '.join(args)})")

    def position(self, name: str) -> str:
        """A topology value as a 64-bit text."""
        x, y, z = self.program.units
        axis = {"_X": ("x", x), "_Y": ("y", y), "_Z": ("z", z)}.get(name[-2:])
        if axis is None:
            cube = "(cube_x + cubes_x * (cube_y + cubes_y * cube_z))"
            return {
                "ABSOLUTE_POS": f"({cube} * {self.units_count} + unit)",
                "CUBE_POS": cube,
                "CUBE_COUNT": "(cubes_x * cubes_y * cubes_z)",
                "UNIT_POS": "unit",
                "PLANE_POS": "(unit // 32)",
                "UNIT_POS_PLANE": "lane_position()",
            }[name]
        letter, count = axis
        return {
            "ABSOLUTE_POS": f"(cube_{letter} * {count} + unit_{letter})",
            "CUBE_POS": f"cube_{letter}",
            "CUBE_COUNT": f"cubes_{letter}",
            "UNIT_POS": f"unit_{letter}",
        }[name[:-2]]


def emit(program: Program, reserved: frozenset[str]) -> CudaText:
    """Print a program for a GPU; `reserved` are names that the text must not hide."""
    return CudaPrinter(program, reserved).emit()

