"""Loops that stride over the grid, turned inside out.

On a GPU neighbouring units should touch neighbouring elements, so a unit goes through an array by
strides of all units of the launch (or of its cube). On a CPU a thread runs one unit after the other
and would read a line of memory for every element. The turns of all units are made together instead:
a loop over the places of the first unit, and the units of the cube beside each other inside.
That is what a barrier in the loop would do, and so a barrier is put there.
"""

from __future__ import annotations

from dataclasses import replace

from cubepy.backends.cpu.fission import Units, split
from cubepy.compiler.ir import (
    Alloc,
    Assign,
    Barrier,
    Break,
    Continue,
    Expr,
    For,
    Hardware,
    If,
    Program,
    Stmt,
    VType,
    While,
    children,
    contains_barrier,
    expressions,
    walk,
)
from cubepy.lang.dtypes import bool_

FIRST = {
    "UNIT_POS": None,
    "UNIT_POS_X": None,
    "ABSOLUTE_POS": "CUBE_POS",
    "ABSOLUTE_POS_X": "CUBE_POS_X",
}
"""What a position in the launch or cube is a multiple of, for the first unit."""
PLAIN = ("const", "size", "shape", "add", "sub", "mul", "cast", "min", "max", "floordiv", "mod")
COUNTS = frozenset({"CUBE_COUNT", "CUBE_COUNT_X", "CUBE_COUNT_Y", "CUBE_COUNT_Z"})
ALIKE = ("CUBE_COUNT", "CUBE_COUNT_X", "CUBE_POS", "CUBE_POS_X")


class Strides:
    """Looks for such loops in a program whose units lie along X."""

    def __init__(self, program: Program, together: bool) -> None:
        self.program, self.together = program, together
        self.index = VType(program.index)
        self.units = program.units[0]
        self.set: dict[str, list[Assign | None]] = {}
        for s in walk(program.body):
            name = s.name if isinstance(s, Assign) else getattr(s, "target", None)
            name = s.var if isinstance(s, For) else name
            if name is not None:
                self.set.setdefault(str(name), []).append(s if isinstance(s, Assign) else None)
        self.once = {s.name: s.value for s in program.body
                     if isinstance(s, Assign) and self.set[s.name] == [s]}  # fmt: skip
        self.begun: dict[int, Assign] = {}  # what loops that count begin with
        self.needless: list[Assign] = []
        self.given = {a.path for a in program.arguments if a.scalar} - self.set.keys()

    def same(self, e: Expr) -> bool:
        """Whether a value is the same for all units of a cube, wherever it is computed."""
        if e.op == "var":
            return e.attr in self.given or (e.attr in self.once and self.same(self.once[e.attr]))
        if e.op == "topology":
            return e.attr in ALIKE
        plain = e.op in PLAIN or (e.op == "call" and e.attr in ("min", "max"))
        return plain and not e.type.lanes and all(map(self.same, e.args))

    def whole(self, e: Expr) -> Expr:
        """A value that is the same for all units, without variables that are set in their order."""
        if e.op == "var" and e.attr in self.once:
            return self.whole(self.once[e.attr])
        return replace(e, args=tuple(map(self.whole, e.args))) if e.args else e

    def first(self, e: Expr) -> Expr | None:
        """A position of neighbouring units, as that of the first one; None if it is none."""
        if e.op == "var" and e.attr in self.once:
            return self.first(self.once[e.attr])
        if e.op == "topology" and e.attr in FIRST:
            cube = FIRST[e.attr]
            zero = Expr("const", self.index, (), 0)
            return zero if cube is None else self._times(Expr("topology", self.index, (), cube))
        if e.op == "add":
            for a, b in (e.args, e.args[::-1]):
                if a.op == "topology" and FIRST.get(a.attr, "") is None and self._of_cube(b):
                    return self.whole(b)
        return None

    def _of_cube(self, e: Expr) -> bool:
        """Whether a value is the cube's position times the units of a cube."""
        e = self.whole(e) if self.same(e) else e
        return e.op == "mul" and any(
            a.op == "topology" and a.attr in ("CUBE_POS", "CUBE_POS_X")
            and b.op == "const" and b.attr == self.units
            for a, b in (e.args, e.args[::-1])
        )  # fmt: skip

    def _times(self, cube: Expr) -> Expr:
        return Expr("mul", self.index, (cube, Expr("const", self.index, (), self.units)))

    def strides(self, step: Expr) -> bool:
        """Whether a step goes past all units of a cube."""
        if not self.same(step):
            return False
        step = self.whole(step)
        if step.op == "const":
            return type(step.attr) is int and step.attr >= self.units
        return step.op == "mul" and any(
            a.op == "topology" and a.attr in ("CUBE_COUNT", "CUBE_COUNT_X")
            and b.op == "const" and b.attr == self.units
            for a, b in (step.args, step.args[::-1])
        )  # fmt: skip

    def turned(self, s: Stmt) -> list[Stmt]:
        """A statement, or what takes its place."""
        loop = self.counting(s) if isinstance(s, While) else s
        if not isinstance(loop, For) or loop.rolled or not self._alone(loop):
            return [s]
        first = self.first(loop.start)
        if first is None or not self.strides(loop.step) or not self.same(loop.stop):
            return [s]
        stop = self.whole(loop.stop)
        if self.program.variables[loop.var].dtype is not self.program.index:
            return [s]
        if id(s) in self.begun:
            self.needless.append(self.begun[id(s)])
        base = f"{loop.var}_first"
        while base in self.program.variables:
            base += "_"
        self.program.variables[base] = self.index
        at = Expr("var", self.index, (), base)
        unit = Expr("topology", self.index, (), "UNIT_POS")
        step = self.whole(loop.step)
        if self.together and first.op == step.op == "mul":
            first = Expr("const", self.index, (), 0)
            unit = Expr("topology", self.index, (), "ABSOLUTE_POS")
        body: list[Stmt] = [
            Assign(loop.var, Expr("add", self.index, (at, unit)), loc=s.loc),
            If(Expr("lt", VType(bool_), (unit, Expr("sub", self.index, (stop, at)))), loop.body, [],
               loc=s.loc),
        ]  # fmt: skip
        around = [Barrier(loc=s.loc), *body, Barrier(loc=s.loc)]
        return [For(base, first, stop, step, around, loc=s.loc)]

    def _alone(self, loop: For) -> bool:
        """Whether turns of other units may come in between, and all turns are made to their end."""
        written = {s.name for s in walk(loop.body) if isinstance(s, Assign)}
        return not (
            loop.var in written
            or contains_barrier(loop.body)
            or any(map(_leaves, loop.body))
            or any(isinstance(s, (Alloc, Hardware)) for s in walk(loop.body))
        )

    def counting(self, loop: While) -> Stmt:
        """A loop that counts, as one over a range."""
        cond, last = loop.cond, loop.body[-1] if loop.body else None
        if cond.op != "lt" or cond.args[0].op != "var" or not isinstance(last, Assign):
            return loop
        name, step = str(cond.args[0].attr), last.value
        if last.name != name or step.op != "add" or not any(a == cond.args[0] for a in step.args):
            return loop
        by = step.args[1] if step.args[0] == cond.args[0] else step.args[0]
        writes = self.set.get(name, [])
        begin = next((w for w in writes if w is not last and w is not None), None)
        if len(writes) != 2 or begin is None or begin not in self.program.body:
            return loop
        used = sum(e.op == "var" and e.attr == name for s in walk(self.program.body)
                   for x in expressions(s) for e in x.walk())  # fmt: skip
        inside = sum(e.op == "var" and e.attr == name for s in walk([loop])
                     for x in expressions(s) for e in x.walk())  # fmt: skip
        if used != inside or self.program.body.index(begin) > self.program.body.index(loop):
            return loop
        self.begun[id(loop)] = begin
        return For(name, begin.value, cond.args[1], by, loop.body[:-1], loc=loop.loc)


def _leaves(s: Stmt) -> bool:
    """Whether a statement of a loop leaves it, or a turn of it."""
    if isinstance(s, (Break, Continue)):
        return True
    return not isinstance(s, (For, While)) and any(_leaves(x) for b in children(s) for x in b)


def turned(program: Program) -> Program:
    """The program with its loops that stride over the grid turned inside out.

    Where nothing else is in a kernel, and a unit takes nothing from turn to turn, the units of all
    cubes lie beside each other in a turn.
    """
    x, y, z = program.units
    loops = any(isinstance(s, (For, While)) for s in program.body)
    if x == 1 or y * z > 1 or not loops or any(isinstance(s, Alloc) for s in walk(program.body)):
        return program
    if not program.has_barrier and not program.shared:
        together = _turned(program, True)
        if together is program or is_line(together):
            return together
    return _turned(program, False)


def _turned(program: Program, together: bool) -> Program:
    looks = Strides(replace(program, variables=dict(program.variables)), together)
    body = [t for s in program.body for t in looks.turned(s)]
    body = [s for s in body if not any(s is b for b in looks.needless)]
    if all(any(s is old for old in program.body) for s in body):
        return program
    return replace(looks.program, body=body, has_barrier=True)


def is_line(program: Program) -> bool:
    """Whether all that a program does lies between barriers in loops over all units of a launch."""
    asked = {
        e.attr
        for s in walk(program.body)
        for root in expressions(s)
        for e in root.walk()
        if e.op == "topology"
    }
    found = split(program)
    works = [s for s in found.body if not isinstance(s, For)]
    return (
        asked <= {"ABSOLUTE_POS", *COUNTS}
        and not found.per_unit
        and all(isinstance(s, Units) and all(isinstance(a, Assign) for a in s.body) for s in works)
    )
