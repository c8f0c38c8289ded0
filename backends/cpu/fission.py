"""Barriers on a CPU: a kernel is split at them, and each piece runs over all units of a cube.

This is loop fission as in MCUDA (Stratton et al., 2008): control flow around a barrier is uniform,
so it moves out to the cube and what lies between barriers becomes a loop over units. Values that
live across a barrier are kept per unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cubepy.compiler.ir import (
    Assign,
    Atomic,
    Barrier,
    Break,
    Continue,
    For,
    If,
    Program,
    Stmt,
    While,
    contains_barrier,
    expressions,
    walk,
)

ARITHMETIC = (
    "const",
    "topology",
    "size",
    "shape",
    "stride",
    "add",
    "sub",
    "mul",
    "and_",
    "or_",
    "xor",
    "shl",
    "shr",
    "cast",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
)


@dataclass
class Units(Stmt):
    """Run the body for every unit of the cube."""

    body: list[Stmt]


@dataclass
class Split:
    """A kernel split at its barriers.

    Attributes:
        body: statements of the cube, with `Units` among them.
        per_unit: variables that must be kept for every unit.
        cube: variables of the cube, set outside the loops over units.
    """

    body: list[Stmt]
    per_unit: set[str]
    cube: set[str]


def split(program: Program) -> Split:
    """Split a program into loops over units; one loop when it has no barrier, or a cube has one
    unit.
    """
    if not program.has_barrier or program.units == (1, 1, 1):
        return Split([Units(program.body)], set(), set())
    cube = _cube_variables(program.body)
    body = _fission(program.body, cube)
    regions = [s for s in _walk(body) if isinstance(s, Units)]
    again = _recomputable(program, cube)
    for region in regions:
        region.body = _recomputing(region.body, again)
    seen: dict[str, int] = {}
    for region in regions:
        for name in _names(region.body):
            seen[name] = seen.get(name, 0) + 1
    scalars = {a.path for a in program.arguments if a.scalar}
    per_unit = {
        n
        for n, c in seen.items()
        if c > 1 and n not in cube and n not in scalars and n not in again
    }
    return Split(body, per_unit, cube)


def _recomputable(program: Program, cube: set[str]) -> dict[str, Assign]:
    """Assignments that are cheaper to repeat in every loop over units than to keep per unit.

    They stand at the top of the kernel, are the only ones of their variable, and use positions,
    sizes, constants and each other.
    """
    count: dict[str, int] = {}
    for s in walk(program.body):
        if isinstance(s, (Assign, Atomic, For)):
            name = (
                s.name if isinstance(s, Assign) else (s.target if isinstance(s, Atomic) else s.var)
            )
            count[str(name)] = count.get(str(name), 0) + 1
    scalars = {a.path for a in program.arguments if a.scalar}
    out: dict[str, Assign] = {}
    for s in program.body:
        if (
            isinstance(s, Assign)
            and count[s.name] == 1
            and s.name not in cube
            and all(
                e.op in ARITHMETIC
                or (
                    e.op == "var" and (e.attr in out or (e.attr in scalars and e.attr not in count))
                )
                for e in s.value.walk()
            )
        ):
            out[s.name] = s
    return out


def _recomputing(body: list[Stmt], again: dict[str, Assign]) -> list[Stmt]:
    """A region with the recomputable values that it uses at its top."""
    kept = [s for s in body if not (isinstance(s, Assign) and again.get(s.name) is s)]
    need = _names(kept) & again.keys()
    for name in reversed(again):
        if name in need:
            need |= _heads(again[name]) & again.keys()
    return [s for name, s in again.items() if name in need] + kept


def _walk(body: list[Stmt]) -> list[Stmt]:
    out = []
    for s in body:
        out.append(s)
        if isinstance(s, Units):
            continue
        if isinstance(s, If):
            out += _walk(s.then) + _walk(s.orelse)
        elif isinstance(s, (For, While)):
            out += _walk(s.body)
    return out


def _names(body: list[Stmt]) -> set[str]:
    """Variables that a body reads or assigns."""
    names: set[str] = set()
    for s in walk(body):
        if isinstance(s, Assign):
            names.add(s.name)
        elif isinstance(s, Atomic) and s.target:
            names.add(s.target)
        elif isinstance(s, For):
            names.add(s.var)
        for e in expressions(s):
            names |= {str(x.attr) for x in e.walk() if x.op == "var"}
    return names


def _heads(s: Stmt) -> set[str]:
    return {str(x.attr) for e in expressions(s) for x in e.walk() if x.op == "var"}


def _cube_variables(body: list[Stmt]) -> set[str]:
    """Variables that control around barriers depends on, transitively."""
    need: set[str] = set()
    for s in walk(body):
        if isinstance(s, (If, For, While)) and contains_barrier([s]):
            need |= _heads(s)
            if isinstance(s, For):
                need.add(s.var)
    while True:
        before = len(need)
        _close(body, need, set())
        if len(need) == before:
            return need


def _jump_conditions(loop: For | While) -> set[str]:
    """Variables that decide whether a loop, or a turn of it, is left early."""
    names: set[str] = set()

    def look(body: list[Stmt], around: set[str]) -> None:
        for s in body:
            if isinstance(s, (Break, Continue)):
                names.update(around)
            elif isinstance(s, If):
                deeper = around | _heads(s)
                look(s.then, deeper)
                look(s.orelse, deeper)

    look(loop.body, set())
    return names


def _close(body: list[Stmt], need: set[str], around: set[str]) -> None:
    for s in body:
        if (isinstance(s, Assign) and s.name in need) or (isinstance(s, For) and s.var in need):
            need |= _heads(s) | around
        if isinstance(s, If):
            _close(s.then, need, around | _heads(s))
            _close(s.orelse, need, around | _heads(s))
        elif isinstance(s, (For, While)):
            if contains_barrier(s.body) or any(
                isinstance(x, Assign) and x.name in need for x in walk(s.body)
            ):
                need |= _jump_conditions(s)
            _close(s.body, need, around | _heads(s) | ({s.var} if isinstance(s, For) else set()))


def _jumps(s: Stmt) -> bool:
    """Whether a branch leaves the loop around it, or a turn of it."""
    if isinstance(s, If):
        return any(map(_jumps, s.then)) or any(map(_jumps, s.orelse))
    return isinstance(s, (Break, Continue))


def _fission(body: list[Stmt], cube: set[str], inside_loop: bool = False) -> list[Stmt]:
    out: list[Stmt] = []
    region: list[Stmt] = []

    def flush() -> None:
        if region:
            out.append(Units(list(region)))
            region.clear()

    for s in body:
        if isinstance(s, Barrier):
            flush()
        elif (isinstance(s, Assign) and s.name in cube) or isinstance(s, (Break, Continue)):
            flush()
            out.append(s)
        elif isinstance(s, (If, For, While)) and (
            contains_barrier([s]) or (inside_loop and _jumps(s))
        ):
            flush()
            out.append(_outer(s, cube, inside_loop))
        elif isinstance(s, (If, For, While)) and any(
            (isinstance(x, Assign) and x.name in cube) or (isinstance(x, For) and x.var in cube)
            for x in walk([s])
        ):
            # What surrounds an assignment to a variable of the cube is uniform, and decides how
            # often it happens.
            flush()
            out.append(_outer(s, cube, inside_loop))
        else:
            region.append(s)
    flush()
    return out


def _outer(s: Stmt, cube: set[str], inside_loop: bool) -> Stmt:
    if isinstance(s, If):
        return replace(
            s,
            then=_fission(s.then, cube, inside_loop),
            orelse=_fission(s.orelse, cube, inside_loop),
        )
    assert isinstance(s, (For, While))
    return replace(s, body=_fission(s.body, cube, True))
