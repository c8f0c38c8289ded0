"""Counts that a thread keeps for itself until its cubes are done.

An atomic instruction takes as long as twenty others, and takes the line of the cache from the other
cores. Where a kernel only updates an array of integers, always by one operation, and never asks
what was there, the order does not matter: a thread updates a copy on its stack, and adds that to
the array in the end. The array must be short beside the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cubepy.backends.cpu.unit_loops import UnitLoops
from cubepy.compiler.ir import (
    Atomic,
    For,
    Hardware,
    Mem,
    Program,
    Stmt,
    Store,
    While,
    children,
    walk,
)
from cubepy.compiler.ir import expressions as expressions_of

ROOM = 16 << 10
"""Bytes of a copy: less than half of the nearest cache."""
UPDATES = 4
"""Units that must work for an element that is copied."""
ITERATIONS = 32
"""How often a loop goes round, it is taken."""


def neutral(mem: Mem, op: str) -> int | None:
    """What an operation leaves as it is; None where a copy would not do."""
    dtype = mem.dtype
    if not dtype.is_int or dtype.bits < 8 or dtype.storage_only:
        return None
    signed = dtype.kind == "i"
    low, high = (-(2 ** (dtype.bits - 1)) if signed else 0), 2 ** (dtype.bits - signed) - 1
    whole = -1 if signed else high
    return {"add": 0, "sub": 0, "or": 0, "xor": 0, "and": whole, "max": low, "min": high}.get(op)


def counted(program: Program) -> dict[str, tuple[Mem, str, bool]]:
    """The arrays that may be copied: the memory, the operation, and whether it is in a loop."""
    found: dict[str, tuple[Mem, str, bool]] = {}
    spoiled: set[str] = set()
    read: set[str] = set()

    def look(body: list[Stmt], looped: bool) -> None:
        for s in body:
            for e in (x for root in expressions_of(s) for x in root.walk()):
                if e.op == "var":
                    read.add(str(e.attr))
                elif e.op in ("load", "line_load"):
                    spoiled.add((e.attr if e.op == "load" else e.attr[0]).name)
            if isinstance(s, (Store, Hardware)):
                spoiled.update(m.name for m in (s.mems if isinstance(s, Hardware) else (s.mem,)))
            if isinstance(s, Atomic):
                _, op, often = found.get(s.mem.name, (s.mem, s.op, False))
                found[s.mem.name] = s.mem, op, often or looped
                if op != s.op:
                    spoiled.add(s.mem.name)
            for inner in children(s):
                look(inner, looped or isinstance(s, (For, While)))

    look(program.body, False)
    asked = {s.mem.name for s in walk(program.body) if isinstance(s, Atomic) and s.target in read}
    return {
        name: (mem, op, looped)
        for name, (mem, op, looped) in found.items()
        if name not in spoiled | asked
        and mem.kind == "global"
        and neutral(mem, op) is not None
        and (mem.layout == "contiguous" or (mem.ndim == 1 and mem.layout == "last"))
    }


class OwnCounts(UnitLoops):
    """A printer of updates of arrays that only count."""

    counted: Mapping[str, tuple[Mem, str, bool]] = MappingProxyType({})

    def find_counts(self) -> None:
        """Look for arrays that only count."""
        self.counted = counted(self.program)

    def _names(self, mem: Mem) -> tuple[str, str]:
        """The copy of an array, and whether there is one."""
        return f"_own_{mem.name}", f"_keeps_{mem.name}"

    def begin_counts(self) -> None:
        """Copies, at the top of a function."""
        for mem, op, looped in self.counted.values():
            own, keeps = self._names(mem)
            size = self.size_text(mem)
            most = ROOM // mem.dtype.itemsize
            updates = self.units_count // self.parts * (ITERATIONS if looped else 1)
            dtype = mem.dtype.name
            self.line(f'{own} = stack("{dtype}", 0, {most})')
            enough = f"{size} * {UPDATES} <= (last - first) * {updates}"
            self.line(f"{keeps} = and_({size} <= {most}, {enough})")
            self.line(f"if {keeps}:")
            self.line(f"    for {own}_at in range({size}):")
            self.line(f"        store({own}, {own}_at, {dtype}({neutral(mem, op)}))")

    def end_counts(self) -> None:
        """What was counted, to the arrays."""
        for mem, op, _ in self.counted.values():
            own, keeps = self._names(mem)
            value, name = f"load({own}, {own}_at)", self.var(mem.name)
            self.line(f"if {keeps}:")
            self.line(f"    for {own}_at in range({self.size_text(mem)}):")
            self.line(f"        if {value} != {mem.dtype.name}({neutral(mem, op)}):")
            add = "add" if op == "sub" else op  # a copy went down from 0
            self.line(f'            atomic_rmw({name}, {own}_at, {value}, "{add}")')

    def atomic(self, s: Atomic) -> None:
        """An atomic update, of a copy where there is one."""
        if s.mem.name not in self.counted:
            super().atomic(s)
            return
        mem = s.mem
        self.location = s.loc
        indices = self.simple(s.indices)
        operand = self.temporary(self.value(s.operands[0]))
        where = self.temporary(f"i64({self.offset(mem, indices)})")
        ok = self.inside(mem, indices) if self.checks else "True"
        own, keeps = self._names(mem)
        depth = self.depth
        if ok != "True":
            self.line(f"if {ok}:")
            self.depth += 1
        self.line(f"if {keeps}:")
        self.line(f'    own_rmw({own}, {where}, {operand}, "{s.op}")')
        self.line("else:")
        self.line(f'    atomic_rmw({self.var(mem.name)}, {where}, {operand}, "{s.op}")')
        self.depth = depth
        if ok != "True" and self.program.mode == "validate":
            self.line("else:")
            site = self.fault(mem, s.loc)
            linear = self.linear(mem, indices)
            self.line(f"    report(err, {site}, {linear}, {self.size_text(mem)})")
