"""Which values are the same in every unit of a cube, and whether barriers are reached by all units
or none.
"""

from __future__ import annotations

from cubepy.compiler.ir import (
    Assign,
    Atomic,
    Barrier,
    Break,
    Continue,
    Expr,
    For,
    Hardware,
    If,
    Program,
    Stmt,
    While,
    contains_barrier,
)
from cubepy.errors import BarrierError


def check_barriers(program: Program) -> None:
    """Prove that every barrier is uniform.

    Raises:
        BarrierError: a barrier stands under a condition or loop that may differ between units.
    """
    if program.has_barrier:
        varying = varying_variables(program)
        _check(program, program.body, varying, None)


def varying_variables(program: Program) -> set[str]:
    """Variables that may differ between the units of a cube."""
    if program.units == (1, 1, 1):
        return set()
    constant_memory = {a.mem.name for a in program.arguments if a.mem} - program.outputs
    varying: set[str] = set()
    while True:
        before = len(varying)
        _spread(program.body, varying, constant_memory, False)
        if len(varying) == before:
            return varying


def varies(expr: Expr, varying: set[str], constant_memory: set[str]) -> bool:
    """Whether an expression may differ between the units of a cube."""
    for e in expr.walk():
        if e.op == "var" and e.attr in varying:
            return True
        if e.op == "topology" and not str(e.attr).startswith("CUBE_"):
            return True
        if e.op == "load" and e.attr.name not in constant_memory:
            return True
        if e.op == "line_load" and e.attr[0].name not in constant_memory:
            return True
        if e.op == "plane":
            return True
    return False


def _spread(body: list[Stmt], varying: set[str], constant: set[str], under: bool) -> None:
    """Mark what is assigned a varying value, or assigned under a varying condition."""
    for s in body:
        if isinstance(s, Assign):
            if under or varies(s.value, varying, constant):
                varying.add(s.name)
        elif isinstance(s, (Atomic, Hardware)):
            if s.target and (under or isinstance(s, Atomic) or s.op != "cluster_rank"):
                varying.add(s.target)
        elif isinstance(s, If):
            deeper = under or varies(s.cond, varying, constant)
            _spread(s.then, varying, constant, deeper)
            _spread(s.orelse, varying, constant, deeper)
        elif isinstance(s, (For, While)):
            heads = [s.start, s.stop, s.step] if isinstance(s, For) else [s.cond]
            deeper = (
                under
                or any(varies(h, varying, constant) for h in heads)
                or _left_early(s, varying, constant)
            )
            if isinstance(s, For) and deeper:
                varying.add(s.var)
            _spread(s.body, varying, constant, deeper)


def _left_early(loop: For | While, varying: set[str], constant: set[str]) -> bool:
    """Whether some units may leave a loop, or a turn of it, before others."""

    def look(body: list[Stmt], under: bool) -> bool:
        for s in body:
            if isinstance(s, (Break, Continue)) and under:
                return True
            if isinstance(s, If):
                deeper = under or varies(s.cond, varying, constant)
                if look(s.then, deeper) or look(s.orelse, deeper):
                    return True
        return False

    return look(loop.body, False)


def _check(program: Program, body: list[Stmt], varying: set[str], cause: Stmt | None) -> None:
    constant = {a.mem.name for a in program.arguments if a.mem} - program.outputs
    for s in body:
        if isinstance(s, Barrier) and not s.plane and cause is not None:
            where = f"line {cause.loc.line}" if cause.loc else "an outer statement"
            raise BarrierError(
                "a barrier must be reached by all units of a cube or by none, but the "
                f"condition on {where} may differ between units",
                location=s.loc,
                hint="move cb.sync_cube() out of the branch or loop; guard only the work around it",
            )
        if isinstance(s, If):
            inner = cause or (s if varies(s.cond, varying, constant) else None)
            _check(program, s.then, varying, inner)
            _check(program, s.orelse, varying, inner)
        elif isinstance(s, (For, While)) and contains_barrier(s.body):
            heads = [s.start, s.stop, s.step] if isinstance(s, For) else [s.cond]
            differs = any(varies(h, varying, constant) for h in heads) or _left_early(
                s, varying, constant
            )
            _check(program, s.body, varying, cause or (s if differs else None))
