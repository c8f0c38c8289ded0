"""Which conditions are the same for all units of a plane, or of a group of four planes.

Matrix instructions are executed by whole planes or groups. A condition may split a cube into such
groups, as warp specialisation does; it must not split a group. For every value the analysis finds
its *grain*: the size of aligned blocks of units in which it is the same. 0 stands for a value that
is the same in the whole cube, and 1 for one that may differ between neighbours; grains meet in
their greatest common divisor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    walk,
)
from cubepy.errors import BarrierError, Location

GROUP_PLANES = 4
PLANE_OPS = ("sync_plane", "mma", "load_matrix", "store_matrix", "sync_group", "arrive_group")
GROUP_OPS = (
    "wgmma",
    "wgmma_registers",
    "wgmma_fence",
    "wgmma_commit",
    "wgmma_wait",
    "set_registers",
)
CUBE_OPS = ("sync_cluster",)
SAME_IN_A_PLANE = (
    "plane_sum",
    "plane_prod",
    "plane_max",
    "plane_min",
    "plane_all",
    "plane_any",
    "plane_broadcast",
)


@dataclass(frozen=True)
class Look:
    """What is known of a value: its grain, and whether it is the unit's position divided by
    `scale`.
    """

    grain: int
    scale: int = 0


SAME = Look(0)


@dataclass(frozen=True)
class Guard:
    """The conditions around a statement: their common grain, and where the finest stands."""

    grain: int = 0
    loc: Location | None = None

    def under(self, grain: int, loc: Location | None) -> Guard:
        """One condition more."""
        common = math.gcd(self.grain, grain)
        return self if common == self.grain else Guard(common, loc)


def check_groups(program: Program, plane: int) -> None:
    """Prove that planes and groups reach their instructions together.

    Raises:
        BarrierError: a matrix instruction stands under a condition that may differ between its
            units, or its operand's place may.
    """
    if any(
        isinstance(s, Hardware) or (isinstance(s, Barrier) and s.plane) for s in walk(program.body)
    ):
        Groups(program, plane).walk(program.body, Guard())


Env = dict[str, Look]


def joined(a: Look, b: Look, grain: int = 0) -> Look:
    """What is known of a value that is one of two; `grain` is that of the condition which
    decides.
    """
    return Look(math.gcd(a.grain, b.grain, grain), a.scale if a == b and not grain else 0)


class Groups:
    """Walks a program with what is known of its variables; a value is judged among the units that
    compute it.
    """

    def __init__(self, program: Program, plane: int) -> None:
        self.units, self.plane = program.units, plane
        self.env: Env = {}
        self.checking = True

    def of(self, e: Expr) -> Look:
        """What is known of an expression."""
        if e.op == "topology":
            return self.position(str(e.attr))
        if e.op == "var":
            return self.env.get(str(e.attr), SAME)
        args = [self.of(a) for a in e.args]
        grain = math.gcd(*(a.grain for a in args))
        if e.op == "plane":
            same = e.attr in SAME_IN_A_PLANE or (
                e.attr == "plane_shuffle" and args[1].grain % self.plane == 0
            )
            return (
                Look(math.gcd(grain, self.plane) if grain % self.plane == 0 else self.plane)
                if same
                else Look(grain if grain % self.plane == 0 else 1)
            )
        if e.op == "cast" and e.type.dtype.is_int and e.args[0].type.dtype.is_int:
            return args[0]
        if len(args) == 2 and args[0].scale and e.args[1].op == "const":
            return self.of_position(e.op, args[0].scale, e.args[1].attr, grain)
        return Look(grain)

    @staticmethod
    def of_position(op: str, scale: int, n: object, grain: int) -> Look:
        """An operation on the unit's position, divided by `scale`, and a constant."""
        if not isinstance(n, int) or n <= 0:
            return Look(grain)
        if op in ("floordiv", "shr"):
            wider = scale * (n if op == "floordiv" else 1 << n)
            return Look(wider, wider)
        if op == "and_":
            return Look(scale * (n & -n))
        if op in ("lt", "ge"):
            return Look(scale * n)
        return Look(scale * (n + 1) if op in ("le", "gt") else grain)

    def position(self, name: str) -> Look:
        """What is known of a topology value."""
        x, y, z = self.units
        if name.startswith("CUBE_"):
            return SAME
        exact = {"UNIT_POS": 1, "PLANE_POS": self.plane, "UNIT_POS_Z": x * y}
        if y == z == 1:
            exact["UNIT_POS_X"] = 1
        if z == 1:
            exact["UNIT_POS_Y"] = x
        if name in exact:
            return Look(exact[name], exact[name])
        return Look(x if name == "UNIT_POS_Y" else 1)

    def walk(self, body: list[Stmt], guard: Guard) -> None:
        """Follow the statements of a body under the conditions of `guard`."""
        for s in body:
            if isinstance(s, Assign):
                self.env[s.name] = self.of(s.value)
            elif isinstance(s, Atomic) and s.target:
                self.env[s.target] = Look(1)
            elif isinstance(s, Hardware):
                if self.checking:
                    self.check(s, guard)
                if s.target:
                    self.env[s.target] = SAME if s.op == "cluster_rank" else Look(1)
            elif isinstance(s, Barrier) and s.plane and self.checking:
                self.check(Hardware("sync_plane", None, loc=s.loc), guard)
            elif isinstance(s, If):
                self.walk_if(s, guard)
            elif isinstance(s, (For, While)):
                self.walk_loop(s, guard)

    def walk_if(self, s: If, guard: Guard) -> None:
        """Both branches, and what is known after them."""
        grain = self.of(s.cond).grain
        before = self.env
        ends: list[Env] = []
        for branch in (s.then, s.orelse):
            self.env = dict(before)
            self.walk(branch, guard.under(grain, s.loc))
            ends.append(self.env)
        then, orelse = ends
        changed = {n for branch in (s.then, s.orelse) for n in assigned(branch)}
        self.env = before | {
            n: joined(then.get(n, SAME), orelse.get(n, SAME), grain) for n in changed
        }

    def walk_loop(self, s: For | While, guard: Guard) -> None:
        """A body until nothing new is known at its head, then once more to check it."""
        changed = assigned([s])
        saved, self.checking = self.checking, False
        while True:
            head = dict(self.env)
            inner = self.iteration(s, guard)
            again = inner.grain if any(isinstance(x, Continue) for x in walk(s.body)) else 0
            self.env = head | {
                n: joined(head.get(n, SAME), self.env.get(n, SAME), again) for n in changed
            }
            if self.env == head:
                break
        self.checking = saved
        if saved:
            self.iteration(s, guard)
        grain = self.of_loop(s)
        self.env = head | {
            n: joined(head.get(n, SAME), self.env.get(n, SAME), grain) for n in changed
        }

    def iteration(self, s: For | While, guard: Guard) -> Guard:
        """One turn of a loop; gives the conditions around its body."""
        inner = guard.under(self.of_loop(s), s.loc)
        if isinstance(s, For):
            self.env[s.var] = Look(math.gcd(self.of(s.start).grain, self.of(s.step).grain))
        self.walk(s.body, inner)
        return inner

    def of_loop(self, loop: For | While) -> int:
        """The grain of how often a loop runs."""
        heads = [loop.start, loop.stop, loop.step] if isinstance(loop, For) else [loop.cond]

        def leaving(body: list[Stmt], under: int) -> int:
            grain = 0
            for s in body:
                if isinstance(s, (Break, Continue)):
                    grain = math.gcd(grain, under)
                elif isinstance(s, If):
                    inner = math.gcd(under, self.of(s.cond).grain)
                    grain = math.gcd(grain, leaving(s.then, inner), leaving(s.orelse, inner))
            return grain

        return math.gcd(leaving(loop.body, 0), *(self.of(h).grain for h in heads))

    def check(self, s: Hardware, guard: Guard) -> None:
        """Check one instruction."""
        units, who = self.needs(s.op)
        name = "wgmma" if s.op == "wgmma_registers" else s.op
        if units < 0 or _whole(guard.grain, units):
            if units > 0 and any(not _whole(self.of(e).grain, units) for e in _shared_arguments(s)):
                raise BarrierError(
                    f"the place of an operand of cb.{name} must be the same in {who}",
                    location=s.loc,
                    hint="compute it from UNIT_POS // 128, PLANE_POS or values of the cube",
                )
            return
        where = f"line {guard.loc.line}" if guard.loc else "an outer statement"
        raise BarrierError(
            f"cb.{name} must be reached by {who} or by none of them, but the condition on "
            f"{where} may differ among them",
            location=s.loc,
            hint="test UNIT_POS // 128 or PLANE_POS"
            if units
            else "move it out of the branch or loop",
        )

    def needs(self, op: str) -> tuple[int, str]:
        """How many units execute an instruction together (0: the cube; -1: each its own), in words
        too.
        """
        if op in PLANE_OPS:
            return self.plane, f"all {self.plane} units of a plane"
        if op in GROUP_OPS:
            return (
                self.plane * GROUP_PLANES,
                f"all {self.plane * GROUP_PLANES} units of four planes",
            )
        return (0, "all units of a cube") if op in CUBE_OPS else (-1, "")


def assigned(body: list[Stmt]) -> set[str]:
    """The variables that a body gives values to."""
    names = set()
    for s in walk(body):
        if isinstance(s, Assign):
            names.add(s.name)
        elif isinstance(s, For):
            names.add(s.var)
        elif isinstance(s, (Atomic, Hardware)) and s.target:
            names.add(s.target)
    return names


def _whole(grain: int, units: int) -> bool:
    return grain == 0 if units == 0 else grain % units == 0


def _shared_arguments(s: Hardware) -> list[Expr]:
    """Arguments of which one value counts for all units."""
    if s.op in ("wgmma", "sync_group", "arrive_group"):
        return list(s.args)
    return list(s.args[1:]) if s.op == "wgmma_registers" else []
