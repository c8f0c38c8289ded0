"""Copies between variables that a program does without, taken out before a backend's compiler is
asked.

The front end copies freely: to take a tuple apart, to hand an argument to a func, to keep an old
value while a new one is made. In kernels that unroll loops over tuples half of all statements are
such copies, and each of them costs the compiler behind as much as a statement that computes.

Statements are numbered in the order of the text, so that a block and a loop are ranges of numbers.
Two things are done.

* A variable that is written once, by a copy `a = b`, is `b` itself wherever it is read: if all
  reads stand in the rest of the copy's block, so that the copy has just run, and nothing writes `b`
  between the copy and the last read. Where a read stands in a loop that begins after the copy,
  "between" reaches to the end of the loop.
* A value that waits in a variable of its own, `t = f(x)` ... `a = t`, goes to `a` at once: if that
  is the only read of `t`, both stand in one block, and in between `a` is neither read nor written
  and nothing jumps away.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

from cubepy.compiler.ir import (
    Assign,
    Break,
    Continue,
    Expr,
    For,
    If,
    Program,
    Stmt,
    VType,
    While,
    children,
    expressions,
)


@dataclass
class Numbered:
    """A statement by its number: those of the loops around it, of the last statement in it, and of
    its block's last.
    """

    stmt: Stmt
    block: int
    loops: tuple[int, ...]
    end: int = 0
    block_end: int = 0


class Numbers:
    """The statements of a body in the order of the text, and where each variable is written and
    read.
    """

    def __init__(self, body: list[Stmt], variables: dict[str, VType], given: set[str]) -> None:
        self.variables = variables
        self.statements: list[Numbered] = []
        self.writes: dict[str, list[int]] = {name: [-1] for name in given}
        self.reads: dict[str, list[int]] = {}
        self.jumps: list[int] = []
        self.number(body, ())

    def number(self, body: list[Stmt], loops: tuple[int, ...]) -> None:
        """Number the statements of a block and those in them."""
        first = len(self.statements)
        mine = []
        for s in body:
            number = len(self.statements)
            here = Numbered(s, first, loops)
            mine.append(here)
            self.statements.append(here)
            target = written(s)
            if target is not None:
                self.writes.setdefault(target, []).append(number)
            for name in {str(x.attr) for e in expressions(s) for x in e.walk() if x.op == "var"}:
                self.reads.setdefault(name, []).append(number)
            if isinstance(s, (Break, Continue)):
                self.jumps.append(number)
            inside = (*loops, number) if isinstance(s, (For, While)) else loops
            for inner in children(s):
                self.number(inner, inside)
            here.end = len(self.statements) - 1
        for here in mine:
            here.block_end = len(self.statements) - 1

    def alike(self, a: str, b: str) -> bool:
        """Whether two variables have one type."""
        x, y = self.variables.get(a), self.variables.get(b)
        return x is not None and y is not None and (x.dtype, x.lanes) == (y.dtype, y.lanes)

    def reach(self, name: str, after: int) -> int:
        """The number before which a value set by statement `after` is read for the last time."""
        stop = after
        for number in self.reads[name]:
            here = self.statements[number]
            loops = [n for n in here.loops if n > after]
            if isinstance(here.stmt, While):
                loops.append(number)
            stop = max(stop, self.statements[loops[0]].end + 1 if loops else number)
        return stop

    def is_another(self, number: int, name: str, other: str) -> bool:
        """Whether the variable that statement `number` copies from another is that one, wherever it
        is read.
        """
        if self.writes[name] != [number] or not self.alike(name, other):
            return False
        reads = self.reads.get(name)
        if not reads:
            return True
        if reads[0] <= number or reads[-1] > self.statements[number].block_end:
            return False
        return not between(self.writes.get(other, []), number, self.reach(name, number))

    def could_go_at_once(self, number: int, name: str, waits: str) -> int | None:
        """The statement that may give `name` the value that `waits` until statement `number` copies
        it, or None.
        """
        if self.reads[waits] != [number] or len(self.writes[waits]) != 1:
            return None
        (first,) = self.writes[waits]
        if first < 0 or self.statements[first].block != self.statements[number].block:
            return None
        if not isinstance(self.statements[first].stmt, Assign) or not self.alike(name, waits):
            return None
        uses = (self.writes[name], self.reads.get(name, []), self.jumps)
        return None if any(between(n, first, number) for n in uses) else first


def between(numbers: list[int], first: int, stop: int) -> bool:
    """Whether one of the numbers, which are in order, lies after `first` and before `stop`."""
    at = bisect_right(numbers, first)
    return at < len(numbers) and numbers[at] < stop


def written(s: Stmt) -> str | None:
    """The variable that a statement itself writes."""
    if isinstance(s, Assign):
        return s.name
    return s.var if isinstance(s, For) else getattr(s, "target", None)


class Replacing:
    """Puts variables in the place of others, in a copy of a body."""

    def __init__(self, instead: dict[str, Expr]) -> None:
        self.instead = instead
        self.done: dict[int, tuple[Expr, Expr]] = {}

    def expression(self, e: Expr) -> Expr:
        """The expression with its variables replaced."""
        if e.op == "var":
            return self.instead.get(str(e.attr), e)
        if not e.args:
            return e
        known = self.done.get(id(e))
        if known is None:
            args = tuple(map(self.expression, e.args))
            same = all(a is b for a, b in zip(args, e.args, strict=True))
            known = self.done[id(e)] = (e, e if same else Expr(e.op, e.type, args, e.attr))
        return known[1]

    def statement(self, s: Stmt) -> Stmt:
        """The statement with its variables replaced, but not what it writes and holds."""
        changed: dict[str, Any] = {}
        for name, old in vars(s).items():
            if isinstance(old, Expr):
                new: Any = self.expression(old)
            elif isinstance(old, tuple) and any(isinstance(x, Expr) for x in old):
                new = tuple(self.expression(x) if isinstance(x, Expr) else x for x in old)
            else:
                continue
            if new is not old and new != old:
                changed[name] = new
        return replace(s, **changed) if changed else s


def without_copies(program: Program) -> Program:
    """The program with fewer copies: the same operations of the same values, in the same order."""
    given = {a.path for a in program.arguments if a.scalar is not None}
    body = _read_directly(Numbers(program.body, program.variables, given), program.body)
    body = _written_at_once(Numbers(body, program.variables, given), body)
    return replace(program, body=body)


def _read_directly(known: Numbers, body: list[Stmt]) -> list[Stmt]:
    """Where a variable only repeats another one, the other one is read."""
    instead: dict[str, Expr] = {}
    replacing = Replacing(instead)
    made: dict[int, Stmt | None] = {}
    for number, here in enumerate(known.statements):
        s = replacing.statement(here.stmt)
        made[number] = s
        if isinstance(s, Assign) and s.value.op == "var":
            other = str(s.value.attr)
            if other == s.name:
                made[number] = None
            elif known.is_another(number, s.name, other):
                instead[s.name] = s.value
                made[number] = None
    return _rebuilt(body, made)


def _written_at_once(known: Numbers, body: list[Stmt]) -> list[Stmt]:
    """Where a value waits in a variable of its own for the one that it is meant for, it goes there
    at once.
    """
    made: dict[int, Stmt | None] = {n: here.stmt for n, here in enumerate(known.statements)}
    for number, here in enumerate(known.statements):
        s = here.stmt
        if isinstance(s, Assign) and s.value.op == "var":
            first = known.could_go_at_once(number, s.name, str(s.value.attr))
            waiting = None if first is None else made[first]
            if first is not None and isinstance(waiting, Assign):
                made[first] = replace(waiting, name=s.name)
                made[number] = None
    return _rebuilt(body, made)


def _rebuilt(body: list[Stmt], made: dict[int, Stmt | None]) -> list[Stmt]:
    """A body of what was made of its statements, by their numbers."""
    numbers = iter(range(len(made)))

    def block(items: list[Stmt]) -> list[Stmt]:
        out = []
        for s in items:
            new = made[next(numbers)]
            inner = [block(part) for part in children(s)]
            if isinstance(new, If):
                new = replace(new, then=inner[0], orelse=inner[1])
            elif isinstance(new, (For, While)):
                new = replace(new, body=inner[0])
            if new is not None:
                out.append(new)
        return out

    return block(body)
