"""Printing accesses to memory: offsets, bounds, lines that hang over an end, strided lines,
atomics.

Checked mode never touches memory outside an array: a read there gives zero and a write is dropped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cubepy.compiler.ir import Atomic, Expr, Mem, Prefetch, Program, Store
from cubepy.errors import Location

CARRIED = ("f16", "bf16")
"""Held in f32 by generated code, and rounded when they are stored."""


class MemoryText:
    """Adds memory accesses to the emitter."""

    program: Program
    units_count: int
    depth: int  # of the indentation
    locals_per_unit = False  # whether local memory of all units lies interleaved in one piece
    if TYPE_CHECKING:

        def var(self, name: str) -> str: ...
        def line(self, text: str) -> None: ...
        def assign(self, name: str, text: str) -> None: ...
        def temporary(self, text: str) -> str: ...
        def value(self, e: Expr) -> str: ...
        def index(self, e: Expr) -> str: ...
        def size_text(self, mem: Mem) -> str: ...
        def site(self, kind: str, array: str, message: str, location: Location | None) -> int: ...

    def alloc(self, mem: Mem) -> None:
        """Local memory of a unit, or of all units."""
        count = math.prod(mem.shape or ()) * (self.units_count if self.locals_per_unit else 1)
        name = "f32" if mem.dtype.name in CARRIED else mem.dtype.name
        self.line(f'{self.var(mem.name)} = stack("{name}", {mem.lanes}, {count})')

    def extent(self, mem: Mem, axis: int) -> str:
        """The length of an axis."""
        return str(mem.shape[axis]) if mem.shape is not None else f"{self.var(mem.name)}_n{axis}"

    def stride(self, mem: Mem, axis: int) -> str:
        """The stride of an axis in elements."""
        if mem.shape is not None:
            return str(math.prod(mem.shape[axis + 1 :]))
        if axis == mem.ndim - 1 and mem.layout != "strided":
            return "1"
        return f"{self.var(mem.name)}_s{axis}"

    def offset(self, mem: Mem, indices: list[str]) -> str:
        """Where an element is, in elements from the start."""
        terms = []
        for axis, i in enumerate(indices):
            s = self.stride(mem, axis)
            terms.append(i if s == "1" else f"{i} * {s}")
        text = " + ".join(terms) or "0"
        if mem.kind == "local" and self.locals_per_unit:
            return f"({text}) * {self.units_count} + unit"
        return text

    def inside(self, mem: Mem, indices: list[str], axes: int | None = None) -> str:
        """Whether indices are in range, along the first `axes` axes."""
        tests = []
        for axis, i in enumerate(indices[:axes]):
            n = self.extent(mem, axis)
            if i.isdigit() and n.isdigit():
                if int(i) >= int(n):
                    tests.append("False")
                continue
            tests.append(f"{i} < {n}" if i.isdigit() else f"and_(0 <= {i}, {i} < {n})")
        return all_of(tests)

    def simple(self, indices: tuple[Expr, ...]) -> list[str]:
        """Index texts that may be repeated."""
        out = []
        for e in indices:
            text = self.index(e)
            out.append(text if len(text) < 40 else self.temporary(text))
        return out

    @property
    def checks(self) -> bool:
        return self.program.mode != "unchecked"

    def fault(self, mem: Mem, loc: Location | None) -> int:
        """The number of a place that reports an access out of range."""
        return self.site("bounds", mem.argument or mem.name, "", loc)

    def expr_load(self, e: Expr) -> str:
        mem: Mem = e.attr
        name = self.var(mem.name)
        indices = self.simple(e.args) if self.checks else [self.index(i) for i in e.args]
        where = self.offset(mem, indices)
        ok = self.inside(mem, indices) if self.checks else "True"
        if ok == "True":
            return f"load({name}, {where})"
        if self.program.mode == "validate":
            linear = self.linear(mem, indices)
            site = self.fault(mem, self.location)
            return (
                f"load_or_report({name}, {where}, {ok}, err, {site}, {linear}, "
                f"{self.size_text(mem)})"
            )
        return f"load_if({name}, {where}, {ok})"

    location: Location | None = None

    def linear(self, mem: Mem, indices: list[str]) -> str:
        """The index that a report shows: the position in C order, or the index itself for
        rank 1.
        """
        text = indices[0] if indices else "0"
        for axis in range(1, mem.ndim):
            text = f"({text}) * {self.extent(mem, axis)} + {indices[axis]}"
        return f"i64({text})"

    def store(self, s: Store) -> None:
        """`mem[...] = value`, for an element or a line."""
        mem = s.mem
        self.location = s.loc
        value = self.stored(s.value, mem)
        if s.value.type.lanes and not mem.lanes:
            self.store_line(s, value)
            return
        name = self.var(mem.name)
        indices = self.simple(s.indices) if self.checks else [self.index(i) for i in s.indices]
        where = self.offset(mem, indices)
        ok = self.inside(mem, indices) if self.checks else "True"
        if ok == "True":
            self.line(f"store({name}, {where}, {value})")
            return
        self.line(f"if {ok}:")
        self.line(f"    store({name}, {where}, {value})")
        if self.program.mode == "validate":
            self.line("else:")
            self.line(
                f"    report(err, {self.fault(mem, s.loc)}, {self.linear(mem, indices)}, "
                f"{self.size_text(mem)})"
            )

    def stored(self, e: Expr, mem: Mem) -> str:
        """A value on its way to memory, which rounds it: without a cast that would do so before."""
        if (
            e.op == "cast"
            and mem.kind == "global"
            and e.type.dtype is mem.dtype
            and mem.dtype.name in CARRIED
        ):
            inner = e.args[0]
            if inner.type.dtype.name in ("f32", *CARRIED):
                return self.value(inner)
        return self.value(e)

    def expr_line_load(self, e: Expr) -> str:
        mem, linear, has_valid, filled = e.attr
        args, other = (e.args[:-1], self.value(e.args[-1])) if filled else (e.args, "")
        valid = self.index(args[-1]) if has_valid else None
        args = args[:-1] if has_valid else args
        name, lanes = self.var(mem.name), e.type.lanes
        where, room, offsets = self.line_start(mem, args, linear, lanes)
        count = self.count(room, valid, lanes, mem, args)
        if offsets is not None:
            mask = self.lane_mask(count, lanes)
            if not filled or count is None:
                return f"gather_line({name}, {offsets}, {mask})"
            mask = self.temporary(mask)
            return f"select({mask}, gather_line({name}, {offsets}, {mask}), {other})"
        if count is None:
            return f"load_line({name}, {where}, {lanes})"
        if filled:
            return f"load_line_or({name}, {where}, {lanes}, {count}, {other})"
        return f"load_line_part({name}, {where}, {lanes}, {count})"

    def store_line(self, s: Store, value: str) -> None:
        """A line to consecutive places."""
        mem, lanes = s.mem, s.value.type.lanes
        name = self.var(mem.name)
        where, room, offsets = self.line_start(mem, s.indices, s.linear, lanes)
        valid = self.index(s.valid) if s.valid is not None else None
        count = self.count(room, valid, lanes, mem, s.indices)
        if offsets is not None:
            self.line(f"scatter_line({name}, {offsets}, {value}, {self.lane_mask(count, lanes)})")
        elif count is None:
            op = "store_line_stream" if s.stream else "store_line"
            self.line(f"{op}({name}, {where}, {value})")
        else:
            self.line(f"store_line_part({name}, {where}, {value}, {count})")

    def prefetch(self, s: Prefetch) -> None:
        """Ask for a cache line; of the C order of an array with gaps nothing is asked for."""
        mem = s.mem
        indices = [self.index(e) for e in s.indices]
        if s.linear and mem.ndim > 1 and mem.layout != "contiguous" and mem.shape is None:
            return
        where = indices[0] if s.linear else self.offset(mem, indices)
        self.line(f"prefetch({self.var(mem.name)}, i64({where}))")

    def line_start(
        self, mem: Mem, args: tuple[Expr, ...], linear: bool, lanes: int
    ) -> tuple[str, str, str | None]:
        """Where a line starts, how many places follow there, and its lanes' offsets if they are not
        neighbours.
        """
        unit = self.stride(mem, mem.ndim - 1) == "1" and not (
            mem.kind == "local" and self.locals_per_unit
        )
        if (
            linear
            and (mem.ndim == 1 or mem.layout == "contiguous" or mem.shape is not None)
            and unit
        ):
            at = self.temporary(self.index(args[0])) if self.checks else self.index(args[0])
            return at, _room(self.size_text(mem), at, f"{at} >= 0"), None
        if not linear or mem.ndim == 1:
            indices = [
                self.temporary(self.index(a)) if self.checks else self.index(a) for a in args
            ]
            start, last = self.offset(mem, indices), indices[-1]
            lead = self.inside(mem, indices, axes=mem.ndim - 1)
            start_ok = f"{last} >= 0" if lead == "True" else f"and_({lead}, {last} >= 0)"
            room = _room(self.extent(mem, mem.ndim - 1), last, start_ok)
            if unit:
                return start, room, None
            step = self.stride(mem, mem.ndim - 1)
            if mem.kind == "local":
                step = str(int(step) * self.units_count)
            line = (
                f'splat(i64({start}), {lanes}) + iota("i64", {lanes}) * splat(i64({step}), {lanes})'
            )
            return start, room, self.temporary(line)
        at = self.temporary(f"i64({self.index(args[0])})")
        position = self.temporary(f'splat({at}, {lanes}) + iota("i64", {lanes})')
        total = ""
        for axis in reversed(range(mem.ndim)):
            n = f"splat(i64({self.extent(mem, axis)}), {lanes})"
            term = f"mod({position}, {n}) * splat(i64({self.stride(mem, axis)}), {lanes})"
            total = f"{total} + {term}" if total else term
            if axis:
                position = self.temporary(f"floordiv({position}, {n})")
        room = _room(self.size_text(mem), at, f"{at} >= 0")
        return at, room, self.temporary(total)

    def count(
        self, room: str, valid: str | None, lanes: int, mem: Mem, args: tuple[Expr, ...]
    ) -> str | None:
        """How many lanes may be touched; None for all."""
        if not self.checks:
            return valid
        if self.program.mode == "validate":
            at = (
                self.index(args[0])
                if len(args) == 1
                else self.linear(mem, [self.index(a) for a in args])
            )
            site = self.fault(mem, self.location)
            self.line(f"check_line(err, {site}, i64({room}), i64({at}), {self.size_text(mem)})")
        return room if valid is None else f"minnum(i64({room}), i64({valid}))"

    def lane_mask(self, count: str | None, lanes: int) -> str:
        """A mask of the first `count` lanes."""
        if count is None:
            return f"splat(True, {lanes})"
        return f'(iota("i64", {lanes}) < splat(i64({count}), {lanes}))'

    def who(self, mem: Mem) -> str:
        """How memory is updated in one step: "own" where only one thread touches it."""
        return "atomic"

    def atomic(self, s: Atomic) -> None:
        """An atomic update; out of range it does nothing and gives zero."""
        mem = s.mem
        self.location = s.loc
        indices = self.simple(s.indices)
        where, name = self.offset(mem, indices), self.var(mem.name)
        operands = ", ".join(self.value(o) for o in s.operands)
        kind = {"exchange": "xchg"}.get(s.op, s.op)
        call = (
            f"{self.who(mem)}_cas({name}, {where}, {operands})"
            if s.op == "compare_exchange"
            else f'{self.who(mem)}_rmw({name}, {where}, {operands}, "{kind}")'
        )
        ok = self.inside(mem, indices) if self.checks else "True"
        if ok == "True":
            self.assign(s.target, call)
            return
        dtype: Any = mem.dtype
        zero = "f32" if dtype.name in ("f16", "bf16") else dtype.name
        self.assign(s.target, f"{zero}(0)")
        self.line(f"if {ok}:")
        self.depth += 1
        self.assign(s.target, call)
        self.depth -= 1
        if self.program.mode == "validate":
            self.line("else:")
            self.line(
                f"    report(err, {self.fault(mem, s.loc)}, {self.linear(mem, indices)}, "
                f"{self.size_text(mem)})"
            )


def all_of(tests: list[str]) -> str:
    """Conditions joined without branches: numba's analysis stumbles over many `and` inside
    arguments of calls.
    """
    text = tests[0] if tests else "True"
    for t in tests[1:]:
        text = f"and_({text}, {t})"
    return text


def _room(total: str, at: str, ok: str) -> str:
    """How many places follow from `at` on; none when the start is out of range."""
    return f"select({ok}, i64({total}) - i64({at}), i64(0))"
