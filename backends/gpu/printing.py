"""Printing a program for a GPU: a unit is a thread, so the body is printed as it stands.

Shared memory is one dynamic allocation; every array of a cube has a fixed place in it, known to the
text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from cubepy.backends.gpu.prints import PRINT, prints
from cubepy.backends.llvm.emitted import Emitted, Parameter
from cubepy.backends.llvm.printing import Printer
from cubepy.compiler.ir import Alloc, Barrier, DebugPrint, Expr, Hardware, Mem, Program, walk

HEADER = '''"""{title}"""
from cubepy.backends.llvm.ops import *
from {ops} import *

INF = float("inf")
NAN = float("nan")

'''
AXES = ("x", "y", "z")
APPROXIMATE = ("exp", "exp2", "log", "log2")
"""What the special function unit computes, with `afn`."""
ORDINARY = frozenset({"nnan", "ninf"})
"""Liberties with which a square root needs no path for rare numbers."""
WIDEST = 16
"""Bytes of the widest access."""
WIDE_ALIGNMENT = 1024
"""Alignment of shared arrays of a kilobyte or more: what 128-byte swizzled tiles need."""


@dataclass(frozen=True)
class GpuText(Emitted):
    """Generated code for a GPU, with the bytes of shared memory that it needs."""

    shared_bytes: int = 0


def shared_layout(memories: list[Mem]) -> tuple[dict[str, int], int]:
    """Where each shared array starts, in bytes, and the total."""
    offsets, end = {}, 0
    for mem in sorted(memories, key=lambda m: -_bytes(m)):
        size = _bytes(mem)
        step = WIDE_ALIGNMENT if size >= WIDE_ALIGNMENT else 16
        end = -(-end // step) * step
        offsets[mem.name] = end
        end += size
    return offsets, end


def _bytes(mem: Mem) -> int:
    return math.prod(mem.shape or ()) * mem.dtype.itemsize


class GpuPrinter(Printer):
    """Prints one program as a function that every thread runs.

    `rows` names the arrays whose strides, but for the last, are multiples of 16 bytes. A backend
    says where its `ops` are.
    """

    ops = ""
    pragma = "no_unroll()"
    leaves_prints = False  # whether what a kernel prints lies in memory until the host reads it

    def __init__(
        self, program: Program, reserved: frozenset[str], rows: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(program, reserved)
        self.rows = rows

    def emit(self) -> GpuText:
        """The whole module."""
        program = self.program
        parameters = self.parameters()
        self.known_multiples()
        offsets, shared_bytes = shared_layout(program.shared)
        for mem in program.shared:
            self.line(
                f'{self.var(mem.name)} = shared_memory("{mem.dtype.name}", {offsets[mem.name]})'
            )
        for s in walk(program.body):
            if isinstance(s, Alloc):
                self.alloc(s.mem)
        start = len(self.lines)
        self.topology()
        end = len(self.lines)
        self.block(program.body)
        self.lines[start:end] = needed(self.lines[start:end], self.lines[end:])
        if any(isinstance(s, (Barrier, Hardware)) for s in walk(program.body)):
            # CPython copies an end of up to four instructions into every branch that leads to it;
            # units that came different ways would then wait at different copies of a barrier.
            self.line("_end = 0")
        if self.sites:
            parameters.append(Parameter("err", "ptr", "i64"))
        if prints(self.sites):
            parameters.append(Parameter("said", "ptr", "i64"))
        title = f"{program.name}: {program.mode}, {'x'.join(map(str, program.units))} units"
        names = ", ".join(p.name for p in parameters)
        text = (
            HEADER.format(title=title, ops=self.ops)
            + f"def kernel({names}):\n"
            + "\n".join(self.lines)
            + "\n"
        )
        return GpuText(text, tuple(parameters), tuple(self.sites), shared_bytes)

    def known_multiples(self) -> None:
        """Tell the code generator which strides keep rows aligned."""
        for a in self.program.arguments:
            if a.mem is not None and a.mem.name in self.rows:
                name, step = self.var(a.mem.name), WIDEST // a.mem.dtype.itemsize
                for axis in range(a.mem.ndim - 1):
                    self.line(f"{name}_s{axis} = multiple({name}_s{axis}, {step})")

    def parameters(self) -> list[Parameter]:
        """The generated function's parameters: arrays with shape and strides, numbers,
        tensor maps.
        """
        maps = {
            self.var(a.mem.name)
            for a in self.program.arguments
            if a.mem is not None and a.mem.kind == "map"
        }
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
        parts = [
            f"unit_{a} * {m}" if m > 1 else f"unit_{a}"
            for a, m, c in (("x", 1, x), ("y", x, y), ("z", x * y, z))
            if c > 1
        ]
        self.line(f"unit = {' + '.join(parts) or '0'}")
        size = self.program.properties.plane_size
        self.plane = f"(unit // {size})"
        if self.units_count % size == 0 and self.used(("PLANE_POS",)):
            self.line(f"plane = same_in_plane(unit // {size})")
            self.plane = "plane"

    def stmt_DebugPrint(self, s: DebugPrint) -> None:
        if not self.leaves_prints:
            super().stmt_DebugPrint(s)
            return
        form, values = self.printed(s)
        number = self.site(PRINT, "", form, None)
        self.line(f"print_values({', '.join(['said', str(number), *values])})")

    def stmt_Barrier(self, s: Barrier) -> None:
        self.line("sync_plane()" if s.plane else "sync_cube()")

    def value(self, e: Expr) -> str:
        """An expression; some functions of f32 take fewer instructions where the kernel takes
        liberties.
        """
        if e.op == "call" and e.type.dtype.name == "f32":
            if e.attr in APPROXIMATE and "afn" in self.program.fast_math:
                return f"approximate_{e.attr}({self.value(e.args[0])})"
            if e.attr == "sqrt" and ORDINARY <= self.program.fast_math:
                return f"plain_sqrt({self.value(e.args[0])})"
        return super().value(e)

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
                "PLANE_POS": self.plane,
                "UNIT_POS_PLANE": "lane_position()",
            }[name]
        letter, count = axis
        return {
            "ABSOLUTE_POS": f"(cube_{letter} * {count} + unit_{letter})",
            "CUBE_POS": f"cube_{letter}",
            "CUBE_COUNT": f"cubes_{letter}",
            "UNIT_POS": f"unit_{letter}",
        }[name[:-2]]


def needed(definitions: list[str], body: list[str]) -> list[str]:
    """The definitions, one a line, whose names occur in the body or in a needed definition after
    them.
    """
    seen = set(re.findall(r"[A-Za-z_]\w*", "\n".join(body)))
    kept = []
    for line in reversed(definitions):
        name, _, value = line.partition("=")
        if name.strip() in seen:
            seen.update(re.findall(r"[A-Za-z_]\w*", value))
            kept.append(line)
    return kept[::-1]
